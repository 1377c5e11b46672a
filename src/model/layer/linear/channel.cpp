// Weights of eight bits with a scale for each row, and activations with a scale for each token.
#include "core/define.h"
#include "model/layer/linear/method.h"
#include "ops/gemm/fp8_scaled_mm.h"
#include "ops/gemm/int8_scaled_mm.h"
#include "ops/quantization/per_token_quant_int8.h"
#include "ops/quantization/sgl_per_token_quant_fp8.h"

namespace dodona::model {
namespace {

template <class Op>
void prepare(Projection& p, const Exec& exec) {
  if (exec.mode != Mode::fast || p.prepared.defined()) return;
  p.prepared = ops::prepare(Op{.mat_b = p.weight.weight.transpose(0, 1)}, exec);
  p.weight.weight = Tensor();
}

template <class Op>
Tensor multiply(const Projection& p, const Tensor& codes, const Tensor& scales, DType out, const Exec& exec) {
  return ops::run(Op{.mat_a = codes,
                     .mat_b = p.prepared.defined() ? Tensor() : p.weight.weight.transpose(0, 1),
                     .scales_a = scales,
                     .scales_b = p.weight.weight_scale,
                     .out_dtype = out},
                  exec, p.prepared)
      .out;
}

Tensor apply_fp8(const Projection& p, const Tensor& x, DType out, const Exec& exec) {
  const auto a = ops::run(ops::SglPerTokenQuantFp8{.input = x}, exec);
  return multiply<ops::Fp8ScaledMm>(p, a.output_q, a.output_s, out, exec);
}

Tensor apply_int8(const Projection& p, const Tensor& x, DType out, const Exec& exec) {
  const auto a = ops::run(ops::PerTokenQuantInt8{.x = x}, exec);
  return multiply<ops::Int8ScaledMm>(p, a.x_q, a.scales, out, exec);
}

}  // namespace

const LinearMethod fp8_method{
    .name = "fp8", .kernel = "fp8_scaled_mm", .prepare = prepare<ops::Fp8ScaledMm>, .apply = apply_fp8, .gives_f32 = false};
const LinearMethod int8_method{.name = "int8",
                               .kernel = "int8_scaled_mm",
                               .narrow = true,
                               .prepare = prepare<ops::Int8ScaledMm>,
                               .apply = apply_int8,
                               .gives_f32 = false};

}  // namespace dodona::model
