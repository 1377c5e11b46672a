#include "ops/softmax/flash_mla/dense.h"

#include <algorithm>
#include <limits>
#include <numbers>

#include "ops/softmax/flash_mla/pairs.h"
#include "ops/softmax/layouts/mla_decode.h"
#include "quant/hopper/fast_math.h"
#include "quant/sizes.h"
#include "quant/tensor_core/unit.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;

constexpr auto block = static_cast<std::int32_t>(flash_mla_block);
constexpr float infinity = std::numeric_limits<float>::infinity();

/// One block of rows of one request over the blocks of one split.
void tile(const FlashMla& call, std::int64_t request, const FlashMlaRun::Rows& rows, const FlashMlaRange& range, Isa isa,
          FlashMlaRow* results) {
  const bool causal = call.causal && call.q.size(1) > 1;
  const std::int32_t length = call.length(request);
  FlashMlaBlocks blocks{
      range, static_cast<float>(static_cast<double>(static_cast<float>(call.scale)) * std::numbers::log2e), -1e33f, true, {}, {}, {}};
  std::int32_t& end = blocks.range.end;
  if (causal)
    end = std::min(end, static_cast<std::int32_t>(quant::ceil_div(std::max(length - call.behind(rows.first + block - 1), 0), block)));
  std::vector<std::int32_t> seen;
  std::vector<const std::byte*> queries;
  for (std::int64_t r = rows.first; r < rows.first + rows.count; ++r) {
    seen.push_back(causal ? std::min(length - call.behind(r), block * end) : length);
    queries.push_back(call.query(request, r));
  }
  const auto keys = [&](std::int32_t k, std::int64_t tokens) {
    FlashMlaKeys found{};
    for (std::int64_t t = 0; t < tokens; ++t) found[static_cast<std::size_t>(t)] = call.key(request, k, t);
    return found;
  };
  blocks.keys = [&](std::int32_t k) { return keys(k, block); };
  blocks.values = [&](std::int32_t k) { return keys(k, k == end - 1 ? std::min(block, length - k * block) : block); };
  blocks.mask = [&](std::int32_t k, FlashMlaRows& scores) {
    for (std::size_t r = 0; r < seen.size() && k >= end - 2; ++r)
      for (std::int32_t t = std::max(seen[r] - k * block, 0); t < block; ++t)
        scores[r * static_cast<std::size_t>(block) + static_cast<std::size_t>(t)] = blocks.masked;
  };
  const FlashMlaTile products(quant::tensor_core::half_mma, call.cache.dtype(), queries, isa);
  const FlashMlaPairs pairs(products, blocks);
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const float sum = pairs.sum(r), top = pairs.largest(r);
    const bool none = sum == 0 || sum != sum;
    pairs.scaled(r, hw::rcp(none ? 1.0f : sum), results[r].out.data());
    results[r].lse = none ? infinity : hw::fma(hw::lg2(sum), hw::ln_2, hw::mul(top, hw::ln_2));
    results[r].split_lse = none ? -infinity : hw::add(hw::lg2(sum), top);
  }
}

}  // namespace

const std::byte* FlashMla::query(std::int64_t request, std::int64_t row) const {
  const std::int64_t heads = q.size(2), bytes = bits(q.dtype()) / 8;
  return q.as<const std::byte>() + (request * q.stride(0) + row / heads * q.stride(1) + row % heads * q.stride(2)) * bytes;
}

std::int32_t FlashMla::behind(std::int64_t row) const {
  const std::int64_t queries = q.size(1), heads = q.size(2);
  return row < queries * heads ? static_cast<std::int32_t>(queries - 1 - row / heads) : 0;
}

const std::byte* FlashMla::key(std::int64_t request, std::int32_t number, std::int64_t token) const {
  const std::int64_t page = block_table.as<const std::int32_t>()[request * block_table.size(1) + number];
  return cache.as<const std::byte>() + (page * block + token) * mla_width * (bits(cache.dtype()) / 8);
}

std::vector<FlashMlaRun::Rows> flash_mla_row_blocks(const FlashMla& call) {
  const std::int64_t rows = call.q.size(1) * call.q.size(2);
  std::vector<FlashMlaRun::Rows> blocks;
  for (std::int64_t r = 0; r < rows; r += block) blocks.push_back({r, std::min<std::int64_t>(block, rows - r)});
  return blocks;
}

void flash_mla_hopper(const FlashMla& call, const Exec& exec) {
  FlashMlaRun run{call.work, flash_mla_row_blocks(call), false, {}};
  run.tile = [&](std::int64_t request, const FlashMlaRun::Rows& block_of_rows, const FlashMlaRange& range, FlashMlaRow* results) {
    tile(call, request, block_of_rows, range, exec.isa, results);
  };
  run_flash_mla(run, call.out, call.lse, exec);
}

}  // namespace dodona::ops
