// Rows that a kernel quantizes between two products: codes and scales, and in golden mode how far the numbers that honest implementations
// multiply may lie from these.
#pragma once

#include <cstdint>
#include <span>

#include "dodona/exec.h"
#include "ops/base/bounded.h"

namespace dodona::ops {

/// How the scale of a group follows from its largest magnitude, and codes from the scale.
enum class ScaleRule : std::uint8_t {
  quotient,  ///< scale = fl32(amax / largest), codes of fl32(x / scale), zeros where it is 0
  inverse,   ///< q = fl32(largest / amax), 1 where amax is 0; codes of fl32(x * q), scale = fl32(1 / q)
  encoded,   ///< FlashInfer's NVFP4 with the encode scale S: scale = e4m3(S * (amax * fl32(1/6))), codes of x * rcp(scale * rcp(S))
};

/// What becomes of a row, as data.
struct Requantizer {
  DType code = DType::f32;  ///< of f32, bf16 and f16 there are no scales: numbers are rounded to it
  std::int64_t group = 0;   ///< numbers that share a scale; 0: there is none
  DType scale = DType::f32;
  double largest = 0;  ///< that the largest magnitude of a group is scaled to
  ScaleRule rule = ScaleRule::quotient;
  float least_amax = 0;      ///< no group's scale is that of a smaller magnitude
  DType first = DType::f32;  ///< numbers are rounded to this type before anything else
  bool approximate = false;  ///< ScaleRule::inverse: divisions are those of fast-math builds on an H200
  float encode_scale = 1;    ///< ScaleRule::encoded: S; without scales: numbers are multiplied with it before they become codes

  /// Whether numbers stay as they are.
  bool keeps() const { return code == DType::f32; }
};

inline constexpr Requantizer kept_in_f32{}, rounded_to_bf16{.code = DType::bf16}, rounded_to_f16{.code = DType::f16};
/// Saturating, without scales.
inline constexpr Requantizer static_fp8{.code = DType::f8_e4m3};
/// Of each 128 s = max(fl32(amax / 448), 2^-126): trtllm-gen.
inline constexpr Requantizer trtllm_fp8_groups{.code = DType::f8_e4m3, .group = 128, .largest = 448, .least_amax = 448 * 0x1p-126f};
/// The same with a magnitude of 1e-10 at least: sglang's quantizers by groups.
inline constexpr Requantizer sgl_fp8_groups{.code = DType::f8_e4m3, .group = 128, .largest = 448, .least_amax = 1e-10f};
/// Of bf16, by the inverse of the scale: TensorRT-LLM's GEMM with scales of blocks.
inline constexpr Requantizer bf16_inverse_fp8_groups{
    .code = DType::f8_e4m3, .group = 128, .largest = 448, .rule = ScaleRule::inverse, .first = DType::bf16};
/// Of each 16 s = e4m3(amax / 6): trtllm-gen.
inline constexpr Requantizer trtllm_nvfp4{.code = DType::f4_e2m1, .group = 16, .scale = DType::f8_e4m3, .largest = 6};
/// FlashInfer's fp4_quantize; its encode scale is the call's.
inline constexpr Requantizer encoded_nvfp4{
    .code = DType::f4_e2m1, .group = 16, .scale = DType::f8_e4m3, .largest = 6, .rule = ScaleRule::encoded, .first = DType::bf16};

/// A quantized row of n numbers; each pointer may be null.
struct RequantizedRow {
  void* codes = nullptr;     ///< e2m1: two a byte
  void* scales = nullptr;    ///< n / group numbers
  double* values = nullptr;  ///< codes times scales
  double* open = nullptr;    ///< how far such a number of an honest implementation may lie from `values`; infinite where nothing is known
};

/// From numbers that are open. Divisions are within 2 ulp (4 units of 2^-24), or products with a reciprocal.
void requantize(const Requantizer& requantizer, std::span<const Bounded> x, const RequantizedRow& row);

/// The same codes and scales, of numbers that are what they are; `values` are in fp32 there.
struct RequantizedFloats {
  void* codes = nullptr;
  void* scales = nullptr;
  float* values = nullptr;  ///< with scales alone
};
void requantize(const Requantizer& requantizer, std::span<const float> x, const RequantizedFloats& row, Isa isa);

}  // namespace dodona::ops
