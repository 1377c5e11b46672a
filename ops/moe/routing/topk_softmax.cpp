#include "ops/moe/routing/topk_softmax.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/flaw.h"
#include "core/threads.h"
#include "ops/base/rows.h"
#include "ops/routing/hopper_rows.h"
#include "ops/routing/routed_rows.h"
#include "ops/routing/softmax_scores.h"
#include "ops/routing/topk_call.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, bias_after_softmax, ties_to_higher_index, exponentials_unshifted };

struct SoftmaxRouter {
  const TopkSoftmax& op;
  Rule rule;
  std::vector<float> bias;

  struct Row {
    const SoftmaxRouter& router;
    std::vector<GateKey> keys;
    SoftmaxScores scores;

    bool unspecified() const { return !scores.defined(); }
    std::vector<std::int64_t> choose() const {
      std::vector<float> shares;
      for (std::size_t e = 0; e < keys.size(); ++e) {
        const float added = router.rule == Rule::bias_after_softmax ? router.bias[e] : 0.0f;
        shares.push_back(as_key(static_cast<float>(scores.share(e)) + added));
      }
      const Choice all{f32, 1, 1, router.chosen()};
      return ops::choose(all, shares, ExactArithmetic::add,
                         router.rule == Rule::ties_to_higher_index ? ChoiceRule::ties_to_higher_index : ChoiceRule::right);
    }
    bool allows(std::span<const std::int64_t> chosen) const {
      const std::vector<GateKey> one_group{{0.0, 0.0, {}}};
      return is_legitimate_choice(keys, one_group, 1, chosen);
    }
    RoutedRow route(const std::vector<std::int64_t>& chosen) const {
      RoutedRow row{chosen, chosen, {}};
      if (router.op.renormalize) {
        row.weights = scores.renormalized(chosen);
      } else {
        for (const std::int64_t e : chosen) row.weights.push_back(scores.weight(static_cast<std::size_t>(e)));
      }
      return row;
    }
  };

  std::int64_t rows() const { return op.gating_output.size(0); }
  double row_cost() const { return 50.0 * static_cast<double>(op.experts()); }
  std::int64_t chosen() const { return op.topk(); }
  /// The kernel for other sizes and more than one expert keeps the later of equals, by the order of its reductions.
  bool ties_are_open() const { return !fits_a_warp(op.experts()) && op.topk() > 1; }

  Row row(std::int64_t t) const {
    const std::vector<float> x = router_row(op.gating_output, t, op.experts());
    const auto cap = static_cast<float>(op.moe_softcapping);
    std::vector<Bounded> logits;
    for (std::size_t e = 0; e < x.size(); ++e)
      logits.push_back(softmax_logit(x[e], cap, rule == Rule::bias_after_softmax ? 0.0f : bias[e]));
    Row row{*this, {}, SoftmaxScores(logits, rule != Rule::exponentials_unshifted)};
    for (std::size_t e = 0; e < x.size(); ++e) {
      const Interval key = row.scores.key(e);
      if (ties_are_open()) {
        row.keys.push_back({key.low, std::max(key.high, double{std::numeric_limits<float>::denorm_min()}), {e, ~std::uint64_t{0}}});
      } else {
        row.keys.push_back({key.low, key.high, {std::bit_cast<std::uint32_t>(x[e]), std::bit_cast<std::uint32_t>(bias[e])}});
      }
    }
    return row;
  }
};

SoftmaxRouter router_of(const TopkSoftmax& op, Rule rule = Rule::right) {
  return {op, rule, bias_row(op.correction_bias, op.experts())};
}

template <Rule rule>
void golden(const TopkSoftmax& op, const Exec& exec, Reference* reference) {
  golden_routes(router_of(op, exponentials_are_unshifted(exec) ? Rule::exponentials_unshifted : rule), op.topk_weights, op.topk_ids, exec,
                reference);
}

void condition(const TopkSoftmax& actual, const Exec& exec, Reference& reference) {
  condition_routes(router_of(actual), actual.topk_weights, actual.topk_ids, exec, reference);
}

void fast(const TopkSoftmax& op, const Exec& exec) {
  fast_topk_rows(op.gating_output, op.correction_bias, op.topk_weights, op.topk_ids, exec,
                 {.score = RouterScore::softmax,
                  .weight = RouterWeight::score,
                  .scale = op.renormalize ? RouterScale::reciprocal : RouterScale::none,
                  .softcap = static_cast<float>(op.moe_softcapping),
                  .factor = 1.0f});
}

// ---- hopper

namespace hw = quant::hopper;

