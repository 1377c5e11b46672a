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
    op.in("retrive_index", retrive_index, {i64}, "B D")
        .layout(Layout::contiguous)
        .kin("places in order")
        .doc("where a node's outputs stand, below the elements of target_predict and of predicts");
    op.in("retrive_next_token", retrive_next_token, {i64}, "B D")
        .layout(Layout::contiguous)
        .kin("a random tree")
        .doc("first child of each node, -1 for none");
    op.in("retrive_next_sibling", retrive_next_sibling, {i64}, "B D")
        .layout(Layout::contiguous)
        .kin("a random tree")
        .doc("next child of the same parent, -1 for none");
    op.in("target_predict", target_predict, {i64}, "B D")
        .layout(Layout::contiguous)
        .kin("choices below 4")
        .doc("token that the target chooses after each place");
    op.out("predicts", predicts, {i32}, "tot")
        .given()
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .padded()
        .doc("token after each place of the path; B*D of them or more. The others are -1, upstream leaves them as they were");
    op.out("accept_index", accept_index, {i32}, "B S")
        .given()
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("places of the path, then -1, which upstream expects there beforehand; S - 1 is the most that can be accepted");
    op.out("accept_token_num", accept_token_num, {i32}, "B").layout(Layout::contiguous).judged(Judge::exact).doc("accepted draft tokens");
    op.symbol("D", {.minimum = 1});
    op.symbol("S", {.minimum = 1});
  }

  TreeLinks links() const { return {retrive_index, retrive_next_token, retrive_next_sibling}; }
};

}  // namespace dodona::ops
