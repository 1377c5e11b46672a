#include "quant/tensor_core/step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dodona/error.h"
#include "quant/hopper/special.h"

namespace dodona::quant::tensor_core {

float mma_step(const MmaSpec& spec, std::span<const Factor> a, std::span<const Factor> b, float accumulator) {
  if (a.size() != b.size() || a.size() > 32)
    throw Error(ErrorCode::bad_value, "tensor core", "", "expected equally many factors, at most 32, on either side");
  constexpr int smallest_normal = -126;                             // exponent of fp32's smallest normal, and of its denormals
  double unusual = std::isfinite(accumulator) ? 0.0 : accumulator;  // what fp arithmetic makes of the infinities and NaN
  int largest = spec.lowest_exponent;
  if (accumulator != 0 && std::isfinite(accumulator)) largest = std::max({largest, smallest_normal, std::ilogb(accumulator)});
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double product = static_cast<double>(a[i].value) * b[i].value;
    if (!std::isfinite(product)) unusual += product;
    if (a[i].value != 0 && b[i].value != 0) largest = std::max(largest, a[i].exponent + b[i].exponent);
  }
  if (std::isnan(unusual)) return hopper::canonical_nan();
  if (std::isinf(unusual)) return static_cast<float>(unusual);

  const int unit = largest - spec.addend_bits;  // addends count in 2^unit
  double sum = std::trunc(std::ldexp(static_cast<double>(accumulator), -unit));
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::trunc(std::ldexp(static_cast<double>(a[i].value) * b[i].value, -unit));
  if (sum == 0) return 0.0f;
  constexpr int denormal_unit = -149;
  const int last_bit = std::max(std::ilogb(sum) + unit - spec.sum_bits, denormal_unit);  // the sum is cut to multiples of 2^last_bit
  const double cut = std::ldexp(std::trunc(std::ldexp(sum, unit - last_bit)), last_bit);
  const float infinity = std::numeric_limits<float>::infinity();
  if (std::fabs(cut) >= 0x1p128) return cut > 0 ? infinity : -infinity;
  return cut == 0 ? 0.0f : static_cast<float>(cut);
}

}  // namespace dodona::quant::tensor_core
