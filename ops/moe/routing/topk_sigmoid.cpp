#include "ops/moe/routing/topk_sigmoid.h"

#include <bit>
#include <cmath>
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

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, bias_in_weights, ties_to_higher_index, sigmoid_from_tanh, begins_at_minus_one, begins_at_zero };

ChoiceRule choice_rule(Rule rule) {
  switch (rule) {
    case Rule::ties_to_higher_index: return ChoiceRule::ties_to_higher_index;
    case Rule::begins_at_minus_one: return ChoiceRule::begins_at_minus_one;
    case Rule::begins_at_zero: return ChoiceRule::begins_at_zero;
    default: return ChoiceRule::right;
  }
}

/// a / b by a reciprocal: 2 units in the last place of that, one rounding. Sums near zero may be flushed, or have either sign.
Bounded times_reciprocal(const Bounded& a, const Bounded& b) {
  const double value = a.exact / b.exact, least = std::fabs(b.exact) - b.slack;
  if (!(least > 0x1p-90)) return {value, 0.0, true};
  return {value, (a.slack + std::fabs(value) * b.slack) / least + 5.0 * f32_eps * std::fabs(value), a.open || b.open};
}

struct SigmoidRouter {
  const TopkSigmoid& op;
  Rule rule;
  std::vector<float> bias;

  struct Row {
    const SigmoidRouter& router;
    SigmoidRow row;

    /// What was chosen is marked with -10000, and with other sizes the search begins at -1: below these upstream's kernels go astray.
    bool unspecified() const {
      const double mark = fits_a_warp(router.op.experts()) ? -10000.0 : -1.0;
      return row.has_nan() || row.least_key(choose()) <= mark;
    }
    std::vector<std::int64_t> choose() const { return row.choose(router.chosen(), choice_rule(router.rule)); }
    bool allows(std::span<const std::int64_t> chosen) const { return row.allows(chosen); }

    Bounded weight(std::int64_t expert) const {
      const auto e = static_cast<std::size_t>(expert);
      const double key = row.keys[e], added = router.rule == Rule::bias_in_weights ? 0.0 : router.bias[e];
      return {key - added, std::max(row.open[e].high - key, key - row.open[e].low)};
    }
    RoutedRow route(const std::vector<std::int64_t>& chosen) const {
      RoutedRow routed{chosen, chosen, {}};
      Bounded sum;
      double magnitude = 0;
      for (const std::int64_t e : chosen) {
        routed.weights.push_back(weight(e));
        const Bounded rounded = rounded_f32(routed.weights.back());
        sum = sum + rounded;
        magnitude += std::fabs(rounded.exact) + rounded.slack;
      }
      if (!router.op.renormalize) return routed;
      sum = sum.widened(static_cast<double>(chosen.size() - 1) * f32_eps * magnitude);
      for (Bounded& w : routed.weights) w = times_reciprocal(rounded_f32(w), sum);
      return routed;
    }
  };

  std::int64_t rows() const { return op.gating_output.size(0); }
  double row_cost() const { return 30.0 * static_cast<double>(op.experts()); }
  std::int64_t chosen() const { return op.topk(); }
  Row row(std::int64_t t) const {
    return {*this, SigmoidRow(router_row(op.gating_output, t, op.experts()), bias, false, rule == Rule::sigmoid_from_tanh)};
  }
};

SigmoidRouter router_of(const TopkSigmoid& op, Rule rule = Rule::right) {
  return {op, rule, bias_row(op.correction_bias, op.experts())};
}

template <Rule rule>
void golden(const TopkSigmoid& op, const Exec& exec, Reference* reference) {
  golden_routes(router_of(op, sigmoid_is_from_tanh(exec) ? Rule::sigmoid_from_tanh : rule), op.topk_weights, op.topk_ids, exec, reference);
}

void condition(const TopkSigmoid& actual, const Exec& exec, Reference& reference) {
  condition_routes(router_of(actual), actual.topk_weights, actual.topk_ids, exec, reference);
}

void fast(const TopkSigmoid& op, const Exec& exec) {
  fast_topk_rows(op.gating_output, op.correction_bias, op.topk_weights, op.topk_ids, exec,
                 {.score = RouterScore::sigmoid,
                  .weight = RouterWeight::key_less_bias,
                  .scale = op.renormalize ? RouterScale::reciprocal : RouterScale::none,
                  .softcap = 0.0f,
                  .factor = 1.0f});
}

