#include "model/projection.h"

#include <utility>

#include "core/define.h"
#include "ops/gemm/cutlass_scaled_fp4_mm.h"
#include "ops/gemm/linear.h"
#include "ops/moe/cutlass_fp4_group_mm.h"
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

/// [..] to [1, ..].
Tensor alone(const Tensor& tensor) {
  return tensor.reshape({1, tensor.size(0), tensor.size(1)});
}

}  // namespace

Projection::Projection(Linear weights, Rounding rounding, bool routed)
    : weights_(std::move(weights)),
      rounding_(rounding),
      rows_(weights_.rows),
      columns_(weights_.columns),
      bytes_(weights_.bytes()),
      nvfp4_(weights_.is_nvfp4()),
      routed_(routed) {
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
    if (prepared_.defined()) return;
    const Tensor &codes = weights_.nvfp4.weight, scales = swizzled(weights_.nvfp4.weight_scale);
    prepared_ = routed_ ? ops::prepare(ops::CutlassFp4GroupMm{.b_fp4 = alone(codes), .b_blockscale = alone(scales)}, exec)
                        : ops::prepare(ops::CutlassScaledFp4Mm{.b = codes, .block_scale_b = scales}, exec);
    weights_.nvfp4.weight = weights_.nvfp4.weight_scale = Tensor();
  } else if (!swizzled_scale_.defined()) {
    swizzled_scale_ = swizzled(weights_.nvfp4.weight_scale);
  }
}

Tensor Projection::operator()(const Tensor& x, const Exec& exec) const {
  if (nvfp4_ && rounding_ == Rounding::bf16) {
    const auto codes = ops::run(ops::ScaledFp4Quant{.input = x, .input_global_scale = scalar(1.0f / input_scale_)}, exec);
    const bool raw = !prepared_.defined();
    return ops::run(ops::CutlassScaledFp4Mm{.a = codes.output,
                                            .b = raw ? weights_.nvfp4.weight : Tensor(),
                                            .block_scale_a = codes.output_scale,
                                            .block_scale_b = raw ? swizzled_scale_ : Tensor(),
                                            .alpha = scalar(alpha_),
                                            .out_dtype = DType::bf16},
                    exec, prepared_)
        .out;
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

}  // namespace dodona::model
