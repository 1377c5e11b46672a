// Trees of draft tokens as speculative decoding links them: each node knows its first child and its next sibling, and where its outputs
// stand. Node 0 is the root, the last token that is certain.
#pragma once

#include <cstdint>
#include <vector>

#include "core/random.h"
#include "dodona/tensor.h"

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

}  // namespace dodona::ops
