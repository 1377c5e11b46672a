#include "ops/rows/norms/root_mean_square.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "quant/element.h"
#include "quant/hopper/block_sum.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

namespace hw = quant::hopper;

/// sum + the squares of a vector.
float by_chain(float sum, std::span<const float> vector) {
  for (const float x : vector) sum = hw::fma(x, x, sum);
  return sum;
}
/// Of pairs, before their sum is added.
float by_pairs(float sum, std::span<const float> vector) {
  float squares = 0.0f;
  for (std::size_t i = 0; i < vector.size(); i += 2)
    squares = hw::add(squares, hw::fma(vector[i], vector[i], hw::mul(vector[i + 1], vector[i + 1])));
  return hw::add(sum, squares);
}

std::int64_t power_of_two_from(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
}

hw::BlockLayout layout_of(RmsKernel kernel, std::int64_t n, int element_bytes) {
  if (kernel == RmsKernel::triton) {
    // A thread has as many contiguous elements as 16 bytes hold, of a block that is padded to a power of two.
    const std::int64_t block = power_of_two_from(n), warps = std::clamp<std::int64_t>(power_of_two_from((n + 255) / 256), 4, 32);
    const std::int64_t vector = std::clamp<std::int64_t>(block / (32 * warps), 1, 16 / element_bytes);
    return {vector, 32 * warps, by_chain, hw::butterfly, hw::butterfly_of_warps};
  }
  if (kernel == RmsKernel::vllm) return {1, std::min<std::int64_t>(1024, n), by_chain, hw::neighbours, hw::in_order};
  if (kernel == RmsKernel::vllm_vectors || kernel == RmsKernel::vllm_vectors_256)
    return {8, std::min<std::int64_t>(kernel == RmsKernel::vllm_vectors ? 1024 : 256, n), by_pairs, hw::neighbours, hw::in_order};
  const std::int64_t vector = std::gcd<std::int64_t, std::int64_t>(16 / element_bytes, n);
  const std::int64_t most = kernel == RmsKernel::flashinfer_heads ? 32 : 1024;
  return {vector, (std::min(most, n / vector) + 31) / 32 * 32, by_chain, hw::butterfly, hw::butterfly_of_warps};
}

/// Of a build without fast math.
bool is_vllm(RmsKernel kernel) {
  return kernel == RmsKernel::vllm || kernel == RmsKernel::vllm_vectors || kernel == RmsKernel::vllm_vectors_256;
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

namespace {

double squares(std::span<const double> x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return sum;
}
std::int64_t count(std::span<const double> x) {
  return static_cast<std::int64_t>(x.size());
}

}  // namespace

RmsFactor rms_factor_of(std::span<const double> x, double eps) {
  return rms_factor(squares(x), count(x), eps);
}

RmsFactor rms_factor_of_padded_row(std::span<const double> x, double eps) {
  return rms_factor(squares(x), power_of_two_from(count(x)), eps);
}

RmsFactor rms_factor_eps_outside(std::span<const double> x, double eps) {
  const double sum = squares(x), root = std::sqrt(sum / static_cast<double>(x.size()));
  return {1.0 / (root + static_cast<float>(eps)), rms_factor(sum, count(x), eps).relative};
}

RmsFactor rms_factor_in_bf16(std::span<const double> x, double eps) {
  const RmsFactor right = rms_factor_of(x, eps);
  return {quant::round_to(DType::bf16, right.value), right.relative};
}

namespace {

RmsFactor rms_factor_of_squares_in(DType type, std::span<const double> x, double eps) {
  double sum = 0;
  for (const double value : x) sum = quant::round_to(type, sum + quant::round_to(type, value * value));
  return rms_factor(sum, count(x), eps);
}

}  // namespace

RmsFactor rms_factor_of_squares_in_bf16(std::span<const double> x, double eps) {
  return rms_factor_of_squares_in(DType::bf16, x, eps);
}

RmsFactor rms_factor_of_squares_in_f16(std::span<const double> x, double eps) {
  return rms_factor_of_squares_in(DType::f16, x, eps);
}

RmsFactor rms_factor_without_tail(std::span<const double> x, double eps) {
  return rms_factor(squares(x.first(x.size() / 128 * 128)), count(x), eps);
}

void golden_rms_row(const GoldenOutput& out, DType type, std::int64_t first, std::span<const double> x, std::span<const double> lost,
                    std::span<const double> weight, double eps, bool weight_rounded, RmsFactorOf factor_of) {
  const RmsFactor factor = factor_of(x, eps);
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
    // A weight of -0, or one that is flushed to it, is +0 to kernels that add it to a bias of zero.
    if (std::signbit(weight[h]) && (weight[h] == 0 || may_flush(weight[h]))) y.slack = std::fmax(y.slack, flush_floor);
    out.put(linear, y);
  }
}

void bias_in_f32(DType /*type*/, std::span<double> weight, double bias) {
  for (double& value : weight) value = static_cast<float>(value + bias);
}

void bias_left_out(DType /*type*/, std::span<double> /*weight*/, double /*bias*/) {}

void bias_in_type(DType type, std::span<double> weight, double bias) {
  for (double& value : weight) value = quant::round_to(type, value + bias);
}

void hopper_rms_row(RmsKernel kernel, std::span<float> x, std::span<const float> weight, DType type, double eps, double weight_bias,
                    std::int64_t blocks) {
  const auto n = static_cast<float>(x.size()), e = static_cast<float>(eps);
  const std::size_t part = x.size() / static_cast<std::size_t>(blocks);
  const hw::BlockLayout layout = layout_of(kernel, static_cast<std::int64_t>(part), bits(type) / 8);
  float sum = hw::block_sum(x.first(part), layout);
  for (std::size_t begin = part; begin < x.size(); begin += part) sum = hw::add(sum, hw::block_sum(x.subspan(begin, part), layout));
  if (is_vllm(kernel)) {
    const float factor = hw::rsqrt(sum / n + e);
    for (std::size_t h = 0; h < x.size(); ++h) x[h] = static_cast<float>(quant::round_to(type, x[h] * factor)) * weight[h];
  } else if (kernel == RmsKernel::triton) {
    const float root = hw::sqrt(hw::fma(sum, hw::rcp(n), e));
    for (std::size_t h = 0; h < x.size(); ++h) x[h] = hw::div(x[h], root) * weight[h];
  } else {
    const float factor = hw::rsqrt(hw::fma(sum, hw::rcp(n), e));
    const float bias = kernel == RmsKernel::flashinfer_unbiased ? -0.0f : static_cast<float>(weight_bias);
    for (std::size_t h = 0; h < x.size(); ++h) x[h] = hw::mul(hw::mul(x[h], factor), hw::add(bias, weight[h]));
  }
}

}  // namespace dodona::ops
