// A linear module of the model, ready to run in the form in which the checkpoint stores it.
#pragma once

#include <string_view>

#include "dodona/exec.h"
#include "dodona/prepared.h"
#include "dodona/tensor.h"
#include "model/weights.h"

namespace dodona::model {

/// Whether what passes from op to op is rounded to bf16, as on the GPU, or stays in fp32: a way to compare a composition with another
/// implementation without the noise of the roundings. With roundings off, NVFP4 weights keep their values and activations are not
/// quantized.
enum class Rounding { bf16, off };
inline DType activation_type(Rounding rounding) {
  return rounding == Rounding::bf16 ? DType::bf16 : DType::f32;
}

/// y = x W^T for an NVFP4 or a bf16 weight.
///
/// NVFP4: x is quantized with the global scale 1 / input_scale (`scaled_fp4_quant`) and multiplied by `cutlass_scaled_fp4_mm` with
/// alpha = input_scale * weight_scale_2. Source: sglang `ModelOptFp4LinearMethod`.
class Projection {
 public:
  Projection() = default;
  /// `routed`: of a routed expert, whose NVFP4 weight is multiplied by `cutlass_fp4_group_mm` with those of the others.
  explicit Projection(Linear weights, Rounding rounding = Rounding::bf16, bool routed = false);

  bool defined() const { return rows_ > 0; }
  bool is_nvfp4() const { return nvfp4_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  /// Bytes of weights that one pass reads.
  std::int64_t bytes() const { return bytes_; }
  float input_scale() const { return input_scale_; }
  float alpha() const { return alpha_; }
  /// The upstream kernel that does the product.
  std::string_view kernel() const { return nvfp4_ && rounding_ == Rounding::bf16 ? "cutlass_scaled_fp4_mm" : "linear"; }

  /// Brings NVFP4 weights into the form that will be read, once: prepared for fast mode, codes times block scales with roundings off. Their
  /// raw form is given up then; other modes keep it.
  void prepare(const Exec& exec);
  /// Fast mode's form of NVFP4 weights.
  const Prepared& prepared() const { return prepared_; }
  /// Other modes' form: codes u8 [N, K/2] and block scales in tiles of 128 x 4.
  const Tensor& codes() const { return weights_.nvfp4.weight; }
  const Tensor& block_scales() const { return swizzled_scale_; }

  /// x [T, K] to [T, N] of the activations' type. `prepare` must have been called with this mode.
  Tensor operator()(const Tensor& x, const Exec& exec) const;
  /// The bf16 weight; undefined for NVFP4.
  const Tensor& bf16() const { return weights_.bf16; }

 private:
  Linear weights_;
  Rounding rounding_ = Rounding::bf16;
  Tensor swizzled_scale_, unscaled_;
  Prepared prepared_;
  std::int64_t rows_ = 0, columns_ = 0, bytes_ = 0;
  float input_scale_ = 1, alpha_ = 1;
  bool nvfp4_ = false, routed_ = false;
};

}  // namespace dodona::model
