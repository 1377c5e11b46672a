#include "model/layer/attention/absorbed.h"

#include <algorithm>

#include "core/define.h"
#include "core/threads.h"
#include "model/layer/kernel_use.h"
#include "model/layer/values.h"
#include "model/weights/without_memory.h"
#include "ops/gemm/bmm.h"
#include "ops/gemm/bmm_fp8.h"
#include "ops/quantization/sgl_per_tensor_quant_fp8.h"

namespace dodona::model {
namespace {

/// Whether the weight is multiplied in fp8, requantized with one scale for all (bmm_fp8); blocks of fp8, int8 and QServe's codes become
/// bf16. Source: sglang `post_load_weights` (QServe: no method there takes it apart).
bool multiplied_in_fp8(WeightForm form, Rounding rounding) {
  return rounding == Rounding::bf16 && (form == WeightForm::nvfp4 || form == WeightForm::fp8);
}

/// The weight as one dense matrix: bf16, or, where activations are not rounded and it is quantized, fp32. What fp8 rows become is rounded
/// once, to the new scale.
Tensor dense(const Linear& linear, Rounding rounding, bool fp8, int threads) {
  if (linear.form == WeightForm::bf16) return linear.weight;
  const bool wide = rounding == Rounding::off || (fp8 && linear.form == WeightForm::fp8);
  return dequantize(linear, threads, wide ? DType::f32 : DType::bf16);
}

/// The last two dimensions swapped in memory; rows of `tensor` are contiguous.
Tensor column_major(const Tensor& tensor, int threads) {
  const std::int64_t rows = tensor.size(1), columns = tensor.size(2), size = bytes_for(tensor.dtype(), 1);
  const Tensor turned = Tensor::uninitialized(tensor.dtype(), {tensor.size(0), columns, rows});
  const auto turn = [&]<class T>(T) {
    constexpr std::int64_t line = 64 / sizeof(T);  // rows whose elements are one line of what is written
    parallel_for(threads, tensor.size(0), static_cast<double>(rows * columns), [&](std::int64_t head) {
      const std::int64_t stride = tensor.stride(1);
      const T* const from = tensor.as<T>() + head * tensor.stride(0);
      T* const to = turned.as<T>() + head * columns * rows;
      for (std::int64_t first = 0; first < rows; first += line) {
        const std::int64_t end = std::min(first + line, rows);
        for (std::int64_t j = 0; j < columns; ++j)
          for (std::int64_t i = first; i < end; ++i) to[j * rows + i] = from[i * stride + j];
      }
    });
  };
  if (size == 1)
    turn(std::uint8_t{});
  else if (size == 2)
    turn(std::uint16_t{});
  else
    turn(std::uint32_t{});
  return turned.transpose(1, 2);
}

/// One scale for all, max(max|x|, 1e-12) / 448.
ops::SglPerTensorQuantFp8 to_fp8(const Tensor& x, const char* divide, const Exec& exec) {
  return ops::run(ops::SglPerTensorQuantFp8{.input = x, .output_s = scalar(1e-12f / 448.0f), .divide = divide}, exec);
}

/// Source: sglang `input_to_float8`. The loader makes them, by torch's own divisions, whatever multiplies them later: no mode changes them.
ops::SglPerTensorQuantFp8 weights_to_fp8(const Tensor& x, Exec exec) {
  exec.mode = Mode::fast;
  return to_fp8(x, "ieee", exec);
}

/// Source: sglang `per_tensor_quant_mla_fp8`, of Triton, which divides by an approximate reciprocal on a GPU.
ops::SglPerTensorQuantFp8 activations_to_fp8(const Tensor& x, const Exec& exec) {
  return to_fp8(x, exec.mode == Mode::hopper ? "rcp" : "ieee", exec);
}

}  // namespace

void AbsorbWeights::multiply(const Tensor& left, const Tensor& right, const Tensor& out, const Exec& exec) const {
  if (!scale.defined()) {
    ops::run(ops::Bmm{.mat1 = left, .mat2 = right, .out = out, .out_dtype = out.dtype()}, exec);
    return;
  }
  const std::int64_t tokens = left.size(1), together = scale_by_token ? 1 : tokens;
  for (std::int64_t t = 0; t < tokens; t += together) {
    const auto codes = activations_to_fp8(left.slice(1, t, t + together).clone(), exec);
    const ops::BmmFp8 product{.A = codes.output_q, .B = right, .A_scale = codes.output_s, .B_scale = scale, .dtype = out.dtype()};
    copy(ops::run(product, exec).out, out.slice(1, t, t + together));
  }
}

std::string_view absorbing_kernel(WeightForm form, const LayerSetting& setting) {
  const std::string_view asked = used_kernel(setting, "bmm_fp8");
  return !asked.empty() ? asked : multiplied_in_fp8(form, setting.rounding) ? "bmm_fp8" : "bmm";
}

AbsorbWeights absorb_weights(const WeightSource& source, const std::string& module, const LayerSetting& setting, const Exec& exec) {
  const Rounding rounding = setting.rounding;
  const ModelConfig& c = source.local();
  const std::int64_t heads = c.num_attention_heads, nope = c.qk_nope_head_dim, v = c.v_head_dim, latent = c.kv_lora_rank;
  const WeightForm form = c.form_of(module);
  const bool fp8 = absorbing_kernel(form, setting) == "bmm_fp8";
  if (source.sizes_alone()) {
    const DType type = fp8 ? DType::f8_e4m3 : form == WeightForm::bf16 || rounding == Rounding::bf16 ? DType::bf16 : DType::f32;
    return {without_memory(type, {heads, nope, latent}), without_memory(type, {heads, latent, v}), fp8 ? scalar(1) : Tensor()};
  }
  AbsorbWeights result;
  result.scale_by_token = setting.scale_by_token;
  Tensor per_head = dense(source.linear(module), rounding, fp8, exec.threads);
  if (fp8) {
    const auto codes = weights_to_fp8(per_head, exec);
    result.scale = codes.output_s;
    per_head = codes.output_q;
  }
  per_head = per_head.reshape({heads, nope + v, latent});
  // Both with k contiguous for each column, as upstream stores them: [Nh, Lkv, Dn] and [Nh, Dv, Lkv] in memory.
  result.w_kc = column_major(per_head.slice(1, 0, nope), exec.threads);
  result.w_vc = per_head.slice(1, nope, nope + v).transpose(1, 2);
  if (fp8) result.w_vc = per_head.slice(1, nope, nope + v).clone().transpose(1, 2);
  return result;
}

}  // namespace dodona::model