float hopper_logit(float x, float cap, const float* bias) {
  if (cap != 0) x = hw::mul(hw::tanhf(hw::div(x, cap)), cap);
  return bias != nullptr ? hw::add(x, *bias) : x;
}

std::vector<Pick> by_a_warp(DType type, const std::vector<float>& logits, std::int64_t topk) {
  WarpRow row(type, logits);
  const float most = row.largest();
  row.each([&](float x, int) { return hw::expf(hw::sub(x, most)); });
  const float share = hw::rcp(row.sum());
  row.each([&](float y, int) { return hw::mul(y, share); });
  std::vector<Pick> picks;
  for (std::int64_t k = 0; k < topk; ++k) picks.push_back(row.take());
  return picks;
}

std::vector<Pick> by_a_block(const std::vector<float>& logits, std::int64_t topk) {
  float most = -std::numeric_limits<float>::max();
  for (const float x : logits) most = std::fmax(x, most);
  std::vector<float> y;
  y.reserve(logits.size());
  for (const float x : logits) y.push_back(hw::expf(hw::sub(x, most)));
  BlockRow row(std::move(y));
  const float share = hw::rcp(row.sum());
  for (float& value : row.values()) value = hw::mul(value, share);
  return topk == 1 ? row.take(1) : row.take_pairs(topk);
}

void hopper(const TopkSoftmax& op, const Exec& exec) {
  const std::int64_t experts = op.experts(), topk = op.topk();
  const auto cap = static_cast<float>(op.moe_softcapping);
  const auto* bias = op.correction_bias.defined() ? op.correction_bias.as<const float>() : nullptr;
  parallel_for(exec.threads, op.gating_output.size(0), 20.0 * static_cast<double>(experts * topk), [&](std::int64_t t) {
    std::vector<float> logits = router_row(op.gating_output, t, experts);
    for (std::size_t e = 0; e < logits.size(); ++e) logits[e] = hopper_logit(logits[e], cap, bias != nullptr ? bias + e : nullptr);
    const auto picks = fits_a_warp(experts) ? by_a_warp(op.gating_output.dtype(), logits, topk) : by_a_block(logits, topk);
    put_picks(op.topk_weights, op.topk_ids, t, picks, op.renormalize);
  });
}

void check(const TopkSoftmax& op) {
  require_enough_experts(op.topk(), op.experts());
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_topk_softmax() {
  return define<ops::TopkSoftmax>({
      .contract = R"(
Logits widened to fp32; with a cap, cap * tanh(x/cap); plus the bias; y = exp(x - max); shares y times the reciprocal of their
sum. The topk largest shares in falling order, ties to the lower index; where E is no power of two up to 256 and topk is above
1, the order of equals is open (upstream's kernel for those keeps the later ones). With renormalize: times the reciprocal of
the sum of the chosen. A row with a NaN, with +inf, or with nothing above -inf has no shares: it is unspecified (upstream's
kernel gives expert 0 in every column). Budget: y is off by (2.25|x - max| + 4) units of 2^-24 and by what is open of x, which
is nothing without a cap, and 2^-11 of the capped logit with one (tanh.approx); carried through the sum with E + 3 units (with
renormalize topk + 6). ids are exact, except that shares are known to such intervals: any choice that shares within them give
is accepted, with the weights that follow. Shares that certainly underflow are zero and tie; below 2^-126 they may.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .check = ops::check,
      .condition = ops::condition,
      .mistakes = {{"bias-after-softmax", "the bias is added to the shares, for choosing only, as sigmoid routers do",
                    ops::golden<ops::Rule::bias_after_softmax>},
                   {"ties-to-the-higher-index", "of equal shares the later one is chosen", ops::golden<ops::Rule::ties_to_higher_index>}},
      .customary = {{"topk_weights", CustomaryKind::close, 1e-3, 1e-3, "sgl-kernel/tests/test_moe_topk_softmax.py"},
                    {"topk_ids", CustomaryKind::close, 0, 0, "sgl-kernel/tests/test_moe_topk_softmax.py"}},
      .cases = {"T=5 E=256 topk=8", "T=7 E=256 topk=8 --attr renormalize=true --with correction_bias",
                "T=6 E=64 topk=6 --dtype gating_output=bf16 --attr renormalize=true --dist ties",
                "T=3 E=48 topk=4 --dtype gating_output=f16", "T=4 E=64 topk=4 --attr moe_softcapping=30", "T=3 E=160 topk=1 --dist ties"},
      .bench_cases = {"T=1 E=256 topk=8", "T=64 E=256 topk=8", "T=1024 E=256 topk=8"},
  });
}
}  // namespace dodona
