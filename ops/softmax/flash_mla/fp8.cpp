#include "ops/softmax/flash_mla/fp8.h"

#include <algorithm>
#include <limits>
#include <numbers>

#include "ops/softmax/flash_mla/splits.h"
#include "ops/softmax/flash_mla/tile.h"
#include "ops/softmax/layouts/mla_decode.h"
#include "quant/hopper/fast_math.h"
#include "quant/tensor_core/unit.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;

constexpr auto block = static_cast<std::int32_t>(flash_mla_block);
constexpr float infinity = std::numeric_limits<float>::infinity(), largest_e4m3 = 448;

/// One block of rows of one request over the blocks of one split.
class Tile {
 public:
  Tile(const FlashMla& call, std::int64_t request, const FlashMlaRun::Rows& rows, const std::vector<const std::byte*>& queries, Isa isa)
      : call_(call),
        request_(request),
        rows_(rows),
        tile_(quant::tensor_core::fp8_wgmma, DType::f8_e4m3, queries, isa),
        slog_(scaled(static_cast<float>(static_cast<double>(static_cast<float>(call.scale)) * std::numbers::log2e))),
        largest_(tile_.numbers(1, -infinity)),
        sums_(tile_.numbers(4)),
        outs_(tile_.numbers(mla_latent)) {}

  void run(const FlashMlaRange& range) {
    for (std::int32_t k = range.end - 1; k >= range.begin; --k) add(k, range.end - k);
  }
  void finish(FlashMlaRow* results) const {
    for (std::int64_t r = 0; r < tile_.rows(); ++r) {
      const float* const s = sums_.data() + 4 * r;
      const float sum = hw::add(hw::add(s[0], s[2]), hw::add(s[1], s[3]));
      const bool none = sum == 0 || sum != sum;
      const float factor = none ? 1.0f : hw::mul(hw::rcp(sum), call_.descale_k);
      for (std::size_t d = 0; d < results[r].out.size(); ++d)
        results[r].out[d] = hw::mul(outs_[static_cast<std::size_t>(r) * results[r].out.size() + d], factor);
      const float lse =
          hw::fma(largest_[static_cast<std::size_t>(r)], scaled(static_cast<float>(call_.scale)), hw::mul(hw::lg2(sum), hw::ln_2));
      results[r].lse = none ? infinity : lse;
      results[r].split_lse = none ? -infinity : lse;
    }
  }

 private:
  float scaled(float scale) const { return hw::mul(hw::mul(scale, call_.descale_q), call_.descale_k); }

  /// `number`: of the block within the split, from 1.
  void add(std::int32_t k, std::int32_t number) {
    const std::int32_t length = call_.length(request_);
    const bool causal = call_.causal && call_.q.size(1) > 1;
    FlashMlaKeys keys{};
    for (std::int32_t t = 0; t < std::min(block, length - k * block); ++t) keys[static_cast<std::size_t>(t)] = call_.key(request_, k, t);
    FlashMlaRows weights = tile_.scores(keys, false), factors = tile_.numbers(1);
    for (std::int64_t r = 0; r < tile_.rows(); ++r) {
      float* const row = weights.data() + r * block;
      if (number <= (causal ? 2 : 1))
        for (std::int32_t t = std::max(length - (causal ? call_.behind(rows_.first + r) : 0) - k * block, 0); t < block; ++t)
          row[t] = -infinity;
      factors[static_cast<std::size_t>(r)] = weigh(row, static_cast<std::size_t>(r), number == 1);
    }
    flash_mla_scale(outs_, factors);
    for (float& weight : weights) weight = std::min(weight, largest_e4m3);
    tile_.add_values(outs_, weights, keys, 0, mla_latent);
  }

  /// Scores of a row become weights. Returns what the row's sums are multiplied with.
  float weigh(float* row, std::size_t r, bool first) {
    const float before = largest_[r];
    float& top = largest_[r];
    top = first ? row[0] : flash_mla_max(top, row[0]);
    for (std::int32_t t = 1; t < block; ++t) top = flash_mla_max(top, row[t]);
    const float about = top == -infinity ? 0.0f : top, factor = first ? 0.0f : hw::ex2(hw::mul(hw::sub(before, about), slog_));
    const float offset = top == -infinity ? 0.0f : hw::mul(top, slog_);
    for (std::int32_t t = 0; t < block; ++t) row[t] = hw::ex2(hw::fma(row[t], slog_, -offset));
    for (std::size_t thread = 0; thread < 4; ++thread) {
      const float* const column = row + 2 * thread;
      float& sum = sums_[4 * r + thread];
      sum = first ? column[0] : hw::fma(sum, factor, column[0]);
      sum = hw::add(sum, column[1]);
      for (std::int32_t g = 8; g < block; g += 8) sum = hw::add(hw::add(sum, column[g]), column[g + 1]);
    }
    return factor;
  }

  const FlashMla& call_;
  std::int64_t request_;
  FlashMlaRun::Rows rows_;
  FlashMlaTile tile_;
  float slog_;
  FlashMlaRows largest_, sums_, outs_;
};

}  // namespace

void flash_mla_fp8_hopper(const FlashMla& call, const Exec& exec) {
  FlashMlaRun run{call.work, flash_mla_row_blocks(call), true, {}};
  run.tile = [&](std::int64_t request, const FlashMlaRun::Rows& rows, const FlashMlaRange& range, FlashMlaRow* results) {
    std::vector<const std::byte*> queries;
    for (std::int64_t r = rows.first; r < rows.first + rows.count; ++r) queries.push_back(call.query(request, r));
    Tile tile(call, request, rows, queries, exec.isa);
    tile.run(range);
    tile.finish(results);
  };
  run_flash_mla(run, call.out, call.lse, exec);
}

}  // namespace dodona::ops
