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

/// One call. 16-bit logits make 16-bit scores, and weights are rounded to that type after every step; a bias is fp32 and widens what is
/// compared.
struct NativeRouter {
  const Tensor &logits, &bias;  ///< bias undefined: none
  const Tensor &weights, &ids;
  bool softmax;  ///< scores of a softmax, else of a sigmoid
  bool widened;  ///< scores are made of fp32 logits and stay fp32
  std::int64_t groups, kept_groups;
  bool group_by_maximum;  ///< a group's key is its best, else the sum of its two best
  std::int64_t shared;    ///< fused shared experts: the last column is one of them
  bool renormalize;
  double factor;  ///< routed_scaling_factor; 0: none
  bool apply;     ///< renormalized weights are multiplied by it

  std::int64_t experts() const { return logits.size(1); }
  std::int64_t topk() const { return ids.size(1); }
  DType type() const { return widened ? f32 : logits.dtype(); }
};

/// The rule itself, and mistakes of such routers.
enum class NativeRule {
  right,
  bias_in_weights,
  group_by_the_other_key,
  shared_expert_in_the_sum,
  dropped_count_as_zero,
  sigmoid_from_tanh
};

void golden_native_route(const NativeRouter& router, const Exec& exec, Reference* reference, NativeRule rule = NativeRule::right);
void condition_native_route(const NativeRouter& actual, const Exec& exec, Reference& reference);
/// The choice and the scores of golden mode, made only where an expert may count; weights in fp32 and in the type.
void fast_native_route(const NativeRouter& router, const Exec& exec);
void check_native_route(const NativeRouter& router);

extern const std::string_view native_router_contract;

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
void describe_native_groups(auto& op, Op& fields) {
  op.attr("num_expert_group", fields.num_expert_group, between(1, 1024)).required().doc("groups G of E/G consecutive experts");
  op.attr("topk_group", fields.topk_group, between(1, 1024)).required().doc("groups that are kept");
  op.attr("num_fused_shared_experts", fields.num_fused_shared_experts, between(0, 1024))
      .doc("of any number the last column is one: torch draws its id from E, E+1...; here E");
  op.attr("routed_scaling_factor", fields.routed_scaling_factor, between(0, 1e6))
      .doc("the shared expert weighs the sum of the others over it; 0 stands for None");
  op.attr("apply_routed_scaling_factor_on_output", fields.apply_routed_scaling_factor_on_output)
      .doc("multiplies renormalized weights by it");
}

}  // namespace dodona::ops
