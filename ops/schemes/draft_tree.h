// Trees of draft tokens as speculative decoding links them: each node knows its first child and its next sibling, and where its outputs
// stand. Node 0 is the root, the last token that is certain.
#pragma once

#include <cstdint>
#include <vector>

#include "core/define.h"
#include "core/random.h"

namespace dodona::ops {

/// The links of a batch of trees, i64 [B, D] each and contiguous.
struct TreeLinks {
  const Tensor &retrive_index, &retrive_next_token, &retrive_next_sibling;

  std::int64_t requests() const { return retrive_index.size(0); }
  std::int64_t nodes() const { return retrive_index.size(1); }
};

/// Throws Error (bad_value) for a link to no node, for siblings that go round in a circle, and for a retrive_index outside [0, places) of
/// the root or of a node that some link names.
void check_links(const TreeLinks& links, std::int64_t places);

/// 1 for each request's nodes that a link names, whose links lead to nodes; 0 for the others.
std::vector<std::uint8_t> linked_nodes(const TreeLinks& links);

/// One request's links.
struct TreeRow {
  const std::int64_t *index, *next_token, *next_sibling;

  TreeRow(const TreeLinks& links, std::int64_t request)
      : index(links.retrive_index.as<const std::int64_t>() + request * links.nodes()),
        next_token(links.retrive_next_token.as<const std::int64_t>() + request * links.nodes()),
        next_sibling(links.retrive_next_sibling.as<const std::int64_t>() + request * links.nodes()) {}

  /// From the root down, at most `steps` nodes: of the children of the last node, in their order, the first that `accepts` takes.
  template <class Accepts>
  void walk(std::int64_t steps, const Accepts& accepts) const {
    std::int64_t node = 0;
    for (std::int64_t step = 0; step < steps; ++step) {
      std::int64_t child = next_token[node];
      while (child != -1 && !accepts(child)) child = next_sibling[child];
      if (child == -1) return;
      node = child;
    }
  }
};

/// Links of random trees: node t > 0 hangs below node `choice t below t` of its request, by the choices of "retrive_next_token", and places
/// are numbered in order. For inputs of case lines.
void make_links(const Tensor& retrive_index, const Tensor& retrive_next_token, const Tensor& retrive_next_sibling, std::uint64_t seed);

/// Schema of the ops that verify a tree. `places`: below what retrive_index is.
template <class Op>
void describe_tree_links(auto& op, Op& fields, const char* places) {
  op.in("retrive_index", fields.retrive_index, {DType::i64}, "B D")
      .layout(Layout::contiguous)
      .kin("places in order")
      .doc(std::string("where a node's outputs stand, below the elements of ") + places);
  op.in("retrive_next_token", fields.retrive_next_token, {DType::i64}, "B D")
      .layout(Layout::contiguous)
      .kin("a random tree")
      .doc("first child of each node, -1 for none");
  op.in("retrive_next_sibling", fields.retrive_next_sibling, {DType::i64}, "B D")
      .layout(Layout::contiguous)
      .kin("a random tree")
      .doc("next child of the same parent, -1 for none");
}
/// The path through it, and its sizes.
template <class Op>
void describe_tree_path(auto& op, Op& fields, Judge judge, const char* predicts) {
  op.out("predicts", fields.predicts, {DType::i32}, "tot").given().layout(Layout::contiguous).judged(judge).padded().doc(predicts);
  op.out("accept_index", fields.accept_index, {DType::i32}, "B S")
      .given()
      .layout(Layout::contiguous)
      .judged(judge)
      .doc("places of the path, then -1, which upstream expects there beforehand; S - 1 is the most that can be accepted");
  op.out("accept_token_num", fields.accept_token_num, {DType::i32}, "B")
      .layout(Layout::contiguous)
      .judged(judge)
      .doc("accepted draft tokens");
  op.symbol("D", {.minimum = 1});
  op.symbol("S", {.minimum = 1});
}

}  // namespace dodona::ops
