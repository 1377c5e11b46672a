#include "ops/moe/routing/kimi_k2_moe_fused_gate.h"

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/flaw.h"
#include "core/threads.h"
#include "ops/base/rows.h"
#include "ops/routing/hopper_rows.h"
#include "ops/routing/routed_rows.h"
#include "ops/routing/sigmoid_row.h"
#include "ops/routing/topk_call.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t experts = 384;
/// Up to so many tokens a block works on each, and beyond a warp.
constexpr std::int64_t most_tokens_by_block = 512, most_chosen_by_block = 8;

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, bias_in_weights, sigmoid_from_tanh };

struct KimiRouter {
  const KimiK2MoeFusedGate& op;
  Rule rule;
  std::vector<float> bias;

  struct Row {
    const KimiRouter& router;
    SigmoidRow row;

    /// What was chosen is marked with the lowest number.
    bool unspecified() const { return row.has_nan() || row.least_key(choose()) <= -std::numeric_limits<float>::max(); }
    std::vector<std::int64_t> choose() const { return row.choose(router.chosen()); }
    bool allows(std::span<const std::int64_t> chosen) const { return row.allows(chosen); }

    RoutedRow route(const std::vector<std::int64_t>& chosen) const {
      RoutedRow routed{chosen, chosen, {}};
      ChosenScores scores;
      for (const std::int64_t expert : chosen) {
        const auto e = static_cast<std::size_t>(expert);
        if (router.rule == Rule::bias_in_weights) {
          scores.add(row.keys[e], row.open[e]);
        } else if (router.rule == Rule::sigmoid_from_tanh) {
          const double score = TanhArithmetic::sigmoid(row.x[e]);
          scores.add(score, {score, score});
        } else {
          scores.add(fixed::sigmoid(row.x[e]), sigmoid_interval(f32, row.x[e]));
        }
      }
      const KimiK2MoeFusedGate& gate = router.op;
      const double factor = gate.apply_routed_scaling_factor_on_output ? static_cast<float>(gate.routed_scaling_factor) : 1.0;
      for (std::size_t k = 0; k < chosen.size(); ++k) {
        if (!gate.renormalize || scores.high_sum == 0) {
          routed.weights.push_back(scores.weight(k, false));
        } else {
          const Bounded weight = scores.weight(k);
          const Bounded scaled = (may_flush(weight.exact) ? weight.widened(flush_floor) : weight) * factor;
          routed.weights.push_back(factor == 1 ? scaled : rounded_f32(scaled));
        }
      }
      return routed;
    }
  };

  std::int64_t rows() const { return op.tokens(); }
  double row_cost() const { return 30.0 * experts; }
  std::int64_t chosen() const { return op.topk; }
  Row row(std::int64_t t) const {
    return {*this, SigmoidRow(router_row(op.input_tensor, t, experts), bias, op.tokens() <= most_tokens_by_block,
                              rule == Rule::sigmoid_from_tanh)};
  }
};

KimiRouter router_of(const KimiK2MoeFusedGate& op, Rule rule = Rule::right) {
  return {op, rule, bias_row(op.bias, experts)};
}

template <Rule rule>
void golden(const KimiK2MoeFusedGate& op, const Exec& exec, Reference* reference) {
  golden_routes(router_of(op, sigmoid_is_from_tanh(exec) ? Rule::sigmoid_from_tanh : rule), op.topk_weights, op.topk_ids, exec, reference);
}

bool loses_choices(const KimiK2MoeFusedGate& op) {
  return op.tokens() <= most_tokens_by_block && op.topk > most_chosen_by_block;
}

/// The ids with those that the kernel loses as golden mode would have made them behind the others: of equal keys these may be any.
Tensor with_lost_choices(const KimiRouter& router) {
  Tensor ids = router.op.topk_ids.clone();
  const std::int64_t topk = router.op.topk;
  for (std::int64_t t = 0; t < ids.size(0); ++t) {
    std::vector<bool> taken(experts);
    for (std::int64_t k = 0; k < topk; ++k) {
      const auto id = static_cast<std::int64_t>(quant::get(ids, t * topk + k));
      if ((k < most_chosen_by_block || k == topk - 1) && id >= 0 && id < experts) taken[static_cast<std::size_t>(id)] = true;
    }
    std::int64_t k = most_chosen_by_block;
    for (const std::int64_t expert : router.row(t).row.choose(experts))
      if (k < topk - 1 && !taken[static_cast<std::size_t>(expert)]) quant::set(ids, t * topk + k++, static_cast<double>(expert));
  }
  return ids;
}

