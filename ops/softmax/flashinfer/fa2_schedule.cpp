#include "ops/softmax/flashinfer/fa2_schedule.h"

#include <algorithm>

#include "quant/sizes.h"

namespace dodona::ops {
namespace {

using quant::ceil_div;

/// Bytes of shared memory of a multiprocessor, and those that one block may have.
constexpr std::int64_t shared_memory = 233472, shared_memory_of_block = 232448;

std::int64_t rows_of_tile(std::int64_t average, std::int64_t value_width) {
  return average > 64 && value_width < 256 ? 128 : average > 16 ? 64 : 16;
}

/// Steps of 16 keys that a warp takes at once.
std::int64_t steps_of_warp(std::int64_t rows, std::int64_t warps, std::int64_t key_width, std::int64_t value_width) {
  const std::int64_t fixed = rows * key_width * 2, step = (key_width + value_width) * 16 * warps * 2;
  const std::int64_t blocks = shared_memory >= 2 * (fixed + step) ? 2 : 1;
  const std::int64_t room = (std::min(shared_memory / blocks, shared_memory_of_block) - fixed) / step;
  const std::int64_t most = std::min<std::int64_t>(room, rows > 64 ? 4 : 8);
  return most >= 8 ? 8 : most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

/// The fewest keys of a split of which there are no more than blocks.
std::int64_t keys_of_split(const std::vector<std::int64_t>& tiles, const std::vector<std::int64_t>& keys, std::int64_t blocks) {
  std::int64_t low = 128, high = std::max<std::int64_t>(1, *std::max_element(keys.begin(), keys.end()));
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    std::int64_t needed = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) needed += tiles[i] * ceil_div(std::max<std::int64_t>(keys[i], 1), middle);
    if (needed > blocks)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

}  // namespace

std::int64_t fa2_prefill_keys(std::int64_t tile_rows, const Fa2Request& request) {
  return request.window < 0 ? request.keys : std::min(request.keys, request.window + tile_rows);
}

Fa2Prefill fa2_prefill(const std::vector<Fa2Request>& requests, std::int64_t key_heads, std::int64_t group, std::int64_t key_width,
                       std::int64_t value_width, std::int64_t fixed_split) {
  std::int64_t rows = 0;
  for (const Fa2Request& request : requests) rows += request.queries * group;
  Fa2Prefill plan{};
  plan.tile_rows = rows_of_tile(rows / static_cast<std::int64_t>(requests.size()), value_width);
  plan.key_warps = plan.tile_rows == 16 ? 4 : 1;
  plan.keys_of_warp = 16 * steps_of_warp(plan.tile_rows, plan.key_warps, key_width, value_width);
  std::vector<std::int64_t> tiles, keys;
  for (const Fa2Request& request : requests) {
    tiles.push_back(ceil_div(request.queries * group, plan.tile_rows));
    keys.push_back(fa2_prefill_keys(plan.tile_rows, request));
  }
  plan.keys_of_split = fixed_split > 0 ? fixed_split : keys_of_split(tiles, keys, 2 * fa2_multiprocessors / key_heads);
  plan.splits = *std::max_element(keys.begin(), keys.end()) > plan.keys_of_split;
  return plan;
}

Fa2Mla fa2_mla(const std::vector<Fa2Request>& requests, std::int64_t heads, bool causal) {
  std::int64_t rows = 0;
  for (const Fa2Request& request : requests) rows += request.queries * heads;
  const std::int64_t blocks = rows / static_cast<std::int64_t>(requests.size()) > 64 ? 2 : 1, clusters = fa2_multiprocessors / blocks;
  Fa2Mla plan{64 * blocks, 0};
  std::int64_t keys = 0;
  for (const Fa2Request& request : requests)
    for (std::int64_t tile = 0; tile < ceil_div(request.queries * heads, plan.tile_rows); ++tile)
      keys += fa2_mla_keys(plan, request, heads, tile, causal);
  const std::int64_t share = std::max<std::int64_t>(ceil_div(keys, clusters), 1);
  plan.keys_of_split = share <= 8 ? 32 : share <= 16 ? 64 : share <= 32 ? 128 : share <= 64 ? 192 : ceil_div(share, 256) * 256;
  return plan;
}

std::int64_t fa2_mla_keys(const Fa2Mla& plan, const Fa2Request& request, std::int64_t heads, std::int64_t tile, bool causal) {
  if (!causal || tile + 1 == ceil_div(request.queries * heads, plan.tile_rows)) return request.keys;
  const std::int64_t end = request.keys - request.queries + ceil_div((tile + 1) * plan.tile_rows, heads);
  return std::clamp<std::int64_t>(end, 0, request.keys);
}

}  // namespace dodona::ops
