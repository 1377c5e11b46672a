#include "ops/moe/moe_fused_gate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/fixed_math.h"
#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/routing/gate_order.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

float rounded(DType type, float x) {
  return type == f32 ? x : static_cast<float>(quant::round_to(type, x));
}

/// What upstream's maxima start from; in 16-bit types it rounds to -inf.
float lowest(DType type) {
  return rounded(type, -std::numeric_limits<float>::max());
}

/// A NaN counts as -inf wherever keys are compared.
float as_key(float x) {
  return std::isnan(x) ? -infinity : x;
}

/// One row: unbiased scores, which become weights, and biased ones, which are compared.
struct Scores {
  std::vector<float> weights, keys;
};

/// The rule itself, and mistakes of gating kernels.
enum class Rule {
  right,
  bias_in_weights,       ///< weights are made of s + bias
  not_renormalized,      ///< weights are s itself
  group_by_maximum,      ///< a group's score is its best key alone
  ties_to_higher_index,  ///< among experts and among groups
};

struct ExactArithmetic {
  static float sigmoid(float x) { return static_cast<float>(fixed::sigmoid(x)); }
  static float add(float a, float b) { return a + b; }
};
struct HopperArithmetic {
  static float sigmoid(float x) { return quant::hopper::sigmoid(x); }
  static float add(float a, float b) { return quant::hopper::add(a, b); }
};

std::vector<float> row_of(const Tensor& t, std::int64_t row, std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  quant::to_f32(t.dtype(), row_begin(t, row, bits(t.dtype()) / 8), values.data(), n);
  return values;
}

template <class Arithmetic>
Scores score(DType type, const std::vector<float>& x, const std::vector<float>& bias) {
  Scores scores{std::vector<float>(x.size()), std::vector<float>(x.size())};
  for (std::size_t e = 0; e < x.size(); ++e) {
    scores.weights[e] = rounded(type, Arithmetic::sigmoid(x[e]));
    scores.keys[e] = as_key(rounded(type, Arithmetic::add(scores.weights[e], bias[e])));
  }
  return scores;
}

/// The groups in order: falling sum of the two best keys, lower index first.
template <class Arithmetic>
std::vector<std::int64_t> ordered_groups(const MoeFusedGate& op, const std::vector<float>& keys, Rule rule) {
  const DType type = op.input_tensor.dtype();
  const auto groups = static_cast<std::size_t>(op.num_expert_group), members = keys.size() / groups;
  std::vector<float> sums(groups);
  for (std::size_t j = 0; j < groups; ++j) {
    float first = lowest(type), second = first;
    for (std::size_t e = j * members; e < (j + 1) * members; ++e) {
      second = std::max(second, std::min(first, keys[e]));
      first = std::max(first, keys[e]);
    }
    sums[j] = as_key(rule == Rule::group_by_maximum ? first : rounded(type, Arithmetic::add(first, second)));
  }
  std::vector<std::int64_t> order(groups);
  std::iota(order.begin(), order.end(), 0);
  if (rule == Rule::ties_to_higher_index) std::reverse(order.begin(), order.end());
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return sums[static_cast<std::size_t>(a)] > sums[static_cast<std::size_t>(b)]; });
  return order;
}

/// The chosen experts, in order.
template <class Arithmetic>
std::vector<std::int64_t> choose(const MoeFusedGate& op, const std::vector<float>& keys, Rule rule = Rule::right) {
  std::vector<std::int64_t> kept = ordered_groups<Arithmetic>(op, keys, rule);
  kept.resize(static_cast<std::size_t>(op.topk_group));
  std::sort(kept.begin(), kept.end());
  const std::int64_t members = op.experts() / op.num_expert_group;
  std::vector<std::int64_t> candidates;
  for (const std::int64_t group : kept)
    for (std::int64_t e = group * members; e < (group + 1) * members; ++e) candidates.push_back(e);
  if (rule == Rule::ties_to_higher_index) std::reverse(candidates.begin(), candidates.end());
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](std::int64_t a, std::int64_t b) { return keys[static_cast<std::size_t>(a)] > keys[static_cast<std::size_t>(b)]; });
  candidates.resize(static_cast<std::size_t>(op.routed()));
  return candidates;
}

// ---- what the contract leaves open

struct Interval {
  double low, high;
};

