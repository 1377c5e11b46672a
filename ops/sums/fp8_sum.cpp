#include "ops/sums/fp8_sum.h"

#include <algorithm>
#include <cmath>

#include "ops/base/golden_output.h"
#include "quant/hopper/tensor_core.h"

namespace dodona::ops {
namespace {

constexpr std::size_t step = 32;  // products of one instruction step

Fp8Factors make_factors(DType type) {
  Fp8Factors factors;
  for (std::uint32_t code = 0; code < factors.size(); ++code) {
    const quant::hopper::Factor factor = quant::hopper::decode_factor(quant::hopper::fp8_wgmma, type, code);
    factors[code] = {factor.value, factor.exponent};
  }
  return factors;
}

/// What is left of |x| below the grid of `unit`, a power of two.
double cut(double x, double unit) {
  const double magnitude = std::fabs(x);
  return magnitude - std::floor(magnitude / unit) * unit;
}

int exponent_of(double magnitude) {
  return magnitude > 0 ? std::ilogb(magnitude) : -1000;
}

/// Bound of what the fp8 tensor core loses on an ascending sum whose partial sums at whole steps stay within `largest` in magnitude.
///
/// At each step every product is cut toward zero to a multiple of u = 2^(e-13), e the largest exponent among the step's products and
/// the accumulator. So a product loses exactly |p| mod u. A larger u loses no less, so e is taken for an accumulator of magnitude
/// `largest` plus what may have been lost so far. Losses of positive products lower the sum and those of negative ones raise it.
/// The accumulator has no more than 13 bits below its exponent, and none below 13 bits under the last step's products: only larger
/// products make it lose some. The new sum is cut where it outgrows the exponents of all addends.
double hopper_loss(std::span<const Fp8Factor> a, std::span<const Fp8Factor> b, double largest) {
  double lost_positive = 0, lost_negative = 0, lost_sums = 0, sum = 0;
  const auto lost = [&] { return std::max(lost_positive, lost_negative) + lost_sums; };
  int last_exponent = 1000;  // the first accumulator is zero
  for (std::size_t begin = 0; begin < a.size(); begin += step) {
    const std::size_t end = std::min(begin + step, a.size());
    int products_exponent = -1000;
    for (std::size_t k = begin; k < end; ++k)
      if (a[k].value != 0 && b[k].value != 0) products_exponent = std::max(products_exponent, a[k].exponent + b[k].exponent);
    if (products_exponent == -1000) continue;
    const int least_exponent = std::max(products_exponent, exponent_of(std::fabs(sum) - lost()));
    const double unit = std::ldexp(1.0, std::max(products_exponent, exponent_of(largest + lost())) - 13);
    if (products_exponent > last_exponent) lost_sums += std::ldexp(1.0, products_exponent - 13);
    for (std::size_t k = begin; k < end; ++k) {
      const double product = a[k].value * b[k].value;
      (product > 0 ? lost_positive : lost_negative) += cut(product, unit);
      sum += product;
    }
    const int sum_exponent = exponent_of(std::fabs(sum) + lost());
    if (sum_exponent > least_exponent) lost_sums += std::ldexp(1.0, sum_exponent - 13);
    last_exponent = products_exponent;
  }
  return lost();
}

}  // namespace

const Fp8Factors& fp8_factors(DType type) {
  static const Fp8Factors e4m3 = make_factors(DType::f8_e4m3), e5m2 = make_factors(DType::f8_e5m2);
  return type == DType::f8_e4m3 ? e4m3 : e5m2;
}

double fp8_dot(std::span<const Fp8Factor> a, std::span<const Fp8Factor> b) {
  double sum = 0;
  for (std::size_t k = 0; k < a.size(); ++k) sum += a[k].value * b[k].value;
  return sum;
}

Fp8Sum fp8_sum(Accumulator accumulator, std::span<const Fp8Factor> a, std::span<const Fp8Factor> b) {
  double sum = 0, positive = 0, negative = 0, largest = 0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    const double product = a[k].value * b[k].value;
    sum += product;
    (product > 0 ? positive : negative) += std::fabs(product);
    if (k % step == step - 1 || k + 1 == a.size()) largest = std::max(largest, std::fabs(sum));
  }
  if (!std::isfinite(sum)) return {sum, 0.0};
  // One rounding of 2^-24 for every addition. No partial sum exceeds the sum of all positive products, or of all negative ones.
  const double additions = static_cast<double>(a.size()) * f32_eps * std::max(positive, negative);
  return {sum, accumulator == Accumulator::fp32 ? additions : std::max(additions, hopper_loss(a, b, largest))};
}

}  // namespace dodona::ops
