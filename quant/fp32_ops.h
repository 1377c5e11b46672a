// The three fp32 operations in which builds of one quantizer differ. A recipe carries a set of them, so that what a particular machine
// computes can be plugged in without the recipe knowing that machine (`quant/hopper` has functions of these shapes).
// Recipes call through pointers: they define results and make weights, and are not for the inner loops of vector code.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace dodona::quant {

struct Fp32Ops {
  float (*reciprocal)(float);
  float (*divide)(float, float);
  float (*multiply)(float, float);
};

/// fl32(1/x).
inline float reciprocal_ieee(float x) {
  return 1.0f / x;
}
inline float divide_ieee(float x, float y) {
  return x / y;
}
inline float multiply_ieee(float x, float y) {
  return x * y;
}
/// fl32(x * fl32(1/y)): what approximate division amounts to where the reciprocal is correctly rounded.
inline float divide_by_reciprocal(float x, float y) {
  return x * (1.0f / y);
}
/// fl32(1/x) with denormal arguments counted as zero and denormal results made zero, sign kept.
/// Source: PTX `rcp.approx.ftz.f32`, but correctly rounded (the instruction is within one unit in the last place).
inline float reciprocal_ftz(float x) {
  constexpr std::uint32_t sign_bit = 0x80000000u, exponent_bits = 0x7F800000u;
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  const float y = 1.0f / ((u & exponent_bits) == 0 ? std::bit_cast<float>(u & sign_bit) : x);
  const std::uint32_t v = std::bit_cast<std::uint32_t>(y);
  return (v & exponent_bits) == 0 ? std::bit_cast<float>(v & sign_bit) : y;
}

/// Correctly rounded throughout: builds without fast math.
inline constexpr Fp32Ops ieee_ops{reciprocal_ieee, divide_ieee, multiply_ieee};
/// Division by way of the reciprocal: Triton, and fast-math builds up to the last bit of the reciprocal.
inline constexpr Fp32Ops reciprocal_division_ops{reciprocal_ieee, divide_by_reciprocal, multiply_ieee};
/// Correctly rounded, with the flushing reciprocal that the FP4 quantizers call by name in every build.
inline constexpr Fp32Ops flushing_reciprocal_ops{reciprocal_ftz, divide_ieee, multiply_ieee};

}  // namespace dodona::quant
