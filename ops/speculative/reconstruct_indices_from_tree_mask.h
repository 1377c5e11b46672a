#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Links and positions of a tree from its mask m, rows of D = draft_token_num for each node t, of which only what lies left of the diagonal
/// is read in row t:
///   depth of t = how many i < t have m[t, i]; its parent the largest of them
///   positions[b*D + t] = verified_seq_len[b] + depth;  retrive_index[b, t] = b*D + t
///   retrive_next_token[b, t] = the smallest i > t with m[i, t], -1 for none
///   retrive_next_sibling[b, t] = the smallest i > t with m[i, parent] and no m[i, j] for parent < j < i; -1 for none, and without a parent
/// Source: sgl-kernel `reconstruct_indices_from_tree_mask`.
struct ReconstructIndicesFromTreeMask {
  Tensor tree_mask, verified_seq_len, positions, retrive_index, retrive_next_token, retrive_next_sibling;
  std::int64_t batch_size = 0, draft_token_num = 0;

  static constexpr OpInfo info{"reconstruct_indices_from_tree_mask", Category::speculative, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature(
        "tree_mask, verified_seq_len, positions, retrive_index, retrive_next_token, retrive_next_sibling, batch_size, draft_token_num");
    op.in("tree_mask", tree_mask, {boolean}, "batch_size*draft_token_num*draft_token_num")
        .layout(Layout::contiguous)
        .doc("request after request, row after row; any mask has an answer");
    op.in("verified_seq_len", verified_seq_len, {i64}, "batch_size").layout(Layout::contiguous).doc("tokens before the root");
    op.attr("batch_size", batch_size, between(0, 1 << 20)).required().doc("requests");
    op.attr("draft_token_num", draft_token_num, between(1, 1024)).required().doc("D, nodes of each tree");
    op.out("positions", positions, {i64}, "batch_size*draft_token_num").layout(Layout::contiguous).judged(Judge::exact).doc("of each node");
    op.out("retrive_index", retrive_index, {i64}, "batch_size draft_token_num")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("number of each node in the batch");
    op.out("retrive_next_token", retrive_next_token, {i64}, "batch_size draft_token_num")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("first child, -1 for none");
    op.out("retrive_next_sibling", retrive_next_sibling, {i64}, "batch_size draft_token_num")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("next child of the same parent, -1 for none");
  }
};

}  // namespace dodona::ops
