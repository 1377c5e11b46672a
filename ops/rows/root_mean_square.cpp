#include "ops/rows/root_mean_square.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "quant/element.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

float hopper_sum_of_squares(std::span<const float> x, int element_bytes) {
  namespace hw = quant::hopper;
  const auto n = static_cast<std::int64_t>(x.size());
  const std::int64_t vec = std::gcd<std::int64_t, std::int64_t>(16 / element_bytes, n);
  const std::int64_t block = std::min<std::int64_t>(1024, n / vec);
  const std::int64_t warps = (block + 31) / 32, threads = warps * 32;
  const auto butterfly = [](std::array<float, 32>& lanes) {
    for (std::size_t step = 16; step > 0; step /= 2) {
      const std::array<float, 32> before = lanes;
      for (std::size_t lane = 0; lane < 32; ++lane) lanes[lane] = hw::add(before[lane], before[lane ^ step]);
    }
    return lanes[0];
  };
  std::array<float, 32> warp_sums{};
  for (std::int64_t warp = 0; warp < warps; ++warp) {
    std::array<float, 32> lanes{};
    for (std::int64_t lane = 0; lane < 32; ++lane) {
      float sum = 0.0f;
      for (std::int64_t vector = warp * 32 + lane; vector * vec < n; vector += threads)
        for (const float value : x.subspan(static_cast<std::size_t>(vector * vec), static_cast<std::size_t>(vec)))
          sum = hw::fma(value, value, sum);
      lanes[static_cast<std::size_t>(lane)] = sum;
    }
    warp_sums[static_cast<std::size_t>(warp)] = butterfly(lanes);
  }
  return butterfly(warp_sums);
}

}  // namespace

RmsFactor rms_factor(double sum, std::int64_t n, double eps) {
  const double chain = std::max(64.0, static_cast<double>(n) / 128.0);
  const double sum_units = chain + std::ceil(std::log2(static_cast<double>(std::max<std::int64_t>(n, 2))));
  const double largest = std::numeric_limits<float>::max();
  if (sum > largest * (1.0 + sum_units * f32_eps)) return {0.0, 0.0};
  const double narrow_eps = static_cast<float>(eps), argument = sum / static_cast<double>(n) + narrow_eps;
  const double factor = 1.0 / std::sqrt(argument);
  if (sum > largest * (1.0 - sum_units * f32_eps)) return {factor, 1.0};

  const double flushed = (2 * flush_floor + (narrow_eps < flush_floor ? narrow_eps : 0.0)) / argument;
  if (flushed > 0.25) return {factor, infinity};
  return {factor, (0.5 * (sum_units + 5.0) + 6.0) * f32_eps + flushed};
}

RmsFactor rms_factor_of_padded_row(double sum, std::int64_t n, double eps) {
  return rms_factor(sum, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n))), eps);
}

RmsFactor rms_factor_eps_outside(double sum, std::int64_t n, double eps) {
  const double root = std::sqrt(sum / static_cast<double>(n));
  return {1.0 / (root + static_cast<float>(eps)), rms_factor(sum, n, eps).relative};
}

void golden_rms_row(const GoldenOutput& out, DType type, std::int64_t first, std::span<const double> x, std::span<const double> lost,
                    std::span<const double> weight, double eps, bool weight_rounded, RmsFactorOf factor_of) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  const RmsFactor factor = factor_of(sum, static_cast<std::int64_t>(x.size()), eps);
  for (std::size_t h = 0; h < x.size(); ++h) {
    const std::int64_t linear = first + static_cast<std::int64_t>(h);
    Bounded normalised{x[h] * factor.value};
    if (std::isinf(factor.relative) && !std::isnan(normalised.exact)) {
      out.put(linear, {normalised.exact * weight[h], 0.0, true});
      continue;
    }
    normalised.slack = std::fabs(normalised.exact) * factor.relative;
    if (may_flush(x[h]) || may_flush(normalised.exact)) normalised = normalised.widened(std::fabs(normalised.exact));
    if (!lost.empty()) normalised = normalised.widened(factor.value * lost[h]);
    if (weight_rounded) normalised = rounded_to(type, normalised);
    Bounded y = normalised * weight[h];
    if (may_flush(y.exact) || may_flush(weight[h])) y = y.widened(std::fabs(y.exact));
    // A flushed term may also turn the sign of a sum that is zero without it.
    if (!lost.empty() && lost[h] > 0) y.slack = std::fmax(y.slack, flush_floor);
    out.put(linear, y);
  }
}

void hopper_rms_row(std::span<float> x, std::span<const float> weight, int element_bytes, double eps) {
  namespace hw = quant::hopper;
  const float sum = hopper_sum_of_squares(x, element_bytes);
  const float factor = hw::rsqrt(hw::fma(sum, hw::rcp(static_cast<float>(x.size())), static_cast<float>(eps)));
  for (std::size_t h = 0; h < x.size(); ++h) x[h] = hw::mul(hw::mul(x[h], factor), weight[h]);
}

}  // namespace dodona::ops
