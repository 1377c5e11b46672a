#include "ops/moe/routing/moe_fused_gate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/flaw.h"
#include "core/threads.h"
#include "ops/base/rows.h"
#include "ops/routing/order.h"
#include "ops/routing/routed_rows.h"
#include "ops/routing/scores.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

/// The rule itself, and mistakes of gating kernels.
enum class Rule {
  right,
  bias_in_weights,   ///< weights are made of s + bias
  not_renormalized,  ///< weights are s itself
  group_by_maximum,
  ties_to_higher_index,
  dropped_count_as_zero,
  sigmoid_from_tanh,
};

ChoiceRule choice_rule(Rule rule) {
  switch (rule) {
    case Rule::group_by_maximum: return ChoiceRule::group_by_maximum;
    case Rule::ties_to_higher_index: return ChoiceRule::ties_to_higher_index;
    case Rule::dropped_count_as_zero: return ChoiceRule::dropped_count_as_zero;
    default: return ChoiceRule::right;
  }
}

Choice choice_of(const MoeFusedGate& op) {
  return {op.input_tensor.dtype(), op.num_expert_group, op.topk_group, op.routed()};
}

Interval key_interval(DType type, float x, float bias) {
  return sum_interval(type, sigmoid_interval(type, x), {bias, bias});
}

std::vector<GateKey> expert_keys(DType type, const std::vector<float>& x, const std::vector<float>& bias) {
  std::vector<GateKey> keys;
  for (std::size_t e = 0; e < x.size(); ++e) {
    const Interval c = key_interval(type, x[e], bias[e]);
    keys.push_back({c.low, c.high, {std::bit_cast<std::uint32_t>(x[e]), std::bit_cast<std::uint32_t>(bias[e])}});
  }
  return keys;
}

double row_cost(const MoeFusedGate& op) {
  return 4.0 * static_cast<double>(op.experts());
}

/// Upstream marks groups that it dropped by keys of FLT_MAX in the type, of 16-bit types infinity. Whether a key, or the sum of two, may be
/// that number: a sigmoid does not change such a bias.
bool mark_decides(const MoeFusedGate& op, const std::vector<float>& bias) {
  const DType type = op.bias.dtype();
  const float largest = type == f16 ? 65504.0f : std::numeric_limits<float>::max();
  return std::any_of(bias.begin(), bias.end(), [&](float b) { return b >= largest / 2; });
}

/// Whether a NaN key is the first one of its group, or is chosen for want of others.
bool nan_decides(const MoeFusedGate& op, const std::vector<float>& x, const std::vector<float>& bias) {
  std::vector<float> keys(x.size());
  for (std::size_t e = 0; e < x.size(); ++e) keys[e] = x[e] + bias[e];
  const auto is_nan = [](float key) { return std::isnan(key); };
  if (std::none_of(keys.begin(), keys.end(), is_nan)) return false;
  const std::size_t step = x.size() / static_cast<std::size_t>(op.num_expert_group);
  for (std::size_t e = 0; e < x.size(); e += step)
    if (is_nan(keys[e])) return true;
  const RouterScores scores = sigmoid_scores<ExactArithmetic>(op.input_tensor.dtype(), x, bias);
  const std::vector<std::int64_t> chosen = choose(choice_of(op), scores.keys, ExactArithmetic::add);
  return std::any_of(chosen.begin(), chosen.end(), [&](std::int64_t e) { return is_nan(keys[static_cast<std::size_t>(e)]); });
}

/// Whether so many experts are asked for that one is chosen whose key is no more than what upstream puts in the place of those that are.
bool takes_what_is_taken(const MoeFusedGate& op, const RouterScores& scores, float (*add)(float, float)) {
  const float lowest = lowest_key(op.input_tensor.dtype());
  const std::vector<std::int64_t> chosen = choose(choice_of(op), scores.keys, add);
  return std::any_of(chosen.begin(), chosen.end(), [&](std::int64_t e) { return scores.keys[static_cast<std::size_t>(e)] <= lowest; });
}

// ---- golden

