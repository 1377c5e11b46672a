#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// The tree that a draft's selected candidates make: attention mask, positions, links. D = draft_token_num; node 0 is the root, node t > 0
/// the candidate selected_index[b, t-1]. Candidate c hangs below what slot c / topk holds: slot 0 the root, slot s > 0 the candidate
/// parent_list[b, s].
///   positions[b*D + t] = verified_seq_len[b] + depth of t
///   retrive_index[b, t] = b*D + t;  retrive_next_token[b, t] = its first child, retrive_next_sibling[b, t] = its parent's next, else -1
///   tree_mask, row t: true at t, at its ancestors and at the root
/// Source: sgl-kernel `build_tree_kernel_efficient`.
struct BuildTreeKernelEfficient {
  Tensor parent_list, selected_index, verified_seq_len, tree_mask, positions, retrive_index, retrive_next_token, retrive_next_sibling;
  std::int64_t topk = 0, depth = 0, draft_token_num = 0, tree_mask_mode = 0;

  static constexpr OpInfo info{"build_tree_kernel_efficient", Category::speculative, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature(
        "parent_list, selected_index, verified_seq_len, tree_mask, positions, retrive_index, retrive_next_token, retrive_next_sibling, "
        "topk, depth, draft_token_num, tree_mask_mode");
    op.in("parent_list", parent_list, {i64}, "B topk*(depth-1)+1")
        .layout(Layout::contiguous)
        .kin("a random beam")
        .doc("candidate of each slot, -1 for slot 0; with a depth of 1 nothing is read of it");
    op.in("selected_index", selected_index, {i64}, "B draft_token_num-1")
        .layout(Layout::contiguous)
        .kin("a random choice")
        .doc("selected candidates, below topk times the slots; rising, so that siblings come in the order of the beam");
    op.in("verified_seq_len", verified_seq_len, {i64}, "B")
        .layout(Layout::contiguous)
        .kin("lengths that the mask has room for")
        .doc("tokens before the root");
    op.attr("topk", topk, between(1, 1 << 15)).required().doc("candidates below each beam");
    op.attr("depth", depth, between(1, 1 << 15)).required().doc("speculative steps");
    op.attr("draft_token_num", draft_token_num, between(1, 1024)).required().doc("D, nodes of each tree, the root counted");
    op.attr("tree_mask_mode", tree_mask_mode, between(0, 2))
        .required()
        .doc(
            "0: rows of verified_seq_len[b] + D, true before the root. 1: rows of D. 2: rows of D bits in 1, 2 or 4 bytes (D up to 8, 16, "
            "32), node j bit j mod 8 of byte j / 8");
    op.out("tree_mask", tree_mask, {boolean, u8}, "n")
        .given()
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc(
            "request after request, row after row; bytes (u8) in mode 2; room for all or more. Made whole: upstream expects true "
            "everywhere before the call in modes 0 and 1, zeros in mode 2");
    op.out("positions", positions, {i64}, "B*draft_token_num").layout(Layout::contiguous).judged(Judge::exact).doc("of each node");
    op.out("retrive_index", retrive_index, {i64}, "B draft_token_num")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("number of each node in the batch");
    op.out("retrive_next_token", retrive_next_token, {i64}, "B draft_token_num")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("first child, -1 for none; upstream expects -1 everywhere before the call");
    op.out("retrive_next_sibling", retrive_next_sibling, {i64}, "B draft_token_num")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("next child of the same parent, -1 for none; upstream expects -1 everywhere before the call");
  }

  std::int64_t requests() const { return selected_index.size(0); }
  bool packed() const { return tree_mask_mode == 2; }
};

}  // namespace dodona::ops
