#pragma once

#include "core/define.h"
#include "ops/schemes/draft_tree.h"

namespace dodona::ops {

using enum DType;

/// A draft tree verified by sampling from the target's probabilities q alone: what is emitted after each node is distributed as q there
/// (thresholds of 1). At a node, with its coin u = uniform_samples[b, node], its children in order: acc += q[child's token]; the child is
/// accepted if u <= acc / max(threshold_acc, 1e-9) or q[token] >= threshold_single, and its node is next; if not, draft_probs gets q of the
/// token. At most S - 1 are accepted. At the last node one more token is drawn, from r = max(q - draft_probs, 0), or from q where S - 1
/// were accepted: the first whose running sum of r exceeds uniform_samples_for_final_sampling[b] times the sum of r; V - 1 if there is
/// none. predicts, accept_index and accept_token_num are those of verify_tree_greedy. Source: sgl-kernel
/// `tree_speculative_sampling_target_only`.
struct TreeSpeculativeSamplingTargetOnly {
  Tensor predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token, retrive_next_sibling;
  Tensor uniform_samples, uniform_samples_for_final_sampling, target_probs, draft_probs;
  double threshold_single = 1.0, threshold_acc = 1.0;
  bool deterministic = true;

  static constexpr OpInfo info{"tree_speculative_sampling_target_only", Category::speculative, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature(
        "predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token, retrive_next_sibling, uniform_samples, "
        "uniform_samples_for_final_sampling, target_probs, draft_probs, threshold_single, threshold_acc, deterministic");
    op.in("candidates", candidates, {i64}, "B D")
        .layout(Layout::contiguous)
        .kin("choices below V")
        .doc("draft token of each node, below V");
    describe_tree_links(op, *this, "predicts");
    op.in("uniform_samples", uniform_samples, {f32}, "B D")
        .layout(Layout::contiguous)
        .role(Role::coins)
        .doc("a coin for each node, in [0, 1)");
    op.in("uniform_samples_for_final_sampling", uniform_samples_for_final_sampling, {f32}, "B")
        .layout(Layout::contiguous)
        .role(Role::coins)
        .doc("a coin for each request's last token");
    op.in("target_probs", target_probs, {f32}, "B D V").layout(Layout::contiguous).role(Role::probs).doc("q behind each node");
    op.inout("draft_probs", draft_probs, {f32}, "B D V")
        .layout(Layout::contiguous)
        .role(Role::probs)
        .doc("what the last token is not drawn from: zeros in use, then q of what was rejected");
    op.attr("threshold_single", threshold_single, between(0, 1)).doc("accepts whatever is as probable; below 1 favours drafts");
    op.attr("threshold_acc", threshold_acc, between(0, 1)).doc("divides acc; below 1 favours drafts");
    op.attr("deterministic", deterministic).doc("which of upstream's scans draws the last token; says nothing of its distribution");
    describe_tree_path(op, *this, Judge::top_k, "token after each place of the path. The others are -1, upstream leaves them as they were");
    op.symbol("V", {.minimum = 1, .maximum = std::int64_t{1} << 31});
  }

  TreeLinks links() const { return {retrive_index, retrive_next_token, retrive_next_sibling}; }
  std::int64_t requests() const { return candidates.size(0); }
  std::int64_t nodes() const { return candidates.size(1); }
  std::int64_t vocabulary() const { return target_probs.size(2); }
};

}  // namespace dodona::ops
