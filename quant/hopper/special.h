// The approximate functions of an H200 (ex2, lg2, rcp, rsqrt, sqrt, tanh), to the bit.
//
// The device looks up one quadratic per segment of the argument and evaluates it in fixed point:
//
//     v = c0 + c1*J + c2*S(J)      exact; J is the 17-bit position inside the segment
//
// where S(J) is J*J / 2^19 with the bit products below column 19 left out one by one (so S is not floor(J*J / 2^19)). The result is v,
// cut to a whole number of last places. Integer arithmetic only, so the bits are the same on every CPU.
//
// A plain name is the flushing form (`ex2.approx.ftz.f32` and so on: denormal arguments count as zero of their sign, denormal results
// become zero), which fast-math builds use; `_denormal` is the form without `.ftz`. `tanh.approx.f32` has one form for both.
// NaN arguments, and arguments outside the domain, give NaN; every NaN result is 0x7FFFFFFF.
// Inline functions are compiled for the caller's instruction set: do not call them from *.simd.cpp files.
//
// Source: PTX ISA `ex2.approx`, `lg2.approx`, `rcp.approx`, `rsqrt.approx`, `sqrt.approx`, `tanh.approx` as compute capability 9.0 does
// them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "quant/hopper/coefficients.h"

namespace dodona::quant::hopper {

inline float canonical_nan() {
  return std::bit_cast<float>(0x7FFFFFFFu);
}

namespace detail {

inline constexpr std::uint32_t sign_bit = 0x80000000u;
inline constexpr std::uint32_t mantissa_mask = 0x007FFFFFu;
inline constexpr std::uint32_t infinity_bits = 0x7F800000u;
inline constexpr std::uint32_t smallest_normal_bits = 0x00800000u;

/// The truncated square of a 17-bit number: of the bit products of j*j (b_i at weight 2^2i, b_i*b_k with i < k at 2^(i+k+1)) those of
/// weight 2^19 and above, over 2^19. Subtracts the others from j*j.
inline std::uint32_t truncated_square(std::uint32_t j) {
  std::uint32_t dropped = j & 0x200u ? 1u << 18 : 0;  // bit 9 meets none but itself below column 19
  for (unsigned i = 0; i < 9; ++i) {
    const std::uint32_t partners = j & ((1u << (18 - i)) - (2u << i));  // bits k with i < k and i + k + 1 < 19
    dropped += (j >> i & 1u) != 0 ? ((1u << i) + 2 * partners) << i : 0;
  }
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(j) * j - dropped) >> 19);
}

inline std::int64_t evaluate(const Quadratic& q, std::uint32_t j) {
  return q.c0 + static_cast<std::int64_t>(q.c1) * j + static_cast<std::int64_t>(q.c2) * truncated_square(j);
}

inline std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
inline float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline int exponent_of(std::uint32_t magnitude) {
  return static_cast<int>(magnitude >> 23) - 127;
}
inline float power_of_two(int exponent) {
  return float_of(static_cast<std::uint32_t>(exponent + 127) << 23);
}

/// Cut toward zero to 24 significant bits. `magnitude` >= 0.
inline float cut_to_float(std::int64_t magnitude) {
  const int extra = 40 - std::countl_zero(static_cast<std::uint64_t>(magnitude) | 1);
  return static_cast<float>(extra > 0 ? magnitude >> extra << extra : magnitude);
}

}  // namespace detail

/// 2^x.
inline float ex2(float x) {
  using namespace detail;
  const std::uint32_t bits = bits_of(x), magnitude = bits & ~sign_bit;
  if (magnitude > infinity_bits) return canonical_nan();
  const bool negative = bits != magnitude;
  if (magnitude >= 0x43000000u) return negative ? 0.0f : std::numeric_limits<float>::infinity();  // |x| >= 128
  const int exponent = exponent_of(magnitude);
  if (exponent < -23) return 1.0f;  // the fraction is cut to 23 bits
  const std::uint64_t significand = (magnitude & mantissa_mask) | smallest_normal_bits;
  const std::uint64_t fixed = exponent >= 0 ? significand << exponent : significand >> -exponent;
  int whole = static_cast<int>(fixed >> 23);
  std::uint32_t fraction = static_cast<std::uint32_t>(fixed) & mantissa_mask;
  if (negative) {  // a one's complement, except for whole numbers
    whole = fraction != 0 ? -whole - 1 : -whole;
    fraction = fraction != 0 ? mantissa_mask - fraction : 0;
  }
  if (whole < -126) return 0.0f;
  const std::int64_t significant = evaluate(ex2_segments[fraction >> 17], fraction & 0x1FFFFu) >> 18;
  return float_of((static_cast<std::uint32_t>(whole + 126) << 23) + static_cast<std::uint32_t>(significant));
}

/// log2(x). lg2(1/4) is -1.9999999: sums below zero are negated by one's complement.
inline float lg2(float x) {
  using namespace detail;
  const std::uint32_t bits = bits_of(x), magnitude = bits & ~sign_bit;
  if (magnitude > infinity_bits) return canonical_nan();
  if (magnitude < smallest_normal_bits) return -std::numeric_limits<float>::infinity();
  if (bits != magnitude) return canonical_nan();
  if (magnitude == infinity_bits) return std::numeric_limits<float>::infinity();
  if (bits == 0x3F800000u) return 0.0f;
  const std::uint32_t mantissa = bits & mantissa_mask;
  const std::int64_t fraction = evaluate(lg2_segments[mantissa >> 17], mantissa & 0x1FFFFu) >> 5;
  const std::int64_t sum = exponent_of(bits) * (std::int64_t{1} << 36) + fraction;
  return sum >= 0 ? cut_to_float(sum) * 0x1p-36f : cut_to_float(-sum - 1) * -0x1p-36f;
}

