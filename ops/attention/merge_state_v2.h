#pragma once

#include "ops/softmax/merge_partial.h"

namespace dodona::ops {

using enum DType;

/// v = (e^s_a v_a + e^s_b v_b) / (e^s_a + e^s_b),  s = ln(e^s_a + e^s_b), per token and head; s = +inf counts as -inf.
/// Source: sgl-kernel `merge_state_v2` (`merge_attn_states_kernel`).
struct MergeStateV2 {
  Tensor v_a, s_a, v_b, s_b, v_merged, s_merged;
  std::string both_empty = "nan";

  static constexpr OpInfo info{"merge_state_v2", Category::attention, Source::sgl_kernel};
  void describe(auto& op) { describe_merge(op, *this, {bf16, f16, f32}, Role::lse_base_e); }
};

}  // namespace dodona::ops
