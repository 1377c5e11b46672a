#include "model/projection.h"

#include <chrono>
#include <utility>

#include "core/define.h"
#include "ops/gemm/cutlass_scaled_fp4_mm.h"
#include "ops/gemm/linear.h"
#include "ops/quantization/scaled_fp4_quant.h"
#include "quant/swizzle.h"

namespace dodona::model {
namespace {

/// A tensor of one fp32 element.
Tensor scalar(float value) {
  Tensor tensor(DType::f32, {1});
  *tensor.as<float>() = value;
  return tensor;
}

Tensor swizzled(const Tensor& scale) {
  constexpr auto layout = quant::ScaleLayout::swizzled_128x4;
  const auto padded = quant::padded_size(layout, scale.size(0), scale.size(1));
  Tensor out(DType::f8_e4m3, {padded.rows, padded.columns});
  quant::swizzle_scales(layout, {scale.as<std::uint8_t>(), static_cast<std::size_t>(scale.elements())}, scale.size(0), scale.size(1),
                        {out.as<std::uint8_t>(), static_cast<std::size_t>(out.elements())});
  return out;
}

}  // namespace

Projection::Projection(Linear weights, Rounding rounding)
    : weights_(std::move(weights)),
      rounding_(rounding),
      rows_(weights_.rows),
      columns_(weights_.columns),
      bytes_(weights_.bytes()),
      nvfp4_(weights_.is_nvfp4()) {
  if (!nvfp4_) return;
  input_scale_ = weights_.nvfp4.input_scale;
  alpha_ = input_scale_ * weights_.nvfp4.weight_scale_2;
}

void Projection::prepare(const Exec& exec) {
  if (!nvfp4_) return;
  if (rounding_ == Rounding::off) {
    if (unscaled_.defined()) return;
    unscaled_ = dequantize_unscaled(weights_, exec.threads);
    weights_.nvfp4.weight = weights_.nvfp4.weight_scale = Tensor();
    return;
  }
  if (exec.mode == Mode::fast) {
    if (!packed_.empty()) return;
    packed_ = ops::PackedFp4::pack(weights_.nvfp4.weight, swizzled(weights_.nvfp4.weight_scale), exec);
    weights_.nvfp4.weight = weights_.nvfp4.weight_scale = Tensor();
  } else if (!swizzled_scale_.defined()) {
    swizzled_scale_ = swizzled(weights_.nvfp4.weight_scale);
  }
}

Tensor Projection::operator()(const Tensor& x, const Exec& exec) const {
  if (nvfp4_ && rounding_ == Rounding::bf16) {
    const auto codes = ops::run(ops::ScaledFp4Quant{.input = x, .input_global_scale = scalar(1.0f / input_scale_)}, exec);
    return multiply_codes(codes.output, codes.output_scale, exec);
  }
  const DType type = activation_type(rounding_);
  const Tensor& weight = nvfp4_ ? unscaled_ : weights_.bf16;
  Tensor y = ops::run(ops::Linear{.input = x, .weight = weight, .out_dtype = type}, exec).output;
  if (nvfp4_) {
    auto* const values = y.as<float>();
    for (std::int64_t i = 0; i < y.elements(); ++i) values[i] *= weights_.nvfp4.weight_scale_2;
  }
  return y;
}

Tensor Projection::multiply_codes(const Tensor& a, const Tensor& a_scale, const Exec& exec) const {
  if (exec.mode == Mode::fast) {
    const auto begin = std::chrono::steady_clock::now();
    Tensor out(DType::bf16, {a.size(0), rows_});
    ops::fp4_mm_packed(a, a_scale, packed_, alpha_, out, exec);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    if (exec.tracer) exec.tracer({"cutlass_scaled_fp4_mm", exec.mode, exec.isa, exec.threads, elapsed.count()});
    return out;
  }
  return ops::run(ops::CutlassScaledFp4Mm{.a = a,
                                          .b = weights_.nvfp4.weight,
                                          .block_scale_a = a_scale,
                                          .block_scale_b = swizzled_scale_,
                                          .alpha = scalar(alpha_),
                                          .out_dtype = DType::bf16},
                  exec)
      .out;
}

}  // namespace dodona::model