/// Where an honest implementation's score lies, after its rounding to the type. NaN for NaN.
/// e^-x is off by |x| (the rounded product x*log2(e), whose constant adds 0.22) and 4 units of 2^-24 (2^-22: ex2.approx, or 2 units of
/// expf), which reaches 1/(1+e) by the share e/(1+e); then one rounding of the sum, 2 of the reciprocal (1 unit). Below 2^-126 it may be
/// flushed.
Interval score_interval(DType type, double x) {
  const double s = fixed::sigmoid(x);
  if (!(s >= 0x1p-151)) return {static_cast<float>(s), static_cast<float>(s)};  // NaN, or zero in fp32
  // e^-x below 2^-25: every implementation's 1/(1+e) is exactly 1.
  if (x > 17.329) return {1.0, 1.0};
  const double relative = (fixed::sigmoid(-x) * (1.25 * std::fabs(x) + 4.0) + 3.0) * f32_eps;
  const double low = s * (1.0 - relative), high = std::min(1.0, s * (1.0 + relative));
  return {rounded(type, static_cast<float>(low < 2 * flush_floor ? 0.0 : low)), rounded(type, static_cast<float>(high))};
}

/// rn(a + b) over both intervals; what is denormal may be flushed.
Interval sum_interval(DType type, Interval a, Interval b) {
  const auto flushable = [](Interval x) {
    if (std::fabs(x.low) < flush_floor) x.low = std::min(x.low, 0.0);
    if (std::fabs(x.high) < flush_floor) x.high = std::max(x.high, 0.0);
    return x;
  };
  a = flushable(a);
  b = flushable(b);
  const auto sum = [&](double x, double y) { return static_cast<double>(as_key(rounded(type, static_cast<float>(x + y)))); };
  return flushable({sum(a.low, b.low), sum(a.high, b.high)});
}

std::vector<GateKey> expert_keys(DType type, const std::vector<float>& x, const std::vector<float>& bias) {
  std::vector<GateKey> keys;
  for (std::size_t e = 0; e < x.size(); ++e) {
    const Interval c = sum_interval(type, score_interval(type, x[e]), {bias[e], bias[e]});
    keys.push_back({c.low, c.high, {std::bit_cast<std::uint32_t>(x[e]), std::bit_cast<std::uint32_t>(bias[e])}});
  }
  return keys;
}

std::vector<GateKey> group_keys(DType type, std::int64_t groups, const std::vector<GateKey>& experts) {
  const std::size_t members = experts.size() / static_cast<std::size_t>(groups);
  const double floor = lowest(type);
  std::vector<GateKey> keys;
  for (std::size_t j = 0; j < static_cast<std::size_t>(groups); ++j) {
    std::vector<GateKey> sorted(experts.begin() + static_cast<std::ptrdiff_t>(j * members),
                                experts.begin() + static_cast<std::ptrdiff_t>((j + 1) * members));
    sorted.push_back({floor, floor, {~std::uint64_t{0}, 0}});
    sorted.push_back(sorted.back());
    for (GateKey& key : sorted) key = {std::max(key.low, floor), std::max(key.high, floor), key.origin};
    std::sort(sorted.begin(), sorted.end(),
              [](const GateKey& a, const GateKey& b) { return a.low != b.low ? a.low > b.low : a.origin > b.origin; });
    // Order statistics are monotone: the sum of the two best lies between those of the lower and of the upper ends.
    double first = floor, second = floor;
    for (const GateKey& key : sorted) {
      second = std::max(second, std::min(first, key.high));
      first = std::max(first, key.high);
    }
    const Interval sum = sum_interval(type, {sorted[0].low, first}, {sorted[1].low, second});
    // Two groups whose best two have the same inputs tie, if no third can come between.
    const auto settled = [&](const GateKey& key) { return key.high <= sorted[1].low || key.origin == sorted[1].origin; };
    const bool certain = std::all_of(sorted.begin() + 2, sorted.end(), settled);
    const auto packed = [](const GateKey& key) { return key.origin[0] << 32 | key.origin[1]; };
    std::array<std::uint64_t, 2> origin{packed(sorted[0]), packed(sorted[1])};
    if (origin[0] > origin[1]) std::swap(origin[0], origin[1]);
    if (!certain) origin = {~std::uint64_t{0}, j};
    keys.push_back({sum.low, sum.high, origin});
  }
  return keys;
}

// ---- golden

