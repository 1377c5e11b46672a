#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Tokens quantized in groups of 128 and dealt to their experts, each expert's rows from the beginning of its own room: what permutes
/// tokens for DeepGEMM's masked products. Source: sglang `ep_moe/kernels.py`, `moe_ep_deepgemm_preprocess`.
struct MoeEpDeepgemmPreprocess {
  Tensor topk_ids, hidden_states, masked_m, src2dst, gateup_input, gateup_input_scale;
  std::int64_t num_local_experts = 0, spare_rows = 0;

  static constexpr OpInfo info{"moe_ep_deepgemm_preprocess", Category::moe, Source::triton};
  void describe(auto& op) {
    op.signature("topk_ids, num_local_experts, hidden_states, top_k=, block_shape=, output_dtype=");
    op.in("topk_ids", topk_ids, {i32, i64}, "T topk")
        .layout(Layout::contiguous)
        .role(Role::expert_ids, "num_local_experts")
        .may_stray()
        .doc("local experts that each token chose; -1: none here");
    op.attr("num_local_experts", num_local_experts, between(1, 1 << 16)).required().doc("experts E of this rank");
    op.attr("spare_rows", spare_rows, between(0, 1 << 20)).doc("rows of each room that callers do without: no expert may need them");
    op.in("hidden_states", hidden_states, {bf16, f16}, "T H").layout(Layout::contiguous).doc("tokens");
    op.out("masked_m", masked_m, {i32}, "num_local_experts").layout(Layout::contiguous).judged(Judge::exact).doc("rows of each expert");
    op.out("src2dst", src2dst, {i32}, "T topk")
        .layout(Layout::contiguous)
        .padded()
        .doc("row of each slot, counted over all rooms; of slots of no expert here unspecified");
    op.out("gateup_input", gateup_input, {f8_e4m3}, "num_local_experts align(T+1,256)-spare_rows H")
        .layout(Layout::contiguous)
        .judged(Judge::code)
        .padded()
        .doc("rows of each expert, by token and slot; unspecified behind its count");
    op.out("gateup_input_scale", gateup_input_scale, {f32}, "num_local_experts align(T+1,256)-spare_rows H/128")
        .layout(Layout::contiguous)
        .padded()
        .scales("gateup_input", 1, 128)
        .doc("theirs");
    op.symbol("H", {.multiple_of = 128});
  }
};

}  // namespace dodona::ops
