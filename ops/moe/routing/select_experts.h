#pragma once

#include "core/define.h"
#include "ops/routing/native_router.h"

namespace dodona::ops {

using enum DType;

/// The front end of a layer's routers: which of them is called for which arguments, and what becomes of its ids.
///
///   grouped, no bias                                 grouped_topk
///   grouped, E/G <= 32 and E a power of two          moe_fused_gate (always renormalizes)
///   grouped, E = 384 and G = 1                       kimi_k2_moe_fused_gate, whose ids are neither mapped nor masked
///   grouped, other sizes                             biased_grouped_topk
///   not grouped, torch_native                        fused_topk_torch_native
///   not grouped, by scoring_func                     topk_softmax (without the bias) or topk_sigmoid
///
/// Then ids of logical experts become those of physical ones, and rows of padding -1.
/// Source: sglang `select_experts` (layers/moe/topk.py), with ExpertLocationDispatchInfo's static algorithm.
struct SelectExperts {
  Tensor router_logits, correction_bias, logical_to_physical_map, num_token_non_padded, topk_weights, topk_ids;
  std::int64_t top_k = 1, topk_group = 0, num_expert_group = 0, num_fused_shared_experts = 0;
  bool use_grouped_topk = false, renormalize = true, torch_native = false, apply_routed_scaling_factor_on_output = false;
  double routed_scaling_factor = 0.0;
  std::string scoring_func = "softmax", rounding = "compiled";

  static constexpr OpInfo info{"select_experts", Category::moe, Source::torch};
  void describe(auto& op) {
    op.in("router_logits", router_logits, {f32, bf16, f16}, "T E").layout(Layout::contiguous).role(Role::logits).doc("router logits");
    op.in("correction_bias", correction_bias, {f32}, "E")
        .layout(Layout::contiguous)
        .role(Role::weight)
        .on_request()
        .doc("steers the choice; topk_softmax is called without it");
    op.in("logical_to_physical_map", logical_to_physical_map, {i64, i32}, "E+num_fused_shared_experts")
        .layout(Layout::contiguous)
        .role(Role::indices, "2*(E+num_fused_shared_experts)")
        .may_stray()
        .on_request()
        .doc("the physical expert of each logical one, fused shared experts among them; no physical expert twice");
    op.in("num_token_non_padded", num_token_non_padded, {i32, i64}, "1 | ")
        .role(Role::positions, "T+1")
        .may_stray()
        .on_request()
        .doc("tokens that there are: rows from here on are padding");
    op.attr("top_k", top_k, between(1, 1024)).required().doc("columns: chosen experts, fused shared experts among them");
    op.attr("use_grouped_topk", use_grouped_topk).doc("the best groups first, then the best experts of those");
    op.attr("topk_group", topk_group, between(0, 1024)).doc("groups that are kept; of grouped routers");
    op.attr("num_expert_group", num_expert_group, between(0, 1024)).doc("groups G of E/G consecutive experts; of grouped routers");
    op.attr("renormalize", renormalize).doc("weights are divided by their sum");
    op.attr("num_fused_shared_experts", num_fused_shared_experts, between(0, 1024)).doc("last columns; of grouped routers");
    op.attr("torch_native", torch_native).doc("ungrouped routers are torch's");
    op.attr("routed_scaling_factor", routed_scaling_factor, between(0, 1e6))
        .doc("a fused shared expert weighs the sum of the others over it; 0 stands for None");
    op.attr("apply_routed_scaling_factor_on_output", apply_routed_scaling_factor_on_output)
        .doc("multiplies renormalized weights by it; of grouped routers");
    op.choice("scoring_func", scoring_func, {"softmax", "sigmoid"}).doc("what makes scores of logits; of ungrouped routers");
    describe_native_rounding(op, *this);
    op.out("topk_weights", topk_weights, {f32}, "T top_k")
        .layout(Layout::contiguous)
        .padded()
        .doc("weights of the columns; unspecified in rows of padding");
    op.out("topk_ids", topk_ids, {i32}, "T top_k")
        .layout(Layout::contiguous)
        .role(Role::expert_ids)
        .judged(Judge::top_k)
        .doc("physical experts; -1 in rows of padding");
    op.symbol("E", {.minimum = 1, .maximum = 1024});
  }
};

/// The router that a call comes to, by the name of its op.
std::string_view router_of(const SelectExperts& op);

/// Fills topk_weights and topk_ids, which may be undefined, by a call of the router: who watches calls sees that one.
void select_by_router(SelectExperts& op, const Exec& exec);

}  // namespace dodona::ops