/// Weights of a row whose experts were chosen: s over the sum of s, and their slack.
void put_weights(const MoeFusedGate& op, const GoldenOutput& out, std::int64_t row, const std::vector<float>& x,
                 const std::vector<float>& bias, const Scores& scores, const std::vector<std::int64_t>& chosen, Rule rule = Rule::right) {
  const DType type = op.input_tensor.dtype();
  const bool biased = rule == Rule::bias_in_weights, divided = rule != Rule::not_renormalized;
  const std::vector<float>& values = biased ? scores.keys : scores.weights;
  std::vector<Interval> open;
  double sum = 0, low_sum = 0, high_sum = 0;
  for (const std::int64_t e : chosen) {
    const auto i = static_cast<std::size_t>(e);
    Interval interval = score_interval(type, x[i]);
    if (biased) interval = sum_interval(type, interval, {bias[i], bias[i]});
    open.push_back(interval);
    sum += values[i];
    low_sum += interval.low;
    high_sum += interval.high;
  }
  const double factor = op.apply_routed_scaling_factor_on_output ? op.routed_scaling_factor : 1.0;
  // Sums near the denormals may be flushed, and give NaN for 0/0.
  const bool lost = high_sum > 0 && low_sum < 0x1p-90;
  const auto put = [&](std::int64_t column, double exact, double slack) {
    const std::int64_t linear = row * op.topk + column;
    if (lost) {
      out.put_open(linear, exact);
    } else {
      out.put(linear, exact, std::isnan(exact) ? 0.0 : slack);
    }
  };
  for (std::size_t k = 0; k < chosen.size(); ++k) {
    const double s = values[static_cast<std::size_t>(chosen[k])], exact = divided ? s / sum : s;
    const double least = divided ? open[k].low / (open[k].low + (high_sum - open[k].high)) : open[k].low,
                 most = divided ? open[k].high / (open[k].high + (low_sum - open[k].low)) : open[k].high;
    // The scores' own intervals; routed - 1 roundings of the sum; 4 units of 2^-24 of the division (2 units in the last place).
    const double slack =
        std::max(std::fabs(most - exact), std::fabs(exact - least)) + std::fabs(exact) * (static_cast<double>(op.routed()) + 3.0) * f32_eps;
    put(static_cast<std::int64_t>(k), exact * factor, slack * std::fabs(factor));
  }
  for (std::int64_t k = op.routed(); k < op.topk; ++k) {
    // (sum / factor) / sum: one rounding and the division.
    const double exact = sum / op.routed_scaling_factor / (divided ? sum : 1.0) * factor;
    put(k, exact, std::fabs(exact) * 5.0 * f32_eps);
  }
}

void put_ids(const MoeFusedGate& op, const GoldenOutput& out, std::int64_t row, const std::vector<std::int64_t>& chosen) {
  for (std::int64_t k = 0; k < op.topk; ++k) {
    const std::int64_t id = k < op.routed() ? chosen[static_cast<std::size_t>(k)] : op.experts() + k - op.routed();
    out.put(row * op.topk + k, static_cast<double>(id), 0.0);
  }
}

double row_cost(const MoeFusedGate& op) {
  return 4.0 * static_cast<double>(op.experts());
}

template <Rule rule>
void golden(const MoeFusedGate& op, const Exec& exec, Reference* reference) {
  const GoldenOutput weights(op.topk_weights, reference, "topk_weights"), ids(op.topk_ids, reference, "topk_ids");
  weights.make_open();
  const DType type = op.input_tensor.dtype();
  const std::vector<float> bias = row_of(op.bias, 0, op.experts());
  parallel_for(exec.threads, op.input_tensor.size(0), row_cost(op), [&](std::int64_t t) {
    const std::vector<float> x = row_of(op.input_tensor, t, op.experts());
    const Scores scores = score<ExactArithmetic>(type, x, bias);
    const std::vector<std::int64_t> chosen = choose<ExactArithmetic>(op, scores.keys, rule);
    put_ids(op, ids, t, chosen);
    put_weights(op, weights, t, x, bias, scores, chosen, rule);
  });
}