/// 1/x. Zero for |x| > 2^126, where the result would be denormal.
inline float rcp(float x) {
  using namespace detail;
  const std::uint32_t bits = bits_of(x), magnitude = bits & ~sign_bit, sign = bits & sign_bit;
  if (magnitude > infinity_bits) return canonical_nan();
  if (magnitude < smallest_normal_bits) return float_of(sign | infinity_bits);
  if (magnitude > 0x7E800000u) return float_of(sign);
  const std::uint32_t mantissa = bits & mantissa_mask, biased = magnitude >> 23;
  if (mantissa == 0) return float_of(sign | (254 - biased) << 23);
  const std::int64_t n = evaluate(rcp_segments[mantissa >> 16], 2 * (mantissa & 0xFFFFu)) >> 18;
  return float_of((sign | (253 - biased) << 23) + static_cast<std::uint32_t>(n));
}

/// 1/sqrt(x).
inline float rsqrt(float x) {
  using namespace detail;
  const std::uint32_t bits = bits_of(x), magnitude = bits & ~sign_bit;
  if (magnitude > infinity_bits) return canonical_nan();
  if (magnitude < smallest_normal_bits) return float_of((bits & sign_bit) | infinity_bits);
  if (bits != magnitude) return canonical_nan();
  if (magnitude == infinity_bits) return 0.0f;
  const std::uint32_t mantissa = bits & mantissa_mask;
  const int exponent = exponent_of(bits), half = exponent >> 1;
  const std::uint32_t odd = static_cast<std::uint32_t>(exponent & 1);
  if (mantissa == 0 && odd == 0) return power_of_two(-half);
  const std::int64_t n = evaluate(rsqrt_segments[64 * odd + (mantissa >> 17)], mantissa & 0x1FFFFu) >> 18;
  return float_of(bits_of(power_of_two(-1 - half)) + static_cast<std::uint32_t>(n));
}

/// sqrt(x): neither x * rsqrt(x) nor correctly rounded.
inline float sqrt(float x) {
  using namespace detail;
  const std::uint32_t bits = bits_of(x), magnitude = bits & ~sign_bit;
  if (magnitude > infinity_bits) return canonical_nan();
  if (magnitude < smallest_normal_bits) return float_of(bits & sign_bit);
  if (bits != magnitude) return canonical_nan();
  if (magnitude == infinity_bits) return x;
  const std::uint32_t mantissa = bits & mantissa_mask;
  const int exponent = exponent_of(bits), half = exponent >> 1;
  const std::uint32_t odd = static_cast<std::uint32_t>(exponent & 1);
  const std::int64_t n = evaluate(sqrt_segments[64 * odd + (mantissa >> 17)], mantissa & 0x1FFFFu) >> 18;
  return float_of(bits_of(power_of_two(half)) + static_cast<std::uint32_t>(n));
}

/// tanh(x). |x| < 2^-8 gives x itself, denormal or not; |x| >= 8 gives 1 with its sign.
inline float tanh(float x) {
  using namespace detail;
  struct Binade {
    std::uint8_t first_row, row_bits;
  };
  static constexpr Binade binades[11] = {{0, 0}, {1, 0}, {2, 0}, {3, 1}, {5, 1}, {7, 2}, {11, 2}, {15, 2}, {19, 3}, {27, 4}, {43, 3}};
  const std::uint32_t bits = bits_of(x), magnitude = bits & ~sign_bit, sign = bits & sign_bit;
  if (magnitude > infinity_bits) return canonical_nan();
  const int exponent = exponent_of(magnitude);
  if (exponent < -8) return x;
  if (exponent > 2) return float_of(sign | 0x3F800000u);
  const Binade binade = binades[exponent + 8];
  const std::uint32_t mantissa = bits & mantissa_mask;
  const std::uint32_t row = mantissa >> (23 - binade.row_bits), position = mantissa >> (6 - binade.row_bits) & 0x1FFFFu;
  const float value = cut_to_float(evaluate(tanh_segments[binade.first_row + row], position)) * 0x1p-42f;
  return float_of(sign | bits_of(value));
}

/// 2^x, denormal results kept.
inline float ex2_denormal(float x) {
  if (!(x < -126.0f)) return ex2(x);
  const float half = ex2(x * 0.5f);
  return half * half;
}

/// log2(x), denormal arguments taken at their value.
inline float lg2_denormal(float x) {
  if (!(x > 0.0f && x < 0x1p-126f)) return x < 0.0f ? canonical_nan() : lg2(x);
  return lg2(x * 0x1p24f) - 24.0f;
}

/// 1/x, denormal arguments and results kept.
inline float rcp_denormal(float x) {
  const std::uint32_t magnitude = detail::bits_of(x) & ~detail::sign_bit;
  if (magnitude < detail::smallest_normal_bits) return rcp(x * 0x1p24f) * 0x1p24f;
  if (magnitude > 0x7E800000u && magnitude < detail::infinity_bits) return rcp(x * 0.25f) * 0.25f;
  return rcp(x);
}

/// 1/sqrt(x), denormal arguments taken at their value.
inline float rsqrt_denormal(float x) {
  if (!(x > 0.0f && x < 0x1p-126f)) return x < 0.0f ? canonical_nan() : rsqrt(x);
  return rsqrt(x * 0x1p24f) * 0x1p12f;
}

/// sqrt(x), denormal arguments taken at their value.
inline float sqrt_denormal(float x) {
  if (!(x > 0.0f && x < 0x1p-126f)) return x < 0.0f ? canonical_nan() : sqrt(x);
  return sqrt(x * 0x1p24f) * 0x1p-12f;
}

}  // namespace dodona::quant::hopper
