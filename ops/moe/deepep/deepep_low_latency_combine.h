#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// The experts' rows of each token, weighted and summed where the token came from: what undoes the low-latency dispatch.
/// Source: DeepEP `Buffer.low_latency_combine`.
struct DeepepLowLatencyCombine {
  Tensor x, topk_idx, topk_weights, src_info, layout_range, combined_x;

  static constexpr OpInfo info{"deepep_low_latency_combine", Category::moe, Source::torch};
  void describe(auto& op) {
    op.in("x", x, {bf16}, "E S H").layout(Layout::contiguous).doc("rows of each expert, in the order that the dispatch gave them");
    op.in("topk_idx", topk_idx, {i64}, "R T topk")
        .layout(Layout::contiguous)
        .role(Role::expert_ids, "E")
        .may_stray()
        .doc("experts chosen by each token, as they were dispatched; -1 for none");
    op.in("topk_weights", topk_weights, {f32}, "R T topk").layout(Layout::contiguous).doc("their weights");
    op.in("src_info", src_info, {i32}, "E S")
        .layout(Layout::contiguous)
        .kin("as a dispatch by rank and token makes it")
        .doc("token of each row on its rank");
    op.in("layout_range", layout_range, {i64}, "E R")
        .layout(Layout::contiguous)
        .kin("as a dispatch by rank and token makes it")
        .doc("rows of each expert from each rank: their number in the low 32 bits, where they begin above");
    op.out("combined_x", combined_x, {bf16}, "R T H").layout(Layout::contiguous).doc("one row for each token");
  }

  std::int64_t tokens() const { return topk_idx.size(1); }
  std::int64_t ranks() const { return topk_idx.size(0); }
};

}  // namespace dodona::ops