void condition(const KimiK2MoeFusedGate& actual, const Exec& exec, Reference& reference) {
  const KimiRouter router = router_of(actual);
  condition_routes(router, actual.topk_weights, loses_choices(actual) ? with_lost_choices(router) : actual.topk_ids, exec, reference);
}

void fast(const KimiK2MoeFusedGate& op, const Exec& exec) {
  fast_topk_rows(op.input_tensor, op.bias, op.topk_weights, op.topk_ids, exec,
                 {.score = RouterScore::sigmoid,
                  .weight = RouterWeight::score,
                  .scale = op.renormalize ? RouterScale::quotient : RouterScale::none,
                  .softcap = 0.0f,
                  .factor = op.apply_routed_scaling_factor_on_output ? static_cast<float>(op.routed_scaling_factor) : 1.0f});
}

// ---- hopper

constexpr std::size_t lanes = 32, warps = 12;
using Lanes = std::array<Pick, lanes>;

/// Lane 0 of a warp that folds halves onto each other, as long as `replaces` says that the upper one is better.
template <class Replaces>
Pick folded(Lanes picks, const Replaces& replaces) {
  for (std::size_t distance = lanes / 2; distance > 0; distance /= 2)
    for (std::size_t lane = 0; lane < distance; ++lane)
      if (replaces(picks[lane + distance], picks[lane])) picks[lane] = picks[lane + distance];
  return picks[0];
}

constexpr Pick nothing{-std::numeric_limits<float>::max(), -1};

/// A thread for each expert: of equals the lane stays whose number, its bits reversed, is lower; then the warp likewise.
Pick largest_by_block(const std::vector<float>& keys) {
  const auto greater = [](const Pick& other, const Pick& own) { return other.value > own.value; };
  Lanes best;
  best.fill(nothing);
  for (std::size_t warp = 0; warp < warps; ++warp) {
    Lanes own;
    for (std::size_t lane = 0; lane < lanes; ++lane)
      own[lane] = {keys[warp * lanes + lane], static_cast<std::int64_t>(warp * lanes + lane)};
    best[warp] = folded(own, greater);
  }
  return folded(best, greater);
}

Pick largest_by_warp(const std::vector<float>& keys) {
  Lanes own;
  own.fill(nothing);
  for (std::size_t e = 0; e < keys.size(); ++e)
    if (keys[e] > own[e % lanes].value) own[e % lanes] = {keys[e], static_cast<std::int64_t>(e)};
  return folded(own, [](const Pick& other, const Pick& mine) {
    return other.value > mine.value || (other.value == mine.value && other.expert < mine.expert);
  });
}

/// Scores in order of choice; an expert of none is one that the kernel does not write.
std::vector<Pick> picks_of(const std::vector<float>& scores, std::vector<float> keys, std::int64_t topk, bool by_block) {
  std::vector<Pick> picks;
  for (std::int64_t k = 0; k < topk; ++k) {
    const Pick pick = by_block ? largest_by_block(keys) : largest_by_warp(keys);
    if (pick.expert < 0) {
      picks.push_back({0.0f, 0});
      continue;
    }
    const auto e = static_cast<std::size_t>(pick.expert);
    keys[e] = nothing.value;
    picks.push_back({scores[e], pick.expert});
  }
  return picks;
}

std::optional<Refusal> unsupported(const KimiK2MoeFusedGate& op, Mode mode) {
  if (mode == Mode::hopper && loses_choices(op))
    return Refusal{"topk", "is " + std::to_string(op.topk) + ", but the kernel for at most 512 tokens has room for 8"};
  return {};
}

