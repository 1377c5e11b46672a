// One step of a tensor core by its definition (unit.h): readable, and what everything faster is held against.
#pragma once

#include <cstdint>
#include <span>

#include "quant/tensor_core/decode.h"

namespace dodona::quant::tensor_core {

/// A ue8m0 scale of 1.
inline constexpr std::uint8_t ue8m0_one = 127;

/// One step, for any number of products up to 32. The scales, codes of ue8m0, are those of all factors of `a` and of `b`.
float mma_step(const MmaSpec& spec, std::span<const Factor> a, std::span<const Factor> b, float accumulator,
               std::uint8_t a_scale = ue8m0_one, std::uint8_t b_scale = ue8m0_one);

/// An operand of a step of e2m1: `spec.products` numbers, and a scale code for every `spec.scale_block` of them.
struct Fp4Factors {
  std::span<const std::int8_t> doubled;  ///< twice each number, a small integer
  std::span<const std::uint8_t> scales;
};

/// One step of e2m1.
float fp4_step(const Fp4Spec& spec, const Fp4Factors& a, const Fp4Factors& b, float accumulator);

}  // namespace dodona::quant::tensor_core