/// Where the actual ids are another choice that the intervals allow, the reference becomes that choice with its weights.
void condition(const MoeFusedGate& actual, const Exec& exec, Reference& reference) {
  // Records are rewritten, the actual outputs are not.
  const Tensor weights_scratch = actual.topk_weights.clone(), ids_scratch = actual.topk_ids.clone();
  const GoldenOutput weights(weights_scratch, &reference, "topk_weights"), ids(ids_scratch, &reference, "topk_ids");
  const ReferenceOutput& expected = *reference.find("topk_ids");
  const DType type = actual.input_tensor.dtype();
  const std::vector<float> bias = row_of(actual.bias, 0, actual.experts());
  parallel_for(exec.threads, actual.input_tensor.size(0), row_cost(actual), [&](std::int64_t t) {
    std::vector<std::int64_t> chosen;
    bool same = true;
    for (std::int64_t k = t * actual.topk; k < t * actual.topk + actual.routed(); ++k) {
      chosen.push_back(static_cast<std::int64_t>(quant::get(actual.topk_ids, k)));
      same = same && static_cast<double>(chosen.back()) == expected.exact[static_cast<std::size_t>(k)];
    }
    if (same) return;
    const std::vector<float> x = row_of(actual.input_tensor, t, actual.experts());
    const auto is_nan = [](float value) { return std::isnan(value); };
    if (std::any_of(x.begin(), x.end(), is_nan) || std::any_of(bias.begin(), bias.end(), is_nan)) return;
    const std::vector<GateKey> experts = expert_keys(type, x, bias);
    const std::vector<GateKey> groups = group_keys(type, actual.num_expert_group, experts);
    if (!is_legitimate_choice(experts, groups, actual.topk_group, chosen)) return;
    put_ids(actual, ids, t, chosen);
    put_weights(actual, weights, t, x, bias, score<ExactArithmetic>(type, x, bias), chosen);
  });
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

void hopper(const MoeFusedGate& op, const Exec& exec) {
  namespace hw = quant::hopper;
  const DType type = op.input_tensor.dtype();
  const std::vector<float> bias = row_of(op.bias, 0, op.experts());
  parallel_for(exec.threads, op.input_tensor.size(0), row_cost(op), [&](std::int64_t t) {
    const std::vector<float> x = row_of(op.input_tensor, t, op.experts());
    const Scores scores = score<HopperArithmetic>(type, x, bias);
    const std::vector<std::int64_t> chosen = choose<HopperArithmetic>(op, scores.keys);
    put_ids(op, GoldenOutput(op.topk_ids, nullptr, "topk_ids"), t, chosen);
    float sum = 0;
    for (const std::int64_t e : chosen) sum = hw::add(sum, scores.weights[static_cast<std::size_t>(e)]);
    for (std::int64_t k = 0; k < op.topk; ++k) {
      float weight = k < op.routed() ? scores.weights[static_cast<std::size_t>(chosen[static_cast<std::size_t>(k)])]
                                     : static_cast<float>(sum / op.routed_scaling_factor);
      weight = hw::div(weight, sum);
      if (op.apply_routed_scaling_factor_on_output) weight = static_cast<float>(weight * op.routed_scaling_factor);
      quant::set(op.topk_weights, t * op.topk + k, weight);
    }
  });
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
f32(f64(weight)*factor). A NaN key or score counts as -inf (undefined upstream). ids are exact, except that keys and scores are
known to an interval: the relative error of s is (1.25|x|+4)*e/(1+e) + 3 units of 2^-24, e = exp(-x), carried through the
roundings. Any choice that keys within their intervals give is accepted, with the weights that follow; equal inputs, and keys
whose interval is one number (saturated scores, 16-bit types), tie exactly. Budget of the weights: the intervals of s, routed +
3 units for sum and division; shared experts 5 units. Rows whose sum of s may be flushed (below 2^-90) leave the weights open.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .check = ops::check,
      .condition = ops::condition,
      .mistakes = {{"bias-in-weights", "the weights are made of score + bias, which is meant for choosing only",
                    ops::golden<ops::Rule::bias_in_weights>},
                   {"weights-not-renormalized", "the weights are not divided by their sum", ops::golden<ops::Rule::not_renormalized>},
                   {"group-score-is-maximum", "a group's score is its best key, not the sum of its two best",
                    ops::golden<ops::Rule::group_by_maximum>},
                   {"ties-to-the-higher-index", "of equal candidates the later one is chosen",
                    ops::golden<ops::Rule::ties_to_higher_index>}},
      .cases = {"T=5 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8", shared_expert_case, scaled_output_case,
                "T=7 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8 --dtype input_tensor=bf16 --dist ties",
                "T=3 E=64 --attr num_expert_group=16 --attr topk_group=5 --attr topk=12 --dist ties"},
      .bench_cases = {"T=1 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8",
                      "T=16 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8",
                      "T=1024 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8"},
  });
}
}  // namespace dodona
