#include "ops/speculative/verify_tree_greedy.h"

#include <algorithm>

#include "ops/base/golden_output.h"

namespace dodona::ops {
namespace {

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, first_child_alone, no_bonus, own_prediction, all_accepted };

void make_inputs(VerifyTreeGreedy& op, std::uint64_t seed) {
  make_links(op.retrive_index, op.retrive_next_token, op.retrive_next_sibling, seed);
  const InputDraw drafts(seed, "candidates"), targets(seed, "target_predict");
  for (std::int64_t i = 0; i < op.candidates.elements(); ++i) {
    op.candidates.as<std::int64_t>()[i] = static_cast<std::int64_t>(drafts.below(i, 4));
    op.target_predict.as<std::int64_t>()[i] = static_cast<std::int64_t>(targets.below(i, 4));
  }
}

void check(const VerifyTreeGreedy& op) {
  check_links(op.links(), std::min(op.target_predict.elements(), op.predicts.elements()));
}

template <Rule rule>
void verify(const VerifyTreeGreedy& op) {
  auto *predicts = op.predicts.as<std::int32_t>(), *accept_index = op.accept_index.as<std::int32_t>(),
       *accepted = op.accept_token_num.as<std::int32_t>();
  const auto *candidates = op.candidates.as<const std::int64_t>(), *target = op.target_predict.as<const std::int64_t>();
  std::fill(predicts, predicts + op.predicts.elements(), -1);
  std::fill(accept_index, accept_index + op.accept_index.elements(), -1);
  const std::int64_t nodes = op.candidates.size(1), width = op.accept_index.size(1);
  for (std::int64_t b = 0; b < op.candidates.size(0); ++b) {
    const TreeRow tree(op.links(), b);
    std::int32_t* const path = accept_index + b * width;
    std::int64_t last = tree.index[0], children = 0;
    std::int32_t count = 0;
    path[0] = static_cast<std::int32_t>(last);
    tree.walk(width - 1, [&](std::int64_t child) {
      const bool offered = rule != Rule::first_child_alone || children++ == 0;
      const std::int64_t asked = rule == Rule::own_prediction ? tree.index[child] : last;
      if (!offered || (rule != Rule::all_accepted && candidates[b * nodes + child] != target[asked])) return false;
      children = 0;
      predicts[last] = static_cast<std::int32_t>(candidates[b * nodes + child]);
      last = tree.index[child];
      path[++count] = static_cast<std::int32_t>(last);
      return true;
    });
    accepted[b] = count;
    if (rule != Rule::no_bonus) predicts[last] = static_cast<std::int32_t>(target[last]);
  }
}

void fast(const VerifyTreeGreedy& op, const Exec&) {
  verify<Rule::right>(op);
}

template <Rule rule>
void golden(const VerifyTreeGreedy& op, const Exec&, Reference* reference) {
  verify<rule>(op);
  record_exact(op.predicts, reference, "predicts");
  record_exact(op.accept_index, reference, "accept_index");
  record_exact(op.accept_token_num, reference, "accept_token_num");
  if (reference == nullptr) return;
  auto& unspecified = reference->output("predicts", op.predicts.elements()).unspecified;
  unspecified.assign(static_cast<std::size_t>(op.predicts.elements()), 1);
  for (std::int64_t i = 0; i < op.accept_index.elements(); ++i)
    if (const std::int32_t place = op.accept_index.as<const std::int32_t>()[i]; place >= 0)
      unspecified[static_cast<std::size_t>(place)] = 0;
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_verify_tree_greedy() {
  return define<ops::VerifyTreeGreedy>({
      .contract = R"(
Whole numbers, compared as 64 bits and stored as 32. What lies off the path is left as it was by upstream: predicts unspecified there
(here -1), accept_index -1, as upstream's callers have it beforehand. A token that two siblings share goes to the first. Here errors, where
upstream reads outside or never ends: links to no node, siblings in a circle, places beyond target_predict or predicts.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .mistakes = {{"first-child-alone", "siblings of a child that is not accepted are not looked at",
                    ops::golden<ops::Rule::first_child_alone>},
                   {"own-prediction", "a draft is held against the target's choice behind itself, not behind its parent",
                    ops::golden<ops::Rule::own_prediction>},
                   {"all-accepted", "every first child is accepted, whatever the target says", ops::golden<ops::Rule::all_accepted>},
                   {"no-bonus-token", "the token after the last accepted node is not written", ops::golden<ops::Rule::no_bonus>}},
      .customary = {{"*", CustomaryKind::close, 0, 0, "sgl-kernel/tests/speculative/test_eagle_utils.py"}},
      .cases = {"B=4 D=8 S=4 tot=32", "B=9 D=16 S=5 tot=150", "B=3 D=1 S=4 tot=3", "B=5 D=33 S=2 tot=165"},
      .bench_cases = {"B=64 D=64 S=9 tot=4096", "B=64 D=4 S=4 tot=256"},
  });
}
}  // namespace dodona
