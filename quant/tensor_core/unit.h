// Tensor cores as data: how each adds, to the bit.
//
// One step (a link of an instruction's chain) adds `products` products to an fp32 accumulator. The exponent of a product is the sum of its
// factors' exponents (a denormal factor has the exponent of its type's smallest normal), not the exponent of its value. With E the largest
// exponent among the products without a zero factor and the accumulator, unless that is zero, and at least `lowest_exponent`:
//
//     every addend, products and accumulator alike, is cut toward zero to `addend_bits` fraction bits below E;
//     they are added exactly;
//     the sum is cut toward zero to `sum_bits` fraction bits below its own exponent, and to the grid of fp32 denormals.
//
// NaN factors, inf * 0 and inf - inf give NaN (0x7FFFFFFF); otherwise an infinity wins; overflow gives infinity. A zero sum is +0.
//
// Kinds whose operands have a ue8m0 scale for every step (kind::mxf8f6f4) multiply every product with both scales: the exponents of the
// scales, code - 127 each, are added to that of the product. A scale of code 255 is NaN, and so is the sum, even if all products are zero.
//
// A step of e2m1 times e2m1 with block scales (kind::mxf4, kind::mxf4nvf4) takes its products in groups that share their scales. The
// products of a group are added exactly and multiplied with both scales; that is one addend, whose exponent is the sum of the scales'
// exponents: nothing of the numbers or of the scales' significands enters (a denormal ue4m3 has exponent -6). E is the largest among the
// groups with a product that is not zero and scales that are not (a group that cancels counts), the accumulator unless it is zero, and
// `lowest_exponent`. The rest is as above; all groups and the accumulator meet in one sum.
//
// Source: PTX ISA `wgmma.mma_async` and `mma.sync` as compute capability 9.0 does them; the rows of other capabilities and the kinds with
// block scales as MMA-Sim (arXiv 2511.10909) has them.
#pragma once

#include <array>

#include "dodona/dtype.h"

namespace dodona::quant::tensor_core {

/// How a unit reads codes, and which of them make a step.
enum class MmaReading {
  as_they_are,  ///< K ascending
  /// 8-bit floats are widened to fp16, and of each 32 products those with k mod 4 in {0, 1} make the first step, the rest the second.
  widened_to_f16,
  dealt,  ///< that order, of 16-bit floats as they are: operands that a kernel made of bytes
};

/// A matrix unit, as data: a model more is a row more.
struct MmaSpec {
  int products;         ///< of one step, at most 32
  int addend_bits;      ///< fraction bits below the largest exponent that an addend keeps, at most 25
  int sum_bits;         ///< fraction bits below its own exponent that the sum keeps, at most 23
  int lowest_exponent;  ///< of the window, whatever the addends
  std::array<DType, 2> types;
  MmaReading reading = MmaReading::as_they_are;
  bool operator==(const MmaSpec&) const = default;
};

inline constexpr std::array fp8_types{DType::f8_e4m3, DType::f8_e5m2}, half_types{DType::bf16, DType::f16};

/// e4m3 and e5m2 in any mix, `wgmma`: what CUTLASS, cuBLASLt, and Triton with blocks of 64 rows and more use.
inline constexpr MmaSpec fp8_wgmma{32, 13, 13, -133, fp8_types};
/// The same types, `mma.sync`: Triton with blocks of fewer than 64 rows.
inline constexpr MmaSpec fp8_mma_sync{16, 25, 23, -133, fp8_types, MmaReading::widened_to_f16};
/// bf16 and fp16, `wgmma` and `mma.sync`; also `tcgen05.mma` kind::f16 of compute capability 10.0.
inline constexpr MmaSpec half_mma{16, 25, 23, -133, half_types};
/// The same where one operand was bytes in memory, `mma.sync`: Triton with blocks of fewer than 64 rows.
inline constexpr MmaSpec half_mma_of_bytes{16, 25, 23, -133, half_types, MmaReading::dealt};
/// f32 of which the low 13 bits are dropped, `wgmma` and `tcgen05.mma` kind::tf32.
inline constexpr MmaSpec tf32_wgmma{8, 25, 23, -133, {DType::f32, DType::f32}};
/// bf16 and fp16, `mma.sync` of 8.0, 8.6 and 8.9: an instruction of 16 products is a chain of two steps.
inline constexpr MmaSpec sm80_half{8, 24, 23, -132, half_types};
/// e4m3 and e5m2, `mma.sync` of 8.9, likewise.
inline constexpr MmaSpec sm89_fp8{16, 13, 13, -132, fp8_types};
/// e4m3 and e5m2 (and the types of SmallFloat), `tcgen05.mma` kind::f8f6f4 of 10.0; with scales for every 32 products kind::mxf8f6f4.
inline constexpr MmaSpec sm100_fp8{32, 25, 23, -133, fp8_types};

/// A unit that multiplies e2m1 by e2m1 with block scales.
struct Fp4Spec {
  DType scale;      ///< f8_e4m3, of which the sign is not read (ue4m3), or f8_e8m0
  int scale_block;  ///< numbers along K that share a scale: whole groups
  int products = 64, group = 16;
  int addend_bits = 35, sum_bits = 23, lowest_exponent = -139;  ///< as of an MmaSpec
  bool operator==(const Fp4Spec&) const = default;
};

/// `tcgen05.mma` kind::mxf4nvf4 of 10.0 with a ue4m3 scale for every 16, and with a ue8m0 scale for every 16 or, as kind::mxf4, 32.
inline constexpr Fp4Spec sm100_nvf4{DType::f8_e4m3, 16}, sm100_mxf4_block16{DType::f8_e8m0, 16}, sm100_mxf4{DType::f8_e8m0, 32};

/// What `mma.sync` of Hopper does with a type.
inline const MmaSpec& mma_sync(DType type) {
  return bits(type) == 8 ? fp8_mma_sync : half_mma;
}

}  // namespace dodona::quant::tensor_core