struct GateRouter {
  const MoeFusedGate& op;
  Rule rule;
  std::vector<float> bias;

  struct Row {
    const GateRouter& router;
    std::vector<float> x;
    RouterScores scores;

    bool unspecified() const {
      return mark_decides(router.op, router.bias) || nan_decides(router.op, x, router.bias) ||
             takes_what_is_taken(router.op, scores, ExactArithmetic::add);
    }
    std::vector<std::int64_t> choose() const {
      return ops::choose(choice_of(router.op), scores.keys, ExactArithmetic::add, choice_rule(router.rule));
    }
    bool allows(const std::vector<std::int64_t>& chosen) const {
      const DType type = router.op.input_tensor.dtype();
      const std::vector<GateKey> experts = expert_keys(type, x, router.bias);
      return is_legitimate_choice(experts, group_keys(type, router.op.num_expert_group, experts), router.op.topk_group, chosen);
    }
    /// s over the sum of s, and the shared experts.
    RoutedRow route(const std::vector<std::int64_t>& chosen) const {
      const MoeFusedGate& gate = router.op;
      const DType type = gate.input_tensor.dtype();
      const bool biased = router.rule == Rule::bias_in_weights, over_sum = router.rule != Rule::not_renormalized;
      ChosenScores row_scores;
      for (const std::int64_t e : chosen) {
        const auto i = static_cast<std::size_t>(e);
        row_scores.add(biased ? scores.keys[i] : scores.weights[i], router.rule == Rule::sigmoid_from_tanh
                                                                        ? Interval{scores.weights[i], scores.weights[i]}
                                                                    : biased ? key_interval(type, x[i], router.bias[i])
                                                                             : sigmoid_interval(type, x[i]));
      }
      const double factor = gate.apply_routed_scaling_factor_on_output ? gate.routed_scaling_factor : 1.0;
      RoutedRow routed{chosen, chosen, {}};
      for (std::size_t k = 0; k < chosen.size(); ++k) {
        const Bounded weight = row_scores.weight(k, over_sum);
        // A quotient that is denormal may be flushed before it is multiplied.
        routed.weights.push_back((may_flush(weight.exact) ? weight.widened(flush_floor) : weight) * factor);
      }
      for (std::int64_t shared = 0; shared < gate.num_fused_shared_experts; ++shared) {
        // (sum / factor) / sum: one rounding and the division.
        const double exact = row_scores.sum / gate.routed_scaling_factor / (over_sum ? row_scores.sum : 1.0) * factor;
        routed.weights.push_back({exact, std::fabs(exact) * 5.0 * f32_eps, row_scores.sum_may_vanish()});
        routed.ids.push_back(gate.experts() + shared);
      }
      return routed;
    }
  };

  std::int64_t rows() const { return op.input_tensor.size(0); }
  double row_cost() const { return ops::row_cost(op); }
  std::int64_t chosen() const { return op.routed(); }
  Row row(std::int64_t t) const {
    std::vector<float> x = router_row(op.input_tensor, t, op.experts());
    const DType type = op.input_tensor.dtype();
    RouterScores scores =
        rule == Rule::sigmoid_from_tanh ? sigmoid_scores<TanhArithmetic>(type, x, bias) : sigmoid_scores<ExactArithmetic>(type, x, bias);
    return {*this, std::move(x), std::move(scores)};
  }
};

GateRouter router_of(const MoeFusedGate& op, Rule rule = Rule::right) {
  return {op, rule, router_row(op.bias, 0, op.experts())};
}

template <Rule rule>
void golden(const MoeFusedGate& op, const Exec& exec, Reference* reference) {
  golden_routes(router_of(op, sigmoid_is_from_tanh(exec) ? Rule::sigmoid_from_tanh : rule), op.topk_weights, op.topk_ids, exec, reference);
}

void condition(const MoeFusedGate& actual, const Exec& exec, Reference& reference) {
  condition_routes(router_of(actual), actual.topk_weights, actual.topk_ids, exec, reference);
}

// ---- fast, hopper

