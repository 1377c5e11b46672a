#include "ops/moe/deepep/deepep_get_dispatch_layout.h"

#include <algorithm>
#include <string>

#include "ops/base/golden_output.h"
#include "ops/schemes/rank_tokens.h"

namespace dodona::ops {
namespace {

using Layouts = DeepepGetDispatchLayout;

constexpr std::int64_t node_ranks = 8;

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, slots_for_tokens };

void count_experts(const Layouts& op) {
  auto* const counts = op.num_tokens_per_expert.as<std::int32_t>();
  std::fill_n(counts, op.num_tokens_per_expert.elements(), 0);
  const std::int64_t slots = op.topk_idx.size(1) * op.topk_idx.size(2);
  for (std::int64_t i = 0; i < op.topk_idx.elements(); ++i)
    if (const std::int64_t e = op.topk_idx.as<const std::int64_t>()[i]; e >= 0) ++counts[i / slots * op.num_experts + e];
}

void count_ranks(const Layouts& op) {
  const RankTokens tokens = rank_tokens(op.topk_idx, op.num_experts);
  std::copy(tokens.goes.begin(), tokens.goes.end(), op.is_token_in_rank.as<std::uint8_t>());
  auto* const counts = op.num_tokens_per_rank.as<std::int32_t>();
  std::fill_n(counts, op.num_tokens_per_rank.elements(), 0);
  const bool nodes = op.num_tokens_per_rdma_rank.defined();
  if (nodes) std::fill_n(op.num_tokens_per_rdma_rank.as<std::int32_t>(), op.num_tokens_per_rdma_rank.elements(), 0);
  for (std::int64_t token = 0; token < tokens.ranks * tokens.tokens; ++token) {
    const std::int64_t from = token / tokens.tokens;
    for (std::int64_t d = 0; d < tokens.ranks; ++d) counts[from * tokens.ranks + d] += tokens.to(token, d) ? 1 : 0;
    if (!nodes) continue;
    for (std::int64_t n = 0; n < op.num_tokens_per_rdma_rank.size(1); ++n) {
      bool goes = false;
      for (std::int64_t d = n * node_ranks; d < std::min((n + 1) * node_ranks, tokens.ranks); ++d) goes = goes || tokens.to(token, d);
      op.num_tokens_per_rdma_rank.as<std::int32_t>()[from * op.num_tokens_per_rdma_rank.size(1) + n] += goes ? 1 : 0;
    }
  }
}

void fast(const Layouts& op, const Exec&) {
  count_experts(op);
  count_ranks(op);
}

template <Rule rule>
void golden(const Layouts& op, const Exec& exec, Reference* reference) {
  fast(op, exec);
  if (rule == Rule::slots_for_tokens) {
    const std::int64_t ranks = op.topk_idx.size(0), local = op.num_experts / ranks;
    for (std::int64_t i = 0; i < op.num_tokens_per_rank.elements(); ++i) {
      const std::int32_t* const experts = op.num_tokens_per_expert.as<std::int32_t>() + i * local;
      std::int32_t slots = 0;
      for (std::int64_t e = 0; e < local; ++e) slots += experts[e];
      op.num_tokens_per_rank.as<std::int32_t>()[i] = slots;
    }
  }
  record_exact(op.num_tokens_per_rank, reference, "num_tokens_per_rank");
  record_exact(op.num_tokens_per_rdma_rank, reference, "num_tokens_per_rdma_rank");
  record_exact(op.num_tokens_per_expert, reference, "num_tokens_per_expert");
  record_exact(op.is_token_in_rank, reference, "is_token_in_rank");
}

void check(const Layouts& op) {
  require_rank_experts(op.topk_idx, op.num_experts);
  const std::int64_t ranks = op.topk_idx.size(0);
  if ((op.internode || op.num_tokens_per_rdma_rank.defined()) && (ranks % node_ranks != 0 || ranks == node_ranks))
    throw Error(ErrorCode::bad_value, "", "internode",
                "is asked for with " + std::to_string(ranks) + " ranks, expected several nodes of " + std::to_string(node_ranks));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_deepep_get_dispatch_layout() {
  return define<ops::DeepepGetDispatchLayout>({
      .contract = R"(
Whole numbers. A token is counted once for a rank that has any of its experts, and once for a node that has; for an expert as often as it
names it. Slots of -1 count nowhere.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .check = ops::check,
      .mistakes = {{"slots-for-tokens", "a token is counted for a rank as often as it has experts there",
                    ops::golden<ops::Rule::slots_for_tokens>}},
      .cases = {"R=2 T=7 topk=3 --attr num_experts=6", "R=4 T=5 topk=4 --attr num_experts=8",
                "R=16 T=3 topk=4 --attr num_experts=32 --attr internode=true"},
      .bench_cases = {"R=8 T=512 topk=8 --attr num_experts=256"},
  });
}
}  // namespace dodona
