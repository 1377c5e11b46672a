#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// residual_out = sum over the ranks r of allreduce_in[r] + residual_in;  norm_out[t,:] = residual_out[t,:] * s[t] * rms_gamma,
/// s[t] = 1 / sqrt(mean(residual_out[t,:]^2) + rms_eps): the all-reduce between two halves of a layer with the norm behind it.
/// Source: FlashInfer `trtllm_allreduce_fusion` (pattern kARResidualRMSNorm), which sglang's `flashinfer_allreduce_residual_rmsnorm` calls.
struct TrtllmAllreduceFusion {
  Tensor allreduce_in, residual_in, rms_gamma, residual_out, norm_out;
  double rms_eps = 1e-6;
  bool fp32_acc = false, use_oneshot = true;
  std::int64_t cluster_size = 0;

  static constexpr OpInfo info{"trtllm_allreduce_fusion", Category::utility, Source::flashinfer};
  void describe(auto& op) {
    op.signature("allreduce_in, fp32_acc, use_oneshot, residual_in, residual_out, norm_out, rms_gamma, rms_eps");
    op.in("allreduce_in", allreduce_in, {bf16, f16, f32}, "R T H").layout(Layout::contiguous).doc("the terms of each rank");
    op.in("residual_in", residual_in, same_as("allreduce_in"), "T H")
        .layout(Layout::contiguous)
        .doc("the residual stream, the same on every rank");
    op.in("rms_gamma", rms_gamma, same_as("allreduce_in"), "H").role(Role::weight).doc("one factor per column");
    op.attr("rms_eps", rms_eps, at_least(0.0)).doc("added to the mean square; narrowed to fp32");
    op.attr("fp32_acc", fp32_acc).recipe().doc("the ranks' terms are added in fp32 and rounded once; else each sum is rounded to the type");
    op.attr("use_oneshot", use_oneshot)
        .recipe()
        .doc(
            "the kernels of one shot take -0 for a buffer that nobody has written, and send 0 in its place: the sum of terms of -0 is 0, "
            "not -0");
    op.attr("cluster_size", cluster_size, between(0, 8))
        .recipe()
        .doc(
            "blocks that share a row, for hopper mode: 0 is what upstream launches, where that does not depend on how many registers a "
            "build "
            "of the kernel takes");
    op.out("residual_out", residual_out, same_as("allreduce_in"), "T H").layout(Layout::contiguous).doc("the sum, rounded to the type");
    op.out("norm_out", norm_out, same_as("allreduce_in"), "T H")
        .layout(Layout::contiguous)
        .doc("the sum as residual_out has it, normalised");
    op.symbol("R", {.choices = {2, 4, 8, 16}});
  }

  std::int64_t ranks() const { return allreduce_in.size(0); }
  std::int64_t tokens() const { return allreduce_in.size(1); }
  std::int64_t width() const { return allreduce_in.size(2); }
};

}  // namespace dodona::ops