void fast(const MoeFusedGate& op, const Exec& exec) {
  constexpr std::int64_t block_rows = 8;
  const std::int64_t rows = op.input_tensor.size(0);
  parallel_for(exec.threads, (rows + block_rows - 1) / block_rows, block_rows * row_cost(op), [&](std::int64_t block) {
    const std::int64_t first = block * block_rows;
    const int bytes = bits(op.input_tensor.dtype()) / 8;
    const GateRows call{.input = row_begin(op.input_tensor, first, bytes),
                        .bias = op.bias.data(),
                        .weights = op.topk_weights.as<float>() + row_offset(op.topk_weights, first),
                        .ids = op.topk_ids.as<std::int32_t>() + row_offset(op.topk_ids, first),
                        .rows = std::min(block_rows, rows - first),
                        .input_stride = op.input_tensor.stride(0) * bytes,
                        .weights_stride = op.topk_weights.stride(0),
                        .ids_stride = op.topk_ids.stride(0),
                        .type = op.input_tensor.dtype(),
                        .experts = static_cast<int>(op.experts()),
                        .groups = static_cast<int>(op.num_expert_group),
                        .kept_groups = static_cast<int>(op.topk_group),
                        .routed = static_cast<int>(op.routed()),
                        .shared = static_cast<int>(op.num_fused_shared_experts),
                        .scaling = op.routed_scaling_factor,
                        .apply_scaling = op.apply_routed_scaling_factor_on_output};
    dispatch<MoeFusedGateKernel>(exec.isa, call);
  });
}

/// 16-bit types have sums of their own, which keep denormals.
struct HalfArithmetic {
  static float sigmoid(float x) { return HopperArithmetic::sigmoid(x); }
  static float add(float a, float b) { return a + b; }
};

/// Upstream's search: what is chosen gets the lowest number for a key, and dropped groups the largest in all keys, by which their first one
/// tells them: they take part with the lowest. So where nothing else is left an expert is chosen twice, or one of a dropped group.
std::vector<std::int64_t> searched(const Choice& choice, std::vector<float> keys, float (*add)(float, float)) {
  const float lowest = lowest_key(choice.type), mark = -lowest;
  const auto groups = static_cast<std::size_t>(choice.groups), members = keys.size() / groups;
  const std::vector<std::int64_t> kept = kept_groups(choice, keys, add);
  for (std::size_t e = 0; e < keys.size(); ++e)
    if (!std::binary_search(kept.begin(), kept.end(), static_cast<std::int64_t>(e / members))) keys[e] = mark;
  std::vector<std::int64_t> chosen;
  for (std::int64_t k = 0; k < choice.experts; ++k) {
    float best = 0;
    std::size_t expert = keys.size();
    for (std::size_t first = 0; first < keys.size(); first += members) {
      const bool dropped = keys[first] == mark;
      std::size_t own = first;
      for (std::size_t e = first; !dropped && e < first + members; ++e)
        if (keys[e] > keys[own]) own = e;
      const float key = dropped ? lowest : keys[own];
      if (expert == keys.size() || key > best) best = key, expert = own;
    }
    keys[expert] = lowest;
    chosen.push_back(static_cast<std::int64_t>(expert));
  }
  return chosen;
}

/// A number of double arithmetic as fp32, denormals flushed.
float narrowed(double x) {
  return quant::hopper::ftz(static_cast<float>(x));
}

