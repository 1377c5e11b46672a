#include "ops/speculative/reconstruct_indices_from_tree_mask.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/base/golden_output.h"

namespace dodona::ops {
namespace {

using Reconstruct = ReconstructIndicesFromTreeMask;

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, descendants_are_siblings };

/// Nodes before t that its row marks, rising; eight elements of nothing at a time.
void find_ancestors(const std::uint8_t* row, std::int64_t t, std::vector<std::int64_t>& ancestors) {
  ancestors.clear();
  for (std::int64_t i = 0; i < t;) {
    std::uint64_t eight = 1;
    if (i + 8 <= t) std::memcpy(&eight, row + i, 8);
    if (eight == 0) {
      i += 8;
      continue;
    }
    for (const std::int64_t end = std::min(i + 8, t); i < end; ++i)
      if (row[i] != 0) ancestors.push_back(i);
  }
}

/// Node t is the first child of every ancestor that has none yet, and the next sibling of its parent's last child: what the rule looks for
/// from a node upward, found by going through the rows once.
template <Rule rule>
void reconstruct_request(const Reconstruct& op, std::int64_t b, std::vector<std::int64_t>& ancestors,
                         std::vector<std::int64_t>& last_child) {
  const std::int64_t nodes = op.draft_token_num, base = b * nodes, length = op.verified_seq_len.as<const std::int64_t>()[b];
  const auto* const mask = op.tree_mask.as<const std::uint8_t>() + base * nodes;
  auto *positions = op.positions.as<std::int64_t>() + base, *index = op.retrive_index.as<std::int64_t>() + base,
       *child = op.retrive_next_token.as<std::int64_t>() + base, *sibling = op.retrive_next_sibling.as<std::int64_t>() + base;
  std::fill(child, child + nodes, -1);
  std::fill(sibling, sibling + nodes, -1);
  last_child.assign(static_cast<std::size_t>(nodes), -1);
  for (std::int64_t t = 0; t < nodes; ++t) {
    find_ancestors(mask + t * nodes, t, ancestors);
    index[t] = base + t;
    positions[t] = length + static_cast<std::int64_t>(ancestors.size());
    for (const std::int64_t i : ancestors) {
      if (child[i] == -1) child[i] = t;
      if (rule != Rule::descendants_are_siblings && i != ancestors.back()) continue;
      std::int64_t& last = last_child[static_cast<std::size_t>(i)];
      if (last != -1 && sibling[last] == -1) sibling[last] = t;
      last = t;
    }
  }
}

template <Rule rule>
void reconstruct(const Reconstruct& op) {
  std::vector<std::int64_t> ancestors, last_child;
  for (std::int64_t b = 0; b < op.batch_size; ++b) reconstruct_request<rule>(op, b, ancestors, last_child);
}

void fast(const Reconstruct& op, const Exec&) {
  reconstruct<Rule::right>(op);
}

template <Rule rule>
void golden(const Reconstruct& op, const Exec&, Reference* reference) {
  reconstruct<rule>(op);
  record_exact(op.positions, reference, "positions");
  record_exact(op.retrive_index, reference, "retrive_index");
  record_exact(op.retrive_next_token, reference, "retrive_next_token");
  record_exact(op.retrive_next_sibling, reference, "retrive_next_sibling");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_reconstruct_indices_from_tree_mask() {
  return define<ops::ReconstructIndicesFromTreeMask>({
      .contract = "Whole numbers; any mask has an answer, and each element of the outputs is written.",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .mistakes = {{"descendants-are-siblings", "the next node below the parent is taken for a sibling, whatever lies between",
                    ops::golden<ops::Rule::descendants_are_siblings>}},
      .customary = {{"*", CustomaryKind::close, 0, 0, "sgl-kernel/tests/speculative/test_ngram_utils.py"}},
      .cases = {"--attr batch_size=2 --attr draft_token_num=8", "--attr batch_size=3 --attr draft_token_num=33",
                "--attr batch_size=1 --attr draft_token_num=4", "--attr batch_size=2 --attr draft_token_num=1"},
      .bench_cases = {"--attr batch_size=64 --attr draft_token_num=64"},
  });
}
}  // namespace dodona
