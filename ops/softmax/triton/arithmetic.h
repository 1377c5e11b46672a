// What sglang's Triton attention kernels share on an H200: fp32 arithmetic that flushes nothing, its functions, and the order of their
// sums.
//
// Products and sums are IEEE, to nearest even; where a fused operation stands the compiler made one. Tensor cores add 16 products a step
// and go on from the accumulator, which is rescaled before. Weights are rounded to the element type for their products alone.
//
// Source: python/sglang/srt/layers/attention/triton_ops, as Triton 3.6 compiles it for sm_90a.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dodona/exec.h"
#include "ops/tiles/mma/mma.h"
#include "quant/element.h"

namespace dodona::ops {

/// Columns of keys that kernels multiply first; the others, if any, are a dot of their own.
constexpr std::int64_t triton_main_columns(std::int64_t key_width) {
  return key_width == 576 ? 512 : key_width == 288 ? 256 : key_width == 192 ? 128 : key_width;
}

/// Throws bad_value where the logarithm of xai_temperature_len is no divisor.
void check_temperature(std::int64_t length);

}  // namespace dodona::ops

namespace dodona::ops::triton {

/// 2^fl32(x * log2 e), denormals kept.
float exp(float x);
/// `div.full.f32`: a * rcp(b), both scaled where b is very large or small.
float div(float a, float b);
/// libdevice's logarithm.
float log(float x);
/// cap * tanh(x * fl32(1 / cap)), through exp.
float capped(float x, float cap);

/// What upstream multiplies scores of queries at a position beyond `length` with: log2 position / log2 length.
float temperature(std::int64_t position, std::int64_t length);

/// Arithmetic of the element type: every operation is rounded to it once.
class ElementMath {
 public:
  explicit ElementMath(DType type) : type_(type) {}
  double mul(double a, double b) const { return quant::round_to(type_, a * b); }
  double add(double a, double b) const { return quant::round_to(type_, a + b); }
  double fma(double a, double b, double c) const;

 private:
  DType type_;
};

/// Left to right over the pairs 8g + 2t, 8g + 2t + 1 for lanes t = 0 to 3, then (a0 + a2) + (a1 + a3): a row of an accumulator of one warp.
float row_sum(std::span<const float> p);
/// The same where warps hold eight columns each, 4 or 8 of them; warps are added by halves: (w0 + w2) + (w1 + w3).
float row_sum_of_warps(std::span<const float> p);

/// c[rows, columns] += a[rows, k] b[columns, k]^T on a tensor core; row strides in elements.
struct Codes {
  const void* first;
  std::int64_t rows, stride;
};
void multiply(const quant::tensor_core::MmaSpec& unit, DType type, const Codes& a, const Codes& b, std::int64_t k, float* c,
              std::int64_t c_stride, Isa isa);
/// The same of bf16 or f16.
inline void multiply(DType type, const Codes& a, const Codes& b, std::int64_t k, float* c, std::int64_t c_stride, Isa isa) {
  multiply(quant::tensor_core::half_mma, type, a, b, k, c, c_stride, isa);
}

}  // namespace dodona::ops::triton