template <class Arithmetic>
void hopper_with(const MoeFusedGate& op, const Exec& exec) {
  namespace hw = quant::hopper;
  const DType type = op.input_tensor.dtype();
  const std::vector<float> bias = router_row(op.bias, 0, op.experts());
  parallel_for(exec.threads, op.input_tensor.size(0), row_cost(op), [&](std::int64_t t) {
    const std::vector<float> x = router_row(op.input_tensor, t, op.experts());
    const RouterScores scores = sigmoid_scores<Arithmetic>(type, x, bias);
    const std::vector<std::int64_t> chosen = searched(choice_of(op), scores.keys, Arithmetic::add);
    float sum = 0;
    for (const std::int64_t e : chosen) sum = hw::add(sum, scores.weights[static_cast<std::size_t>(e)]);
    for (std::int64_t k = 0; k < op.topk; ++k) {
      float weight = k < op.routed() ? scores.weights[static_cast<std::size_t>(chosen[static_cast<std::size_t>(k)])]
                                     : narrowed(sum / op.routed_scaling_factor);
      weight = hw::div(weight, sum);
      if (op.apply_routed_scaling_factor_on_output) weight = narrowed(weight * op.routed_scaling_factor);
      quant::set(op.topk_weights, t * op.topk + k, weight);
      const std::int64_t id = k < op.routed() ? chosen[static_cast<std::size_t>(k)] : op.experts() + k - op.routed();
      quant::set(op.topk_ids, t * op.topk + k, static_cast<double>(id));
    }
  });
}

void hopper(const MoeFusedGate& op, const Exec& exec) {
  op.input_tensor.dtype() == f32 ? hopper_with<HopperArithmetic>(op, exec) : hopper_with<HalfArithmetic>(op, exec);
}

std::optional<Refusal> unsupported(const MoeFusedGate& op, Mode mode) {
  if (mode != Mode::hopper) return {};
  if (op.experts() == op.num_expert_group && op.input_tensor.dtype() != f32)
    return Refusal{"num_expert_group",
                   "is the number of experts: upstream's kernel stops at a misaligned address with one 16-bit key a group"};
  const std::vector<float> bias = router_row(op.bias, 0, op.experts());
  if (mark_decides(op, bias))
    return Refusal{"bias", "holds numbers that upstream's kernel takes for its mark of dropped groups: there is no hopper mode for that"};
  for (std::int64_t t = 0; t < op.input_tensor.size(0); ++t)
    if (nan_decides(op, router_row(op.input_tensor, t, op.experts()), bias))
      return Refusal{"input_tensor", "has a NaN in row " + std::to_string(t) +
                                         " where upstream's kernel leaves its choice to a race: there is no hopper mode for that"};
  return {};
}