void hopper(const TopkSigmoid& op, const Exec& exec) {
  namespace hw = quant::hopper;
  const std::int64_t experts = op.experts(), topk = op.topk();
  const auto* bias = op.correction_bias.defined() ? op.correction_bias.as<const float>() : nullptr;
  parallel_for(exec.threads, op.gating_output.size(0), 20.0 * static_cast<double>(experts * topk), [&](std::int64_t t) {
    std::vector<float> keys = router_row(op.gating_output, t, experts);
    for (std::size_t e = 0; e < keys.size(); ++e) {
      keys[e] = hw::sigmoid(keys[e]);
      if (bias != nullptr) keys[e] = hw::add(keys[e], bias[e]);
    }
    std::vector<Pick> picks;
    if (fits_a_warp(experts)) {
      WarpRow row(op.gating_output.dtype(), keys);
      for (std::int64_t k = 0; k < topk; ++k) picks.push_back(row.take());
    } else {
      picks = BlockRow(std::move(keys)).take(topk);
    }
    if (bias != nullptr)
      for (Pick& pick : picks) pick.value = hw::sub(pick.value, bias[pick.expert]);
    put_picks(op.topk_weights, op.topk_ids, t, picks, op.renormalize);
  });
}

void check(const TopkSigmoid& op) {
  require_enough_experts(op.topk(), op.experts());
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_topk_sigmoid() {
  return define<ops::TopkSigmoid>({
      .contract = R"(
s = 1/(1+exp(-x)) in fp32, key c = s + bias rounded to fp32; the topk largest c in falling order, ties to the lower index. Weights
c - bias, rounded to fp32; with renormalize times the reciprocal of their sum in order of choice. A row with a NaN is
unspecified, and so is one of whose chosen keys one is at most -10000 (E a power of two up to 256) or -1 (others): upstream's
kernels choose an expert twice there. ids are exact, except that keys are known to an interval: the relative error of s is
(1.25|x|+4)*e/(1+e) + 3 units of 2^-24, e = exp(-x), carried through the sum; any choice that keys within their intervals give is
accepted, with the weights that follow. Budget of the weights: the interval of c; with renormalize the intervals of the sum,
topk - 1 roundings of it and 5 units. Sums that may be below 2^-90 leave the weights open.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .check = ops::check,
      .condition = ops::condition,
      .mistakes = {{"bias-in-weights", "the weights are made of score + bias, which is meant for choosing only",
                    ops::golden<ops::Rule::bias_in_weights>},
                   {"ties-to-the-higher-index", "of equal candidates the later one is chosen",
                    ops::golden<ops::Rule::ties_to_higher_index>},
                   {"search-begins-at-minus-one",
                    "the search for the largest begins with expert 0 at -1: where every score and its bias is less, expert 0 is chosen",
                    ops::golden<ops::Rule::begins_at_minus_one>},
                   {"search-begins-at-zero",
                    "the search for the largest begins with expert 0 at 0: where every score and its bias is negative, expert 0 is chosen",
                    ops::golden<ops::Rule::begins_at_zero>}},
      .customary = {{"topk_weights", CustomaryKind::close, 1e-3, 1e-3, "sgl-kernel/tests/test_moe_topk_sigmoid.py"},
                    {"topk_ids", CustomaryKind::close, 0, 0, "sgl-kernel/tests/test_moe_topk_sigmoid.py"}},
      .cases = {"T=5 E=256 topk=8", "T=7 E=256 topk=8 --attr renormalize=true --with correction_bias",
                "T=6 E=64 topk=6 --dtype gating_output=bf16 --attr renormalize=true --dist ties",
                "T=3 E=48 topk=4 --dtype gating_output=f16 --dist ties", "T=4 E=37 topk=3 --with correction_bias",
                "T=3 E=64 topk=2 --with correction_bias --special negative-weights"},
      .bench_cases = {"T=1 E=256 topk=8", "T=64 E=256 topk=8", "T=1024 E=256 topk=8"},
  });
}
}  // namespace dodona