/// Choices behind the eighth lie where the warps keep their maxima, which overwrite all but the last one. What that leaves names no
/// expert as a rule, and then nothing is written; a sum over the row takes what the buffer held.
bool explains_overwritten(const KimiK2MoeFusedGate& actual, std::string_view output, std::int64_t linear) {
  if (!loses_choices(actual)) return false;
  const std::int64_t choice = linear % actual.topk;
  return (choice >= most_chosen_by_block && choice < actual.topk - 1) || (output == "topk_weights" && actual.renormalize);
}

void hopper(const KimiK2MoeFusedGate& op, const Exec& exec) {
  namespace hw = quant::hopper;
  const std::vector<float> bias = bias_row(op.bias, experts);
  const auto factor = static_cast<float>(op.routed_scaling_factor);
  parallel_for(exec.threads, op.tokens(), 20.0 * static_cast<double>(experts * op.topk), [&](std::int64_t t) {
    std::vector<float> scores = router_row(op.input_tensor, t, experts), keys(scores.size());
    for (std::size_t e = 0; e < scores.size(); ++e) {
      scores[e] = hw::sigmoid(scores[e]);
      keys[e] = hw::add(scores[e], bias[e]);
    }
    std::vector<Pick> picks = picks_of(scores, std::move(keys), op.topk, op.tokens() <= most_tokens_by_block);
    float sum = 0;
    for (const Pick& pick : picks) sum = hw::add(sum, pick.value);
    if (op.renormalize && sum > 0)
      for (Pick& pick : picks) {
        pick.value = hw::div(pick.value, sum);
        if (op.apply_routed_scaling_factor_on_output) pick.value = hw::mul(pick.value, factor);
      }
    put_picks(op.topk_weights, op.topk_ids, t, picks, false);
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_kimi_k2_moe_fused_gate() {
  return define<ops::KimiK2MoeFusedGate>({
      .contract = R"(
s = 1/(1+exp(-x)) in fp32, key c = s + bias rounded to fp32; the topk largest c in falling order. Weights s; with renormalize,
unless their sum is 0, s over the sum in order of choice, and then, where it is applied, times fl32(routed_scaling_factor). Ties: to
the lower index for more than 512 tokens; up to 512 their order is open (upstream's kernel for those keeps the lane, and then the
warp, whose number with its bits reversed is lower; we the lower index). A row with a NaN is unspecified. ids are exact, except
that keys are known to an interval: the relative error of s is (1.25|x|+4)*e/(1+e) + 3 units of 2^-24, e = exp(-x), carried through
the sum; any choice that keys within their intervals give is accepted, with the weights that follow. Budget of the weights: the
intervals of s, topk + 3 units for sum and division, one for the factor. Rows whose sum may be flushed (below 2^-90) leave the
weights open. Where choices are lost (room-for-eight) the first eight and the last are judged with the best of the others between them.)",
      .contract_version = 2,
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .condition = ops::condition,
      .defects = {{"room-for-eight", "*",
                   "topk above 8 with at most 512 tokens: the kernel's shared memory has room for 8 choices, and behind them lie the "
                   "maxima of its warps, which overwrite the ninth and all later choices but the last; those name no expert as a rule, "
                   "and then their ids and weights are not written. With renormalize each weight is divided by a sum of what the buffer "
                   "held there; no check asks for topk",
                   ops::explains_overwritten}},
      .mistakes = {{"bias-in-weights", "the weights are made of score + bias, which is meant for choosing only",
                    ops::golden<ops::Rule::bias_in_weights>}},
      .customary = {{"topk_weights", CustomaryKind::sorted, 1e-2, 1e-3, "sgl-kernel/tests/test_kimi_k2_moe_fused_gate.py"},
                    {"topk_ids", CustomaryKind::unchecked, 0, 0, "sgl-kernel/tests/test_kimi_k2_moe_fused_gate.py"}},
      .cases = {"T=5 E=384 --attr topk=6 --attr routed_scaling_factor=2.872 --attr apply_routed_scaling_factor_on_output=true",
                "T=3 E=384 --attr topk=8 --dist ties", "T=4 E=384 --attr topk=8 --attr renormalize=false",
                "T=514 E=384 --attr topk=6 --dist ties"},
      .bench_cases = {"T=1 E=384 --attr topk=8", "T=64 E=384 --attr topk=8", "T=1024 E=384 --attr topk=8"},
  });
}
}  // namespace dodona
