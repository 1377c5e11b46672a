#pragma once

#include "ops/softmax/merge_partial.h"

namespace dodona::ops {

using enum DType;

/// v = (2^s_a v_a + 2^s_b v_b) / (2^s_a + 2^s_b),  s = log2(2^s_a + 2^s_b), per token and head.
/// Source: sgl-kernel `merge_state` (FlashInfer `MergeStateKernel`).
struct MergeState {
  Tensor v_a, s_a, v_b, s_b, v_merged, s_merged;
  std::string both_empty = "nan";

  static constexpr OpInfo info{"merge_state", Category::attention, {Source::sgl_kernel, Source::flashinfer}};
  void describe(auto& op) { describe_merge(op, *this, {bf16, f16}, Role::lse_base_2); }
};

}  // namespace dodona::ops
