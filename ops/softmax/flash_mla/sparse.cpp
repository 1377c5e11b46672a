#include "ops/softmax/flash_mla/sparse.h"

#include <algorithm>
#include <limits>
#include <numbers>
#include <vector>

#include "core/threads.h"
#include "ops/rows/cache/k_cache_row.h"
#include "ops/softmax/flash_mla/pairs.h"
#include "ops/softmax/flash_mla/splits.h"
#include "ops/softmax/layouts/mla_decode.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"
#include "quant/tensor_core/unit.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;

constexpr auto block = static_cast<std::int32_t>(flash_mla_block);
constexpr float infinity = std::numeric_limits<float>::infinity();

/// Some heads of one query token.
struct Heads {
  std::int64_t token, first, count;
};

std::vector<const std::byte*> queries_of(const SparseMla& call, const Heads& heads) {
  const Tensor& q = call.q;
  const std::int64_t row = heads.token / q.size(1) * q.stride(0) + heads.token % q.size(1) * q.stride(1);
  std::vector<const std::byte*> rows;
  for (std::int64_t h = heads.first; h < heads.first + heads.count; ++h)
    rows.push_back(q.as<const std::byte>() + 2 * (row + h * q.stride(2)));
  return rows;
}

/// The keys of a block of the token's list.
FlashMlaKeys keys_of(const SparseMla& call, std::int64_t token, std::int32_t k) {
  const Tensor& indices = call.indices;
  const std::int32_t* const list = indices.as<const std::int32_t>() + token / indices.size(1) * indices.stride(0) +
                                   token % indices.size(1) * indices.stride(1) + std::int64_t{k} * block;
  FlashMlaKeys keys{};
  for (std::size_t t = 0; t < keys.size(); ++t)
    if (const std::int64_t slot = slot_of(list[t], call.cache_rows); slot >= 0) keys[t] = call.cache + slot * call.cache_stride;
  return keys;
}

void mask(const FlashMlaKeys& keys, FlashMlaRows& scores) {
  for (std::size_t i = 0; i < scores.size(); ++i)
    if (keys[i % keys.size()] == nullptr) scores[i] = -infinity;
}

float slog_of(double scale) {
  return static_cast<float>(static_cast<double>(static_cast<float>(scale)) * std::numbers::log2e);
}

// ---- decode

/// The rows that are there, as bf16.
class Dequantized {
 public:
  Dequantized(FlashMlaKeys keys, Isa isa) : rows_(keys.size() * bytes) {
    for (std::size_t t = 0; t < keys.size(); ++t) {
      if (keys[t] == nullptr) continue;
      dequantize_k_cache_row(keys[t], rows_.data() + t * bytes, isa, KCacheScales::bf16);
      keys_[t] = rows_.data() + t * bytes;
    }
  }
  const FlashMlaKeys& keys() const { return keys_; }

 private:
  static constexpr std::size_t bytes = 2 * static_cast<std::size_t>(mla_width);
  std::vector<std::byte> rows_;
  FlashMlaKeys keys_{};
};

/// `sums`, four for each row: those of its columns' weights, one after another, are added to what is left of the sums before.
void add_sums(FlashMlaRows& sums, const FlashMlaRows& factors, const FlashMlaRows& weights) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    float sum = 0;
    const float* const row = weights.data() + i / 4 * static_cast<std::size_t>(block) + i % 4 * 2;
    for (std::int32_t g = 0; g < block; g += 8) sum = hw::add(hw::add(sum, row[g]), row[g + 1]);
    sums[i] = hw::fma(sums[i], factors[i / 4], sum);
  }
}

