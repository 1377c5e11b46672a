// Linear modules, ready to run in the form in which the checkpoint stores their weights.
#pragma once

#include <cstdint>
#include <string_view>

#include "dodona/exec.h"
#include "dodona/prepared.h"
#include "dodona/tensor.h"
#include "model/layer/setting.h"
#include "model/layer/trace.h"
#include "model/weights/weights.h"

namespace dodona::model {

struct Projection;

/// One way of multiplying with a weight. A further form of weights is a further one, and a line in linear_method().
struct LinearMethod {
  std::string_view name;
  std::string_view kernel;  ///< the upstream kernel that does the product
  bool narrow = false;      ///< multiplies codes: its arithmetic is Work::int8_ops
  /// Brings the weight into the form that `apply` reads with `exec`'s mode, once, and gives up the raw one where it is read no more.
  void (*prepare)(Projection&, const Exec& exec) = nullptr;
  /// x [T, K] to [T, N] of type `out`. nullptr where a backend multiplies several modules in one product.
  Tensor (*apply)(const Projection&, const Tensor& x, DType out, const Exec&) = nullptr;
  bool gives_f32 = true;  ///< `out` may be f32
};

/// bf16 (or fp32 activations): `linear`.
extern const LinearMethod bf16_method;
/// NVFP4: x is quantized with the global scale 1 / input_scale (`scaled_fp4_quant`) and multiplied by `cutlass_scaled_fp4_mm` with
/// alpha = input_scale * weight_scale_2. Source: sglang `ModelOptFp4LinearMethod`.
extern const LinearMethod nvfp4_method;
/// NVFP4 weights of routed experts, for `cutlass_fp4_group_mm`.
extern const LinearMethod nvfp4_grouped_method;
/// NVFP4 weights of routed experts as they are stored, for kernels that take a whole mixture.
extern const LinearMethod nvfp4_whole_method;
/// Quantized weights with roundings off: codes times scales in `linear`. NVFP4: codes times block scales, exact in bf16, and the products
/// times weight_scale_2; others in fp32.
extern const LinearMethod unscaled_method;

/// Blocks of fp8 as they are stored: x quantized in groups of 128 (`sgl_per_token_group_quant_fp8`), times the weight by
/// `fp8_blockwise_scaled_mm`. Source: sglang `cutlass_w8a8_block_fp8_linear_with_fallback`.
extern const LinearMethod fp8_block_method;
/// The same by DeepGEMM's `fp8_gemm_nt`, where N is no multiple of 128, as that kernel wants it.
/// Source: sglang `deepgemm_w8a8_block_fp8_linear_with_fallback`.
extern const LinearMethod deep_gemm_method;
/// e4m3 with a scale for each row: `sgl_per_token_quant_fp8`, `fp8_scaled_mm`. Source: sglang `W8A8Fp8LinearMethod`.
extern const LinearMethod fp8_method;
/// int8 likewise: `per_token_quant_int8`, `int8_scaled_mm`. Source: sglang `W8A8Int8LinearMethod`.
extern const LinearMethod int8_method;
/// QServe's: x in fp16, `per_token_quant_int8`, `qserve_w4a8_per_chn_gemm` or `qserve_w4a8_per_group_gemm`, whose fp16 becomes bf16: the
/// kernels know no bf16, and upstream runs them in fp16 models alone. Source: sglang `QoQLinearMethod`.
extern const LinearMethod qserve_channel_method, qserve_group_method;
/// int4 weights of routed experts, for `cutlass_w4a8_moe_mm`: no linear multiplies them.
extern const LinearMethod w4a8_method;

/// Blocks of fp8 (e4m3 with a scale for 128 x 128), for backends of experts that multiply such, as they are stored or made of whatever is;
/// codes in weight.weight, scales in block_scales.
extern const LinearMethod fp8_blocks_method;
/// The same, the codes packed for fast mode of `fp8_blockwise_scaled_grouped_mm`, of `m_grouped_fp8_gemm_nt_masked` and of
/// `fused_moe_kernel`.
extern const LinearMethod fp8_grouped_method, fp8_masked_method, fp8_fused_method;

/// The method of modules that are stored in this form; `rows` of the product, where they are known, decide between kernels, unless one of
/// them is asked for.
const LinearMethod& linear_method(WeightForm form, Rounding rounding, std::int64_t rows = 0, std::string_view asked = {});

/// y = x W^T.
struct Projection {
  const LinearMethod* method = nullptr;
  Linear weight;
  /// What the methods prepare. In fast mode the op's own form, where it has one. NVFP4: for other modes the block scales in tiles of 128 x
  /// 4. w4a8: bf16 block scales as the kernel has them. Without roundings codes times block scales.
  Prepared prepared;
  Tensor block_scales, unscaled;

  bool defined() const { return method != nullptr; }
  std::int64_t rows() const { return weight.rows; }
  std::int64_t columns() const { return weight.columns; }
  /// Of NVFP4 products.
  float alpha() const { return weight.input_scale * weight.weight_scale_2; }

  Tensor operator()(const Tensor& x, const Exec& exec) const { return method->apply(*this, x, x.dtype(), exec); }
  /// A product with `tokens` rows, which are not counted themselves, nor is what it writes.
  Work product(std::int64_t tokens) const;
  /// The same with the rows, of `type`.
  Work work(std::int64_t tokens, DType type) const;
};

/// A kernel that upstream has for few tokens and the bf16 weights of one model.
struct LowLatencyKernel {
  std::string_view name;
  bool (*fits)(std::int64_t rows, std::int64_t columns);
  Tensor (*apply)(const Projection&, const Tensor& x, const Exec&);

  /// `this` where it runs, nullptr where the method's own kernel does.
  const LowLatencyKernel* chosen(const Projection& projection, std::int64_t tokens, Rounding rounding) const;
};
extern const LowLatencyKernel fused_a_kernel;  ///< fused_qkv_a_proj_with_mqa
extern const LowLatencyKernel router_kernel;   ///< the router; gives fp32

}  // namespace dodona::model
