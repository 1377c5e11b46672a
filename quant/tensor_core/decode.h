// What a tensor core reads: codes as values and exponents, in the order in which the unit takes them.
#pragma once

#include <cstdint>
#include <vector>

#include "quant/tensor_core/unit.h"

namespace dodona::quant::tensor_core {

/// One operand element as the tensor core sees it.
struct Factor {
  float value;
  int exponent;  ///< of the type's representation; means nothing for zeros, infinities and NaN
};

/// Decodes a code of f8_e4m3, f8_e5m2, f16, bf16 or, as TF32, f32. Throws bad_dtype if `spec` does not take the type.
Factor decode_factor(const MmaSpec& spec, DType type, std::uint32_t code);

/// What kind::f8f6f4 multiplies in any mix, one code in the low bits of a byte.
enum class SmallFloat { e4m3, e5m2, e3m2, e2m3, e2m1 };
/// Decodes a code; bits above it are not read.
Factor decode_factor(SmallFloat type, std::uint32_t code);

/// A block scale as significand * 2^exponent; of f8_e4m3 the sign is not read. NaN where `nan` says so.
struct ScaleFactor {
  float significand;  ///< 1, or a multiple of 1/8 below 2
  int exponent;
  bool nan;
};
/// Decodes a code of f8_e4m3 or f8_e8m0.
ScaleFactor decode_scale(DType type, std::uint8_t code);

/// K in whole steps.
std::int64_t padded_k(const MmaSpec& spec, std::int64_t k);
/// A line of `k` codes in the order in which the unit takes it, into rooms of padded_k numbers; what belongs to no code is left as it is.
/// Exponents mean nothing for zeros, infinities and NaN. For float and double. Throws bad_dtype.
template <class Number>
void decode_line(const MmaSpec& spec, DType type, const void* codes, std::int64_t k, Number* values, std::int16_t* exponents);

/// Accumulators that are worked on together.
inline constexpr int mma_lanes = 16;

/// Stand-ins for the exponents of zeros, and of infinities and NaN. The sum of any two exponents fits 16 bits, is below `absent_below` if
/// one is `absent` and none `special`, and is far above all real ones if one is `special`.
inline constexpr std::int16_t absent = -8192;
inline constexpr std::int16_t special = 16000;
inline constexpr int absent_below = -4096;

/// All codes of an operand type of 8 or 16 bits, decoded: what the operands' constructors look up.
struct Decoder {
  std::vector<float> values;
  std::vector<std::int16_t> exponents;
};

/// Made when it is first asked for. Throws bad_dtype and, for a spec that is no unit, bad_value.
const Decoder& decoder_of(const MmaSpec& spec, DType type);

/// use(codes), as the unsigned integers that they are.
template <class Use>
void with_codes(DType type, const void* codes, Use use) {
  if (bits(type) == 8) {
    use(static_cast<const std::uint8_t*>(codes));
  } else {
    use(static_cast<const std::uint16_t*>(codes));
  }
}

/// Sums start and stop at multiples of this.
std::int64_t granule_of(const MmaSpec& spec);
/// Where element k goes, so that the products of a step lie side by side.
std::int64_t position_of(const MmaSpec& spec, std::int64_t k);

}  // namespace dodona::quant::tensor_core