void check(const MoeFusedGate& op) {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  const std::int64_t experts = op.experts(), groups = op.num_expert_group;
  if (!std::has_single_bit(static_cast<std::uint64_t>(experts)))
    throw Error(ErrorCode::bad_shape, "", "input_tensor",
                "has shape " + to_string(op.input_tensor.shape()) + ", expected [T, E] with E a power of two");
  if (experts % groups != 0 || experts / groups > 32)
    throw Error(ErrorCode::bad_value, "", "num_expert_group",
                "is " + number(groups) + ", expected a divisor of E = " + number(experts) + " that leaves at most 32 experts a group");
  if (op.topk_group > groups)
    throw Error(ErrorCode::bad_value, "", "topk_group",
                "is " + number(op.topk_group) + ", expected at most num_expert_group = " + number(groups));
  if (op.num_fused_shared_experts >= op.topk)
    throw Error(ErrorCode::bad_value, "", "num_fused_shared_experts",
                "is " + number(op.num_fused_shared_experts) + ", expected less than topk = " + number(op.topk));
  if (const std::int64_t available = op.topk_group * (experts / groups); op.routed() > available)
    throw Error(ErrorCode::bad_value, "", "topk",
                "asks for " + number(op.routed()) + " chosen experts, expected at most the " + number(available) +
                    " of topk_group = " + number(op.topk_group) + " groups");
  const bool used = op.num_fused_shared_experts > 0 || op.apply_routed_scaling_factor_on_output;
  const double magnitude = std::fabs(op.routed_scaling_factor);
  if (used && !(magnitude >= 0x1p-32 && magnitude <= 0x1p32))
    throw Error(ErrorCode::bad_value, "", "routed_scaling_factor",
                "is " + to_string(AttrValue(op.routed_scaling_factor)) +
                    ", expected 2^-32 to 2^32 in magnitude where shared experts or the output use it");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_moe_fused_gate() {
  const std::string shared_expert_case =
      "T=4 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=9 --attr num_fused_shared_experts=1 "
      "--attr routed_scaling_factor=2.5";
  const std::string scaled_output_case =
      "T=3 E=128 --attr num_expert_group=4 --attr topk_group=2 --attr topk=4 --attr routed_scaling_factor=2.5 "
      "--attr apply_routed_scaling_factor_on_output=true --dtype input_tensor=f16";
  return define<ops::MoeFusedGate>({
      .contract = R"(
s = 1/(1+exp(-x)) in fp32, rounded to the input type; key c = s + bias and a group's score, the sum of its two best keys, each
rounded to the type (maxima start from -FLT_MAX in the type, so groups of one expert all tie). The topk_group best groups are
kept, ties to the lower index; of their experts the best by c, ties to the lower index, in that order. Weights: s (unbiased,
fp32) over the sum of s in order of choice; shared experts f32(f64(sum)/factor) over the sum; then, with apply,
f32(f64(weight)*factor). A NaN key or score counts as -inf; where a NaN key is
the first one of its group, or would be chosen for want of others, the row is open, and refused by hopper mode: upstream's search
for a group's best starts from its first key, nothing compares greater than NaN, and what its lanes then agree on is left to a race.
Likewise where a bias is at least half the type's largest number: a key or a group's score may then be FLT_MAX (of 16-bit types infinity),
with which upstream marks groups that it dropped. Where an expert would be chosen whose key is -inf (in f32 -FLT_MAX, or less) the row is
open too: upstream puts that number in the place of keys that it took, and takes one again, as hopper mode does. ids are exact, except that keys and scores are
known to an interval: the relative error of s is (1.25|x|+4)*e/(1+e) + 3 units of 2^-24, e = exp(-x), carried through the
roundings. Any choice that keys within their intervals give is accepted, beside a NaN that leaves the row closed too, with the weights that
follow; equal inputs, and keys
whose interval is one number (saturated scores, 16-bit types), tie exactly. Budget of the weights: the intervals of s, routed +
3 units for sum and division; shared experts 5 units. Rows whose sum of s may be flushed (below 2^-90) leave the weights
open; a denormal weight may be flushed, also before its product with the factor.)",
      .contract_version = 3,
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .check = ops::check,
      .condition = ops::condition,
      .defects =
          {{"misaligned-one-key", "topk_ids",
            "16-bit keys in groups of one expert: the kernel stops at a misaligned address (an H200; 2 and more a group, and f32, run)"}},
      .mistakes = {{"bias-in-weights", "the weights are made of score + bias, which is meant for choosing only",
                    ops::golden<ops::Rule::bias_in_weights>},
                   {"weights-not-renormalized", "the weights are not divided by their sum", ops::golden<ops::Rule::not_renormalized>},
                   {"group-score-is-maximum", "a group's score is its best key, not the sum of its two best",
                    ops::golden<ops::Rule::group_by_maximum>},
                   {"ties-to-the-higher-index", "of equal candidates the later one is chosen",
                    ops::golden<ops::Rule::ties_to_higher_index>},
                   {"dropped-groups-count-as-zero",
                    "keys of groups that were dropped are masked with 0, more than the negative ones of those that were kept",
                    ops::golden<ops::Rule::dropped_count_as_zero>}},
      .customary = {{"topk_weights", CustomaryKind::sorted, 1e-2, 1e-3, "sgl-kernel/tests/test_moe_fused_gate.py (f32)"},
                    {"topk_ids", CustomaryKind::sorted, 1e-4, 1e-5, "sgl-kernel/tests/test_moe_fused_gate.py (f32)"}},
      .cases = {"T=5 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8", shared_expert_case, scaled_output_case,
                "T=7 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8 --dtype input_tensor=bf16 --dist ties",
                "T=3 E=64 --attr num_expert_group=16 --attr topk_group=5 --attr topk=12 --dist ties",
                "T=5 E=64 --attr num_expert_group=8 --attr topk_group=2 --attr topk=6 --special negative-weights"},
      .bench_cases = {"T=1 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8",
                      "T=16 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8",
                      "T=1024 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8"},
  });
}
}  // namespace dodona
