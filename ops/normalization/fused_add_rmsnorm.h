#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// h = input + residual;  residual <- h;  input[t,:] <- h[t,:] * r[t] * weight,  r[t] = 1 / sqrt(mean(h[t,:]^2) + eps).
/// Source: sgl-kernel `fused_add_rmsnorm` (FlashInfer `FusedAddRMSNormKernel`).
struct FusedAddRmsnorm {
  Tensor input, residual, weight;
  double eps = 1e-6;
  bool enable_pdl = false;
  double weight_bias = 0.0;
  std::string normalize = "unrounded", weight_order = "fused", kernel = "flashinfer";

  static constexpr OpInfo info{"fused_add_rmsnorm", Category::normalization, {Source::sgl_kernel, Source::flashinfer}};
  void describe(auto& op) {
    op.inout("input", input, {bf16, f16, f32}, "T... H").doc("what is added; becomes the normalised sum");
    op.inout("residual", residual, same_as("input"), "T... H").doc("the residual stream; becomes the sum, rounded to the type");
    op.in("weight", weight, same_as("input"), "H").role(Role::weight).doc("one factor per column");
    op.attr("eps", eps, at_least(0.0)).doc("added to the mean square; narrowed to fp32");
    op.attr("enable_pdl", enable_pdl).ignored().doc("programmatic dependent launch, without effect on values");
    op.attr("weight_bias", weight_bias, between(0, 1))
        .doc("added to every factor, in fp32; 1: gemma's norms, whose weights are stored less one")
        .recipe();
    op.choice("normalize", normalize, {"unrounded", "rounded"})
        .doc("what is normalised: the fp32 sum, or the sum as the residual stores it (fused all-reduce kernels, eager references)")
        .dialect("trtllm", "rounded")
        .dialect("deepseek", "rounded");
    op.choice("weight_order", weight_order, {"fused", "rounded"})
        .doc("fused: h*r*weight is rounded once; rounded: h*r is rounded to the type before the weight, which rounds again")
        .dialect("deepseek", "rounded");
    op.choice("kernel", kernel, {"flashinfer", "vllm", "vllm_256"})
        .doc(
            "whose arithmetic and order of the sum, for hopper mode: flashinfer: sgl-kernel's too; vllm: fused_add_rms_norm_kernel, with "
            "normalize=rounded and weight_order=rounded; vllm_256: the same in blocks of 256 threads, as from 256 tokens on");
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
