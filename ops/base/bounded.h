// A number of golden mode with what its contract leaves open, and the arithmetic of such numbers.
#pragma once

#include <cmath>

#include "dodona/dtype.h"
#include "quant/element.h"

namespace dodona::ops {

/// Builds with fast math flush fp32 denormals: no honest implementation can be held to anything smaller.
inline constexpr double flush_floor = 0x1p-126;

/// Whether such a build may have zero in the place of x.
inline bool may_flush(double x) {
  return x != 0 && std::fabs(x) < 2 * flush_floor;
}

/// fp32 unit roundoff 2^-24: the largest relative error of one rounding to fp32.
inline constexpr double f32_eps = 0x1p-24;

/// The distance from `rounded` = round(value) to the farthest number that something within `error` of `value` rounds to: what an inner
/// rounding leaves open. 0 unless value lies within `error` of the boundary between two numbers of the type.
inline double rounding_reach(DType type, double value, double error, double rounded) {
  return std::fmax(quant::round_to(type, value + error) - rounded, rounded - quant::round_to(type, value - error));
}

struct Bounded {
  double exact = 0;
  double slack = 0;   ///< an honest implementation has a number within this of `exact`; 0: the contract leaves nothing open
  bool open = false;  ///< honest implementations differ in kind (NaN against infinity, say): nothing is compared

  /// Whether an honest implementation may have zero where `exact` is another number.
  bool may_vanish() const { return exact != 0 && reaches_zero(); }
  /// Whether honest implementations may have zero, or numbers of either sign.
  bool reaches_zero() const { return slack > 0 && std::fabs(exact) <= slack; }
  Bounded widened(double more) const { return {exact, slack + more, open}; }
};

inline Bounded operator+(const Bounded& a, const Bounded& b) {
  return {a.exact + b.exact, a.slack + b.slack, a.open || b.open};
}

/// Times a number that all implementations have; the product is not rounded. Infinity times what may vanish is infinity or NaN.
inline Bounded operator*(const Bounded& x, double factor) {
  return {x.exact * factor, x.slack * std::fabs(factor), x.open || (std::isinf(factor) && x.may_vanish())};
}

inline Bounded operator*(const Bounded& a, const Bounded& b) {
  const bool lost = (std::isinf(a.exact) && b.may_vanish()) || (std::isinf(b.exact) && a.may_vanish());
  return {a.exact * b.exact, std::fabs(a.exact) * b.slack + std::fabs(b.exact) * a.slack + a.slack * b.slack, a.open || b.open || lost};
}

/// One fp32 rounding of the number.
inline Bounded rounded_f32(const Bounded& x) {
  return x.widened(std::fabs(x.exact) * f32_eps);
}

/// The number that all implementations round to the type; where x lies beside a boundary, what its slack makes of that.
inline Bounded rounded_to(DType type, const Bounded& x) {
  const double rounded = quant::round_to(type, x.exact);
  return {rounded, x.slack > 0 ? rounding_reach(type, x.exact, x.slack, rounded) : 0.0, x.open};
}

/// fl32(x * factor), x a sum of either sign: the accumulator's slack, and a rounding of the product, all of it where builds that flush
/// denormals may have lost a factor of it. Zero times what may vanish is a zero of either sign, and nothing else.
inline Bounded scaled_f32(const Bounded& x, double factor, bool factor_may_flush) {
  Bounded product = x * factor;
  const bool nothing = factor == 0 && x.reaches_zero();
  product.open = product.open || (std::isinf(factor) && x.reaches_zero()) || (nothing && !std::isfinite(x.slack));
  if (nothing && !product.open) product = product.widened(0x1p-149);
  return product.widened(std::fabs(product.exact) * (factor_may_flush ? 1.0 : f32_eps));
}

}  // namespace dodona::ops
