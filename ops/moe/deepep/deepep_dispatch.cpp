#include "ops/moe/deepep/deepep_dispatch.h"

#include <algorithm>
#include <string>
#include <vector>

#include "ops/base/golden_output.h"
#include "ops/rows/copies/placed_rows.h"
#include "ops/schemes/rank_tokens.h"

namespace dodona::ops {
namespace {

using Dispatch = DeepepDispatch;

/// Leading dimensions as one.
Tensor rows_of(const Tensor& t) {
  return t.reshape({t.size(0) * t.size(1), t.size(2)});
}

/// Which token (counted over all ranks) each row of each rank holds, -1 for none.
std::vector<std::int64_t> tokens_of(const RankTokens& sent) {
  std::vector<std::int64_t> all;
  for (std::int64_t d = 0; d < sent.ranks; ++d) {
    const std::vector<std::int64_t> received = sent.received_by(d);
    all.insert(all.end(), received.begin(), received.end());
    all.resize(static_cast<std::size_t>((d + 1) * sent.ranks * sent.tokens), -1);
  }
  return all;
}

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, ids_not_localized, weights_of_others_kept };

/// Experts and weights of one received row.
void place_choice(const Dispatch& op, std::int64_t row, std::int64_t token, std::int64_t first_expert, std::int64_t local_experts,
                  Rule rule) {
  const std::int64_t topk = op.topk_idx.size(2);
  for (std::int64_t k = 0; k < topk; ++k) {
    std::int64_t& id = op.recv_topk_idx.as<std::int64_t>()[row * topk + k];
    float& weight = op.recv_topk_weights.as<float>()[row * topk + k];
    id = -1;
    weight = 0.0f;
    if (token < 0) continue;
    const std::int64_t chosen = op.topk_idx.as<const std::int64_t>()[token * topk + k], local = chosen - first_expert;
    const bool here = chosen >= 0 && local >= 0 && local < local_experts;
    if (here) id = rule == Rule::ids_not_localized ? chosen : local;
    if (here || rule == Rule::weights_of_others_kept) weight = op.topk_weights.as<const float>()[token * topk + k];
  }
}

std::vector<std::int64_t> place(const Dispatch& op, const Exec& exec, Rule rule) {
  const RankTokens sent = rank_tokens(op.topk_idx, op.num_experts);
  std::vector<std::int64_t> tokens = tokens_of(sent);
  place_rows(tokens, rows_of(op.x), op.recv_x, exec);
  if (op.recv_x_scales.defined()) place_rows(tokens, rows_of(op.x_scales), op.recv_x_scales, exec);
  const std::int64_t room = sent.ranks * sent.tokens;
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    const auto at = static_cast<std::int64_t>(row);
    place_choice(op, at, tokens[row], at / room * sent.local_experts, sent.local_experts, rule);
    op.recv_src_idx.as<std::int32_t>()[row] = tokens[row] < 0 ? 0 : static_cast<std::int32_t>(tokens[row] % sent.tokens);
  }
  const std::vector<std::int32_t> prefixes = sent.prefixes();
  std::copy(prefixes.begin(), prefixes.end(), op.rank_prefix_matrix.as<std::int32_t>());
  auto* const counts = op.num_recv_tokens_per_expert.as<std::int32_t>();
  std::fill_n(counts, op.num_experts, 0);
  for (std::int64_t i = 0; i < op.topk_idx.elements(); ++i)
    if (const std::int64_t e = op.topk_idx.as<const std::int64_t>()[i]; e >= 0) ++counts[e];
  for (std::int64_t e = 0; e < op.num_experts; ++e)
    counts[e] = static_cast<std::int32_t>((counts[e] + op.expert_alignment - 1) / op.expert_alignment * op.expert_alignment);
  return tokens;
}

template <Rule rule>
void golden(const Dispatch& op, const Exec& exec, Reference* reference) {
  const std::vector<std::int64_t> tokens = place(op, exec, rule);
  if (reference == nullptr) return;
  const auto record = [&](const Tensor& t, std::string_view name) {
    if (t.defined()) record_placed(tokens, t, nullptr, *reference, name, {}, RowOrder::fixed);
  };
  record(op.recv_x, "recv_x");
  record(op.recv_x_scales, "recv_x_scales");
  record(op.recv_topk_weights, "recv_topk_weights");
  record(op.recv_src_idx, "recv_src_idx");
  record_exact(op.recv_topk_idx, reference, "recv_topk_idx");
  record_exact(op.num_recv_tokens_per_expert, reference, "num_recv_tokens_per_expert");
  record_exact(op.rank_prefix_matrix, reference, "rank_prefix_matrix");
}

void fast(const Dispatch& op, const Exec& exec) {
  place(op, exec, Rule::right);
}

void make_outputs(Dispatch& op) {
  if (!op.x_scales.defined() || op.x_scales.rank() != 3 || op.recv_x_scales.defined()) return;
  const std::int64_t ranks = op.x_scales.size(0), tokens = op.x_scales.size(1);
  op.recv_x_scales = Tensor(op.x_scales.dtype(), {ranks, ranks * tokens, op.x_scales.size(2)});
}

void check(const Dispatch& op) {
  require_rank_experts(op.topk_idx, op.num_experts);
  if (op.recv_x_scales.defined() && !op.x_scales.defined())
    throw Error(ErrorCode::bad_value, "", "recv_x_scales", "is given, expected x_scales with it");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_deepep_dispatch() {
  return define<ops::DeepepDispatch>({
      .contract = R"(
Copies of bits: a rank receives every token that names one of its experts, once, by the rank that sends it and in the order there. Ids become
those of the rank's own experts, all others -1 with weight 0; behind the last token -1. Codes, scales, weights and sources behind the last
token are unspecified (here 0).)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .make_outputs = ops::make_outputs,
      .check = ops::check,
      .mistakes = {{"ids-not-localized", "received ids count over the experts of all ranks", ops::golden<ops::Rule::ids_not_localized>},
                   {"weights-of-others-kept", "experts of other ranks keep their weights", ops::golden<ops::Rule::weights_of_others_kept>}},
      .cases = {"R=2 T=5 H=256 topk=3 --attr num_experts=8 --without x_scales",
                "R=4 T=3 H=256 Hs=2 topk=2 --dtype x=f8_e4m3 --attr num_experts=8 --attr expert_alignment=128",
                "R=2 T=4 H=512 Hs=1 topk=4 --dtype x=f8_e4m3 --dtype x_scales=i32 --attr num_experts=6"},
      .bench_cases = {"R=4 T=128 H=7168 Hs=56 topk=8 --dtype x=f8_e4m3 --attr num_experts=256 --attr expert_alignment=128"},
  });
}
}  // namespace dodona
