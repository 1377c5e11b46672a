// Weights of four bits in QServe's tiles.
#include "core/define.h"
#include "model/layer/linear/method.h"
#include "model/layer/values.h"
#include "ops/gemm/qserve_w4a8_per_chn_gemm.h"
#include "ops/gemm/qserve_w4a8_per_group_gemm.h"
#include "ops/quantization/per_token_quant_int8.h"

namespace dodona::model {
namespace {

ops::PerTokenQuantInt8 quantized(const Tensor& x, bool with_sums, const Exec& exec) {
  const Tensor halves = x.dtype() == DType::f16 ? x : rounded(widened(x), DType::f16);
  return ops::run(ops::PerTokenQuantInt8{.x = halves, .scale_dtype = DType::f16, .cal_sum = with_sums}, exec);
}

Tensor as(DType type, const Tensor& halves) {
  return type == DType::f32 ? widened(halves) : rounded(widened(halves), type);
}

void prepare_channel(Projection& p, const Exec& exec) {
  if (exec.mode != Mode::fast || p.prepared.defined()) return;
  p.prepared = ops::prepare(ops::QserveW4a8PerChnGemm{.kernel = p.weight.weight}, exec);
  p.weight.weight = Tensor();
}

Tensor apply_channel(const Projection& p, const Tensor& x, DType out, const Exec& exec) {
  const auto a = quantized(x, true, exec);
  return as(out, ops::run(ops::QserveW4a8PerChnGemm{.in_feats = a.x_q,
                                                    .kernel = p.prepared.defined() ? Tensor() : p.weight.weight,
                                                    .wscales = p.weight.weight_scale,
                                                    .ascales = a.scales,
                                                    .w_szs = p.weight.zeros,
                                                    .a_ssums = a.x_sum},
                          exec, p.prepared)
                     .out_feats);
}

void prepare_group(Projection& p, const Exec& exec) {
  if (exec.mode != Mode::fast || p.prepared.defined()) return;
  p.prepared = ops::prepare(
      ops::QserveW4a8PerGroupGemm{.kernel = p.weight.weight, .zeros = p.weight.zeros, .scales_i8 = p.weight.group_scales}, exec);
  p.weight.weight = p.weight.zeros = p.weight.group_scales = Tensor();
}

Tensor apply_group(const Projection& p, const Tensor& x, DType out, const Exec& exec) {
  const auto a = quantized(x, false, exec);
  return as(out, ops::run(ops::QserveW4a8PerGroupGemm{.in_feats = a.x_q,
                                                      .kernel = p.prepared.defined() ? Tensor() : p.weight.weight,
                                                      .zeros = p.weight.zeros,
                                                      .scales_i8 = p.weight.group_scales,
                                                      .wscales = p.weight.weight_scale,
                                                      .ascales = a.scales},
                          exec, p.prepared)
                     .out_feats);
}

}  // namespace

const LinearMethod qserve_channel_method{
    .name = "qserve-channel", .kernel = "qserve_w4a8_per_chn_gemm", .narrow = true, .prepare = prepare_channel, .apply = apply_channel};
const LinearMethod qserve_group_method{
    .name = "qserve-group", .kernel = "qserve_w4a8_per_group_gemm", .narrow = true, .prepare = prepare_group, .apply = apply_group};

}  // namespace dodona::model
