// fp32 arithmetic as CUDA's fast-math builds compile it for an H200 (-use_fast_math): denormal operands and results are flushed to
// zero of their sign, division multiplies with the approximate reciprocal, and the transcendental functions are the hardware's.
//
// The flushing rule: round the exact value to 24 bits as if the exponent had no lower limit; below 2^-126 it becomes zero, even where
// rounding on the denormal grid would have given 2^-126. NaN results are 0x7FFFFFFF, as PTX has them.
// Inline functions are compiled for the caller's instruction set: do not call them from *.simd.cpp files.
//
// Source: CUDA Math API, "-use_fast_math"; PTX ISA, `mul.ftz.f32`, `add.ftz.f32`, `fma.rn.ftz.f32`, `div.approx.ftz.f32`.
#pragma once

#include <cmath>

#include "quant/hopper/special.h"

namespace dodona::quant::hopper {

/// Zero of x's sign if x is denormal.
inline float ftz(float x) {
  const std::uint32_t bits = detail::bits_of(x);
  return (bits & detail::infinity_bits) == 0 ? detail::float_of(bits & detail::sign_bit) : x;
}

namespace detail {

/// Halfway between 2^-126 and the 24-bit number below it; exact values from here on round up to 2^-126.
inline constexpr double flush_below = 0x1p-126 - 0x1p-151;

inline float flushed_result(float rounded) {
  return rounded != rounded ? canonical_nan() : ftz(rounded);
}
inline bool is_smallest_normal(float x) {
  return (bits_of(x) & ~sign_bit) == smallest_normal_bits;
}
inline float signed_zero(float x) {
  return float_of(bits_of(x) & sign_bit);
}

}  // namespace detail

inline float mul(float x, float y) {
  const float a = ftz(x), b = ftz(y), product = a * b;
  if (detail::is_smallest_normal(product) && std::fabs(static_cast<double>(a) * b) < detail::flush_below)
    return detail::signed_zero(product);
  return detail::flushed_result(product);
}

/// Sums in the denormal range are exact, so flushing the rounded sum is the rule.
inline float add(float x, float y) {
  return detail::flushed_result(ftz(x) + ftz(y));
}
inline float sub(float x, float y) {
  return add(x, -y);
}

/// x*y + z with one rounding.
inline float fma(float x, float y, float z) {
  const float a = ftz(x), b = ftz(y), c = ftz(z), result = std::fma(a, b, c);
  if (detail::is_smallest_normal(result)) {
    // Where the exact value lies against the bound: its rounding to double, then the sign of what that lost (two-sum).
    const double product = static_cast<double>(a) * b, addend = c, sum = product + addend;
    const double part = sum - product, lost = (product - (sum - part)) + (addend - part);
    const double magnitude = std::fabs(sum), lost_outward = sum < 0 ? -lost : lost;
    if (magnitude < detail::flush_below || (magnitude == detail::flush_below && lost_outward < 0)) return detail::signed_zero(result);
  }
  return detail::flushed_result(result);
}

/// x / y = x * rcp(y); zero where |y| > 2^126.
inline float div(float x, float y) {
  return mul(x, rcp(y));
}

inline constexpr float log2_e = 0x1.715476p+0f;   ///< 0x3FB8AA3B
inline constexpr float ln_2 = 0x1.62e430p-1f;     ///< 0x3F317218
inline constexpr float log10_2 = 0x1.344136p-2f;  ///< 0x3E9A209B

inline float expf(float x) {
  return ex2(mul(x, log2_e));
}
inline float exp2f(float x) {
  return ex2(x);
}
inline float logf(float x) {
  return mul(lg2(x), ln_2);
}
inline float log2f(float x) {
  return lg2(x);
}
inline float log10f(float x) {
  return mul(lg2(x), log10_2);
}
inline float tanhf(float x) {
  return tanh(x);
}
inline float rsqrtf(float x) {
  return rsqrt(x);
}
inline float sqrtf(float x) {
  return sqrt(x);
}
/// Two polynomials, in x*x below 1.00295 and in |x| above, where they give the logarithm of 1 - erf.
inline float erff(float x) {
  // Highest power first; fp32 bits, {small, large} arguments.
  static constexpr std::uint32_t coefficients[7][2] = {{0x38B1E96Au, 0x38EB4C3Au}, {0xBA574D20u, 0xBAAE005Bu}, {0x3BAAD5EAu, 0x3C09919Fu},
                                                       {0xBCDC1BE7u, 0xBD24D99Au}, {0x3DE718AFu, 0x3E235519u}, {0xBEC093ACu, 0x3F69B4F9u},
                                                       {0x3E0375D3u, 0x3F210A14u}};
  const float magnitude = std::fabs(x);
  const bool large = magnitude >= detail::float_of(0x3F8060FEu);
  const float argument = large ? magnitude : mul(x, x), factor = large ? -magnitude : x;
  float sum = detail::float_of(coefficients[0][large]);
  for (int i = 1; i < 7; ++i) sum = fma(sum, argument, detail::float_of(coefficients[i][large]));
  const float result = fma(sum, factor, factor);
  return large ? std::copysign(sub(1.0f, ex2(result)), x) : result;
}
/// 1 / (1 + exp(-x)).
inline float sigmoid(float x) {
  return rcp(add(1.0f, expf(-x)));
}

/// `__expf` of a build that keeps denormals.
inline float expf_denormal(float x) {
  return x != x ? canonical_nan() : ex2_denormal(x * log2_e);
}

}  // namespace dodona::quant::hopper
