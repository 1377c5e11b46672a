// What merge_state and merge_state_v2 share: two partial attention results over disjoint keys, weighted by their log-sum-exps.
#pragma once

#include <string_view>

#include "core/define.h"
#include "simd/tier.h"

namespace dodona::ops {

/// The arguments of either op. Tensors as the ops describe them.
struct PartialMerge {
  const Tensor &v_a, &s_a, &v_b, &s_b, &v_merged, &s_merged;
  bool natural;        ///< merge_state_v2: natural logarithms, and a log-sum-exp of +inf means "no keys"; otherwise base 2
  bool empty_is_zero;  ///< two empty sides give v = 0 and s = -inf; otherwise NaN
};

/// PartialMerge of an op whose fields have these names.
template <class Merge>
PartialMerge partial_merge(const Merge& op, bool natural) {
  return {op.v_a, op.s_a, op.v_b, op.s_b, op.v_merged, op.s_merged, natural, op.both_empty == "zero"};
}

/// Describes such an op. `types` are those of the values, `lse` is the role of the log-sum-exps.
template <class Merge>
void describe_merge(auto& op, Merge& fields, const DTypeRule& types, Role lse) {
  op.signature("v_a, s_a, v_b, s_b, v_merged, s_merged");
  op.in("v_a", fields.v_a, types, "T N D").doc("attention output over the first set of keys");
  op.in("s_a", fields.s_a, {DType::f32}, "T N").role(lse).doc("its log-sum-exp of the logits; -inf for no keys");
  op.in("v_b", fields.v_b, same_as("v_a"), "T N D").doc("attention output over the second set of keys");
  op.in("s_b", fields.s_b, {DType::f32}, "T N").role(lse).doc("its log-sum-exp of the logits; -inf for no keys");
  op.choice("both_empty", fields.both_empty, {"nan", "zero"})
      .doc("what two sides without keys give: NaN in both outputs, or v = 0 and s = -inf as current FlashInfer has it")
      .dialect("flashinfer", "zero");
  op.out("v_merged", fields.v_merged, same_as("v_a"), "T N D").doc("attention output over all keys");
  op.out("s_merged", fields.s_merged, {DType::f32}, "T N").role(lse).doc("log-sum-exp over all keys");
  op.rows_independent("T");
}

/// Golden mode as it is, and with the mistakes that merging kernels make.
enum class MergeRule {
  right,
  shares_not_normalized,  ///< v = v_a*w_a + v_b*w_b, the larger weight being 1
  logarithm_left_out,     ///< s is the larger log-sum-exp
  infinity_otherwise,     ///< +inf is no empty side where it is one, and is one where it is none
};
void merge_golden(const PartialMerge& merge, const Exec& exec, Reference* reference, MergeRule rule = MergeRule::right);
void merge_fast(const PartialMerge& merge, const Exec& exec);
/// The H200's arithmetic, bit for bit; the caller has checked that its kernel takes these arguments.
void merge_hopper(const PartialMerge& merge, const Exec& exec);

/// Up to sixteen heads of one token, in vector code.
struct MergeHeads {
  const void *v_a, *v_b;
  const float *s_a, *s_b;
  void* v_merged;
  float* s_merged;
  std::int64_t heads, width;                  ///< heads <= 16
  std::int64_t stride_a, stride_b, stride_v;  ///< bytes from head to head of v_a, v_b, v_merged
  DType type;
  bool natural, empty_is_zero;
};
struct MergeKernel {
  template <class Tier>
  static void run(const MergeHeads& block);
};

}  // namespace dodona::ops
