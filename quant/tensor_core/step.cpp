#include "quant/tensor_core/step.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "dodona/error.h"
#include "quant/hopper/special.h"

namespace dodona::quant::tensor_core {
namespace {

constexpr int smallest_normal = -126;  // exponent of fp32's smallest normal, and of its denormals
constexpr int denormal_unit = -149;

double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

/// Of an accumulator that is finite and not zero.
int exponent_of(float accumulator) {
  return std::max(smallest_normal, std::ilogb(accumulator));
}

/// Toward zero: below 2^47 in magnitude for whatever lies in a window.
std::int64_t cut(double addend) {
  return static_cast<std::int64_t>(addend);
}

/// What a unit returns for an exact sum of cut addends, in units of 2^unit.
float cut_sum(std::int64_t sum, int unit, int sum_bits) {
  if (sum == 0) return 0.0f;
  const auto magnitude = static_cast<std::uint64_t>(std::llabs(sum));
  const int exponent = 63 - std::countl_zero(magnitude) + unit;
  const int last_bit = std::max(exponent - sum_bits, denormal_unit);  // the sum is cut to multiples of 2^last_bit
  const int dropped = last_bit - unit;
  if (dropped >= 64) return 0.0f;
  const std::uint64_t kept = dropped > 0 ? magnitude >> dropped << dropped : magnitude;
  if (kept == 0) return 0.0f;
  const double value = static_cast<double>(kept) * power_of_two(unit);
  const float result = value >= 0x1p128 ? std::numeric_limits<float>::infinity() : static_cast<float>(value);
  return sum > 0 ? result : -result;
}

}  // namespace

float mma_step(const MmaSpec& spec, std::span<const Factor> a, std::span<const Factor> b, float accumulator, std::uint8_t a_scale,
               std::uint8_t b_scale) {
  if (a.size() != b.size() || a.size() > 32)
    throw Error(ErrorCode::bad_value, "tensor core", "", "expected equally many factors, at most 32, on either side");
  const ScaleFactor left = decode_scale(DType::f8_e8m0, a_scale), right = decode_scale(DType::f8_e8m0, b_scale);
  if (left.nan || right.nan) return hopper::canonical_nan();
  const int scale = left.exponent + right.exponent;

  double unusual = std::isfinite(accumulator) ? 0.0 : accumulator;  // what fp arithmetic makes of the infinities and NaN
  int largest = spec.lowest_exponent;
  if (accumulator != 0 && std::isfinite(accumulator)) largest = std::max(largest, exponent_of(accumulator));
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double product = static_cast<double>(a[i].value) * b[i].value;
    if (!std::isfinite(product)) unusual += product;
    if (a[i].value != 0 && b[i].value != 0) largest = std::max(largest, a[i].exponent + b[i].exponent + scale);
  }
  if (std::isnan(unusual)) return hopper::canonical_nan();
  if (std::isinf(unusual)) return static_cast<float>(unusual);

  const int unit = largest - spec.addend_bits;  // addends count in 2^unit
  std::int64_t sum = cut(accumulator * power_of_two(-unit));
  const double per_unit = power_of_two(scale - unit);
  for (std::size_t i = 0; i < a.size(); ++i) sum += cut(static_cast<double>(a[i].value) * b[i].value * per_unit);
  return cut_sum(sum, unit, spec.sum_bits);
}

float fp4_step(const Fp4Spec& spec, const Fp4Factors& a, const Fp4Factors& b, float accumulator) {
  const std::size_t products = static_cast<std::size_t>(spec.products), group = static_cast<std::size_t>(spec.group);
  const std::size_t block = static_cast<std::size_t>(spec.scale_block), scales = products / block;
  if (a.doubled.size() != products || b.doubled.size() != products || a.scales.size() != scales || b.scales.size() != scales)
    throw Error(ErrorCode::bad_value, "tensor core", "",
                "expected " + std::to_string(products) + " numbers and " + std::to_string(scales) + " scales on either side");
  struct Addend {
    double value;
    int exponent;
  };
  std::array<Addend, 8> addends{};
  std::size_t count = 0;
  int largest = spec.lowest_exponent;
  for (std::size_t begin = 0; begin < products; begin += group) {
    const ScaleFactor left = decode_scale(spec.scale, a.scales[begin / block]), right = decode_scale(spec.scale, b.scales[begin / block]);
    if (left.nan || right.nan) return hopper::canonical_nan();
    int sum = 0;
    bool some = false;
    for (std::size_t k = begin; k < begin + group; ++k) {
      const int product = a.doubled[k] * b.doubled[k];
      sum += product;
      some = some || product != 0;
    }
    const double significand = static_cast<double>(left.significand) * right.significand;
    if (!some || significand == 0) continue;
    const int exponent = left.exponent + right.exponent;
    largest = std::max(largest, exponent);
    addends[count++] = {sum * 0.25 * significand, exponent};
  }
  if (!std::isfinite(accumulator)) return std::isnan(accumulator) ? hopper::canonical_nan() : accumulator;
  if (accumulator != 0) largest = std::max(largest, exponent_of(accumulator));

  const int unit = largest - spec.addend_bits;
  std::int64_t sum = cut(accumulator * power_of_two(-unit));
  for (std::size_t i = 0; i < count; ++i) sum += cut(addends[i].value * power_of_two(addends[i].exponent - unit));
  return cut_sum(sum, unit, spec.sum_bits);
}

}  // namespace dodona::quant::tensor_core
