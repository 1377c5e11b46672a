// The routers that frameworks write in torch: scores, groups, the best experts, weights over their sum. What fused gates are held against,
// and what serves where no kernel does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/define.h"
#include "ops/base/bounded.h"
#include "ops/routing/order.h"

namespace dodona::ops {

using enum DType;

/// What is rounded to a 16-bit type on the way; all of it is computed in fp32.
struct NativeRoundings {
  DType scores, sum, weights;  ///< sum: of the chosen; weights: quotients and products, a fused shared expert's weight among them
};

/// As torch's own kernels round, one after the other.
inline NativeRoundings eager_roundings(DType type) {
  return {type, type, type};
}

/// One call. A bias is fp32 and widens what is compared.
struct NativeRouter {
  const Tensor &logits, &bias;  ///< bias undefined: none
  const Tensor &weights, &ids;
  bool softmax;  ///< scores of a softmax, else of a sigmoid
  NativeRoundings to;
  std::int64_t groups, kept_groups;
  bool group_by_maximum;  ///< a group's key is its best, else the sum of its two best
  std::int64_t shared;    ///< fused shared experts: the last column is one of them
  bool renormalize;
  double factor;           ///< routed_scaling_factor; 0: none
  bool apply;              ///< renormalized weights are multiplied by it
  bool from_tanh = false;  ///< sigmoids are made of a tanh: see tanh_sigmoid

  std::int64_t experts() const { return logits.size(1); }
  std::int64_t topk() const { return ids.size(1); }
  /// Keys of dropped groups are masked with 0, as softmax routers have it, else with -inf.
  bool dropped_count_as_zero() const { return softmax && groups > 1; }
};

/// As torch.compile leaves them: what it fuses stays fp32, and only what goes from one of its kernels to the next has the type. torch.topk
/// reads a softmax; a sigmoid is made anew where it is needed. A fused shared expert's weight is written into the tensor that is summed.
NativeRoundings compiled_roundings(DType type, bool softmax, std::int64_t shared);

/// The rule itself, and mistakes of such routers.
enum class NativeRule {
  right,
  bias_in_weights,
  group_by_the_other_key,
  shared_expert_in_the_sum,
  dropped_count_as_zero,
  sigmoid_from_tanh,
  keys_in_bf16  ///< biased scores, and sums of them, that experts and groups are chosen by
};

void golden_native_route(const NativeRouter& router, const Exec& exec, Reference* reference, NativeRule rule = NativeRule::right);
void condition_native_route(const NativeRouter& actual, const Exec& exec, Reference& reference);
/// The choice and the scores of golden mode, made only where an expert may count; weights in fp32 and in the type.
void fast_native_route(const NativeRouter& router, const Exec& exec);
void check_native_route(const NativeRouter& router);

template <class Op, NativeRule rule>
void golden_native_router_of(const Op& op, const Exec& exec, Reference* reference) {
  golden_native_route(op.router(), exec, reference, rule);
}
/// All of an op that has such a `router()`, but its contract, mistakes and case lines.
template <class Op>
Implementation<Op> native_router() {
  Implementation<Op> all;
  all.golden = golden_native_router_of<Op, NativeRule::right>;
  all.fast = [](const Op& op, const Exec& exec) { fast_native_route(op.router(), exec); };
  all.check = [](const Op& op) { check_native_route(op.router()); };
  all.condition = [](const Op& actual, const Exec& exec, Reference& reference) {
    condition_native_route(actual.router(), exec, reference);
  };
  return all;
}

/// `scores`: what it says of scores and roundings.
std::string native_router_contract(std::string_view scores);

/// Schema of what all have in common.
template <class Op>
void describe_native_outputs(auto& op, Op& fields) {
  op.attr("topk", fields.topk, between(1, 1024)).required().doc("columns: experts chosen, a fused shared expert among them");
  op.attr("renormalize", fields.renormalize).required().doc("weights are divided by their sum");
  op.out("topk_weights", fields.topk_weights, {f32}, "T topk").doc("weights of the columns");
  op.out("topk_ids", fields.topk_ids, {i32}, "T topk")
      .role(Role::expert_ids)
      .judged(Judge::top_k)
      .doc("here by falling key; torch leaves the order of columns open, and that of equals");
  op.symbol("E", {.minimum = 1, .maximum = 1024});
  op.rows_independent("T");
}
template <class Op>
void describe_native_rounding(auto& op, Op& fields) {
  op.choice("rounding", fields.rounding, {"compiled", "eager"})
      .doc("of 16-bit logits: compiled as upstream ships its grouped routers, by torch.compile; eager as torch's own kernels round");
}
template <class Op>
void describe_native_groups(auto& op, Op& fields) {
  op.attr("num_expert_group", fields.num_expert_group, between(1, 1024)).required().doc("groups G of E/G consecutive experts");
  op.attr("topk_group", fields.topk_group, between(1, 1024)).required().doc("groups that are kept");
  op.attr("num_fused_shared_experts", fields.num_fused_shared_experts, between(0, 1024))
      .doc("of any number the last column is one: torch draws its id from E, E+1...; here E");
  op.attr("routed_scaling_factor", fields.routed_scaling_factor, between(0, 1e6))
      .doc("the shared expert weighs the sum of the others over it; 0 stands for None");
  op.attr("apply_routed_scaling_factor_on_output", fields.apply_routed_scaling_factor_on_output)
      .doc("multiplies renormalized weights by it");
  describe_native_rounding(op, fields);
}

}  // namespace dodona::ops
