#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// y[t,h] = x[t,h] * r[t] * weight[h],  r[t] = 1 / sqrt(mean_h(x[t,:]^2) + eps), row by row.
/// Source: sgl-kernel `rmsnorm` (FlashInfer `RMSNormKernel`).
struct Rmsnorm {
  Tensor input, weight, output;
  double eps = 1e-6;
  bool enable_pdl = false;
  double weight_bias = 0.0;
  std::string weight_order = "fused", kernel = "flashinfer";

  static constexpr OpInfo info{"rmsnorm", Category::normalization, {Source::sgl_kernel, Source::flashinfer}};
  void describe(auto& op) {
    op.signature("input, weight, eps, out=output, enable_pdl");
    op.in("input", input, {bf16, f16, f32}, "T... H").doc("rows to normalise; rows may be strided slices of a wider tensor");
    op.in("weight", weight, same_as("input"), "H").role(Role::weight).doc("one factor per column");
    op.attr("eps", eps, at_least(0.0)).doc("added to the mean square; narrowed to fp32");
    op.attr("enable_pdl", enable_pdl).ignored().doc("programmatic dependent launch, without effect on values");
    op.attr("weight_bias", weight_bias, between(0, 1))
        .doc("added to every factor, in fp32; 1: gemma's norms, whose weights are stored less one")
        .recipe();
    op.choice("weight_order", weight_order, {"fused", "rounded"})
        .doc("fused: x*r*weight is rounded once; rounded: x*r is rounded to the type before the weight, which rounds again")
        .dialect("deepseek", "rounded");
    op.choice("kernel", kernel, {"flashinfer", "vllm", "triton"})
        .doc(
            "whose arithmetic and order of the sum, for hopper mode: flashinfer: sgl-kernel's too; vllm: rms_norm_kernel, with "
            "weight_order=rounded; triton: sglang's fused_rmsnorm");
    op.out("output", output, same_as("input"), "T... H").doc("may be the memory of input");
    op.rows_independent("T");
    op.in_place("output", "input");
  }
};

}  // namespace dodona::ops
