#include "ops/softmax/flash_mla/pairs.h"

#include "ops/softmax/layouts/mla_decode.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;

constexpr std::int64_t block = flash_mla_block, half = mla_latent / 2;

}  // namespace

FlashMlaPairs::FlashMlaPairs(const FlashMlaTile& tile, const FlashMlaBlocks& blocks)
    : tile_(tile),
      blocks_(blocks),
      largest_(tile.numbers(1, -1e30f)),
      left_(tile.numbers(half)),
      right_(tile.numbers(half)),
      left_sums_(tile.numbers(4)),
      right_sums_(tile.numbers(4)) {
  for (std::int32_t k = blocks.range.begin; k < blocks.range.end; k += 2) pair(k);
}

float FlashMlaPairs::sum(std::int64_t row) const {
  return hw::add(flash_mla_quad(left_sums_, row), flash_mla_quad(right_sums_, row));
}

void FlashMlaPairs::scaled(std::int64_t row, float factor, float* out) const {
  for (std::int64_t d = 0; d < half; ++d) {
    out[d] = hw::mul(left_[static_cast<std::size_t>(row * half + d)], factor);
    out[half + d] = hw::mul(right_[static_cast<std::size_t>(row * half + d)], factor);
  }
}

FlashMlaRows FlashMlaPairs::scores(std::int32_t k, bool second) const {
  FlashMlaRows s = tile_.scores(blocks_.keys(k), second);
  blocks_.mask(k, s);
  return s;
}

/// Each of a row's four sums times its factor, and with one rounding the weights of its columns added, two after two.
void FlashMlaPairs::add_sums(FlashMlaRows& sums, const FlashMlaRows& factors, const FlashMlaRows& weights) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    float sum = 0;
    const float* const row = weights.data() + i / 4 * static_cast<std::size_t>(block) + i % 4 * 2;
    for (std::int64_t g = 0; g < block && !weights.empty(); g += 8) sum = hw::add(sum, hw::add(row[g], row[g + 1]));
    sums[i] = hw::fma(sums[i], factors[i / 4], sum);
  }
}

void FlashMlaPairs::pair(std::int32_t k) {
  const bool two = k + 1 < blocks_.range.end;
  const FlashMlaRows before = largest_;
  FlashMlaRows second, second_factors = tile_.numbers(1, 1.0f), both = tile_.numbers(1);
  FlashMlaRows first = scores(k, false);
  const FlashMlaRows first_factors = flash_mla_weigh(first, largest_, blocks_.slog, blocks_.masked);
  const FlashMlaKeys first_values = blocks_.values(k);
  flash_mla_scale(left_, first_factors);
  add_sums(left_sums_, first_factors, first);
  tile_.add_values(left_, first, first_values, 0, half);
  if (two) {
    second = scores(k + 1, true);
    second_factors = flash_mla_weigh(second, largest_, blocks_.slog, blocks_.masked);
  }
  for (std::size_t r = 0; r < both.size(); ++r)
    both[r] = blocks_.factors_multiplied ? hw::mul(second_factors[r], first_factors[r]) : hw::ex2(hw::sub(before[r], largest_[r]));
  flash_mla_scale(right_, both);
  add_sums(right_sums_, both, second);
  if (two) tile_.add_values(right_, second, blocks_.values(k + 1), half, half);
  FlashMlaRows rescaled = first;
  flash_mla_scale(rescaled, second_factors);
  tile_.add_values(right_, rescaled, first_values, half, half);
  if (!two) return;
  flash_mla_scale(left_, second_factors);
  flash_mla_scale(left_sums_, second_factors);
  tile_.add_values(left_, second, blocks_.values(k + 1), 0, half);
}

}  // namespace dodona::ops
