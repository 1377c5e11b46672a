#pragma once

#include "core/define.h"
#include "ops/schemes/draft_tree.h"

namespace dodona::ops {

using enum DType;

/// The path of a draft tree whose tokens are the target's choices. From the root, of a node's children the first whose candidate is the
/// token that the target predicts after the node, at most S - 1 times. x = retrive_index[b, node] is where a node's outputs stand:
///   predicts[x] = target_predict[x] for the root and every accepted node: the token that follows it, the last one a bonus
///   accept_index[b] = x of the root and of the accepted nodes, then -1
///   accept_token_num[b] = how many were accepted, the root not counted
/// Source: sgl-kernel `verify_tree_greedy`.
struct VerifyTreeGreedy {
  Tensor predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token, retrive_next_sibling, target_predict;

  static constexpr OpInfo info{"verify_tree_greedy", Category::speculative, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature(
        "predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token, retrive_next_sibling, target_predict");
    op.in("candidates", candidates, {i64}, "B D").layout(Layout::contiguous).kin("choices below 4").doc("draft token of each node");
    describe_tree_links(op, *this, "target_predict and of predicts");
    op.in("target_predict", target_predict, {i64}, "B D")
        .layout(Layout::contiguous)
        .kin("choices below 4")
        .doc("token that the target chooses after each place");
    describe_tree_path(op, *this, Judge::exact,
                       "token after each place of the path; B*D of them or more. The others are -1, upstream leaves them as they were");
  }

  TreeLinks links() const { return {retrive_index, retrive_next_token, retrive_next_sibling}; }
};

}  // namespace dodona::ops
