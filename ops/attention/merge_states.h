#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// v = sum over states of 2^s v / sum over states of 2^s,  s = log2 of that sum, per token and head.
/// Source: FlashInfer `merge_states` (`MergeStatesKernel`, and `MergeStatesLargeNumIndexSetsKernel` where states are as many as tokens).
struct MergeStates {
  Tensor v, s, v_merged, s_merged;

  static constexpr OpInfo info{"merge_states", Category::attention, Source::flashinfer};
  void describe(auto& op) {
    op.signature("v, s, v_merged, s_merged");
    op.in("v", v, {bf16, f16}, "T S N D").doc("attention outputs over S sets of keys");
    op.in("s", s, {f32}, "T S N").role(Role::lse_base_2).doc("their log-sum-exps of the logits; -inf for no keys");
    op.out("v_merged", v_merged, same_as("v"), "T N D").doc("attention output over all keys");
    op.out("s_merged", s_merged, {f32}, "T N").role(Role::lse_base_2).doc("log-sum-exp over all keys");
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