void decode_tile(const SparseMla& call, const Heads& heads, const FlashMlaRange& range, Isa isa, FlashMlaRow* results) {
  const FlashMlaTile tile(quant::tensor_core::half_mma, DType::bf16, queries_of(call, heads), isa);
  FlashMlaRows largest = tile.numbers(1, -1e30f), outs = tile.numbers(mla_latent), sums = tile.numbers(4);
  for (std::int32_t k = range.begin; k < range.end; ++k) {
    const Dequantized rows(keys_of(call, heads.token, k), isa);
    FlashMlaRows weights = tile.scores(rows.keys(), false);
    mask(rows.keys(), weights);
    const FlashMlaRows factors = flash_mla_weigh(weights, largest, slog_of(call.scale), -infinity);
    flash_mla_scale(outs, factors);
    add_sums(sums, factors, weights);
    tile.add_values(outs, weights, rows.keys(), 0, mla_latent);
  }
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    const float sum = flash_mla_quad(sums, r), top = largest[static_cast<std::size_t>(r)], factor = hw::rcp(sum == 0 ? 1.0f : sum);
    for (std::size_t d = 0; d < results[r].out.size(); ++d)
      results[r].out[d] = hw::mul(outs[static_cast<std::size_t>(r) * results[r].out.size() + d], factor);
    results[r].lse = sum == 0 ? infinity : hw::fma(hw::lg2(sum), hw::ln_2, hw::mul(top, hw::ln_2));
    results[r].split_lse = sum == 0 ? -infinity : hw::add(hw::lg2(sum), top);
  }
}

// ---- prefill

void prefill_tile(const SparseMla& call, const Heads& heads, Isa isa) {
  const FlashMlaTile tile(quant::tensor_core::half_mma, DType::bf16, queries_of(call, heads), isa);
  const auto keys = [&](std::int32_t k) { return keys_of(call, heads.token, k); };
  const float slog = hw::mul(static_cast<float>(call.scale), hw::log2_e);
  const FlashMlaBlocks blocks{{0, static_cast<std::int32_t>(call.indices.size(2)) / block},        slog, -infinity, false, keys, keys,
                              [&](std::int32_t k, FlashMlaRows& scores) { mask(keys(k), scores); }};
  const FlashMlaPairs pairs(tile, blocks);
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    const float sum = pairs.sum(r);
    const std::int64_t row = heads.token * call.q.size(2) + heads.first + r;
    std::array<float, static_cast<std::size_t>(mla_latent)> out;
    pairs.scaled(r, sum == 0 ? 1.0f : hw::rcp(sum), out.data());
    for (std::int64_t d = 0; d < mla_latent; ++d)
      quant::set(call.out, row * mla_latent + d, static_cast<double>(out[static_cast<std::size_t>(d)]));
    quant::set(call.top, row, static_cast<double>(sum == 0 ? -infinity : pairs.largest(r)));
    quant::set(call.lse, row, static_cast<double>(sum == 0 ? -infinity : hw::add(hw::lg2(sum), pairs.largest(r))));
  }
}

}  // namespace

void flash_mla_sparse_decode_hopper(const SparseMla& call, const FlashMlaWork& work, const Exec& exec) {
  const std::int64_t queries = call.q.size(1), heads = call.q.size(2);
  FlashMlaRun run{work, {}, false, {}};
  for (std::int64_t i = 0; i < queries; ++i)
    for (std::int64_t h = 0; h < heads; h += block) run.blocks.push_back({i * heads + h, std::min<std::int64_t>(block, heads - h)});
  run.tile = [&](std::int64_t request, const FlashMlaRun::Rows& rows, const FlashMlaRange& range, FlashMlaRow* results) {
    decode_tile(call, {request * queries + rows.first / heads, rows.first % heads, rows.count}, range, exec.isa, results);
  };
  run_flash_mla(run, call.out, call.lse, exec);
}

void flash_mla_sparse_prefill_hopper(const SparseMla& call, const Exec& exec) {
  const std::int64_t heads = call.q.size(2), blocks = (heads + block - 1) / block;
  parallel_for(exec.threads, call.q.size(0) * call.q.size(1) * blocks, 1e7, [&](std::int64_t i) {
    const std::int64_t first = i % blocks * block;
    prefill_tile(call, {i / blocks, first, std::min<std::int64_t>(block, heads - first)}, exec.isa);
  });
}

}  // namespace dodona::ops
