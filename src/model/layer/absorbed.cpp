#include "model/layer/absorbed.h"

#include "core/define.h"
#include "model/layer/values.h"
#include "model/weights/without_memory.h"
#include "ops/gemm/bmm.h"
#include "ops/gemm/bmm_fp8.h"
#include "ops/quantization/sgl_per_tensor_quant_fp8.h"

namespace dodona::model {
namespace {

/// The weight as one dense matrix of the activations' type, or bf16 where it is stored so.
Tensor dense(const Linear& linear, Rounding rounding, int threads) {
  if (linear.form == WeightForm::bf16) return linear.weight;
  if (rounding == Rounding::bf16) return dequantize(linear, threads);
  const Tensor out = widened(dequantize_unscaled(linear, threads));
  for (std::int64_t i = 0; i < out.elements(); ++i) out.as<float>()[i] *= linear.weight_scale_2;
  return out;
}

/// The last two dimensions swapped in memory.
Tensor column_major(const Tensor& tensor) {
  return tensor.transpose(1, 2).clone().transpose(1, 2);
}

/// One scale for all, max(max|x|, 1e-12) / 448. Sources: sglang `input_to_float8` (weights), `per_tensor_quant_mla_fp8` (activations).
ops::SglPerTensorQuantFp8 to_fp8(const Tensor& x, const Exec& exec) {
  return ops::run(ops::SglPerTensorQuantFp8{.input = x, .output_s = scalar(1e-12f / 448.0f), .divide = "ieee"}, exec);
}

}  // namespace

void AbsorbWeights::multiply(const Tensor& left, const Tensor& right, const Tensor& out, const Exec& exec) const {
  if (!scale.defined()) {
    ops::run(ops::Bmm{.mat1 = left, .mat2 = right, .out = out, .out_dtype = out.dtype()}, exec);
    return;
  }
  const auto codes = to_fp8(left.clone(), exec);
  copy(ops::run(ops::BmmFp8{.A = codes.output_q, .B = right, .A_scale = codes.output_s, .B_scale = scale, .dtype = out.dtype()}, exec).out,
       out);
}

AbsorbWeights absorb_weights(const WeightSource& source, const std::string& module, Rounding rounding, const Exec& exec) {
  const ModelConfig& c = source.local();
  const std::int64_t heads = c.num_attention_heads, nope = c.qk_nope_head_dim, v = c.v_head_dim, latent = c.kv_lora_rank;
  const bool stored_wide = c.form_of(module) == WeightForm::bf16, fp8 = !stored_wide && rounding == Rounding::bf16;
  if (source.sizes_alone()) {
    const DType type = fp8 ? DType::f8_e4m3 : stored_wide ? DType::bf16 : DType::f32;
    return {without_memory(type, {heads, nope, latent}), without_memory(type, {heads, latent, v}), fp8 ? scalar(1) : Tensor()};
  }
  AbsorbWeights result;
  Tensor per_head = dense(source.linear(module), rounding, exec.threads);
  if (fp8) {
    const auto codes = to_fp8(per_head, exec);
    result.scale = codes.output_s;
    per_head = codes.output_q;
  }
  per_head = per_head.reshape({heads, nope + v, latent});
  // Both with k contiguous for each column, as upstream stores them: [Nh, Lkv, Dn] and [Nh, Dv, Lkv] in memory.
  result.w_kc = column_major(per_head.slice(1, 0, nope));
  result.w_vc = per_head.slice(1, nope, nope + v).transpose(1, 2);
  if (fp8) result.w_vc = column_major(result.w_vc);
  return result;
}

}  // namespace dodona::model
