#include "ops/attention/merge_states.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/fixed_math.h"
#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/rows/sums/sum_rows.h"
#include "ops/softmax/flashinfer/merge_in_order.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Golden mode as it is, and with the mistakes that merging kernels make.
enum class Rule { right, shares_not_normalized, last_state_left_out, logarithm_left_out };

double cost(const MergeStates& op) {
  return static_cast<double>(op.v.size(1) * op.v.size(3));
}

/// The longest series of states, in order, each above the one before: no way to take them in order, or in parts of them in order, has more
/// new maxima.
double most_rescalings(const std::vector<double>& s) {
  std::vector<double> ends;
  for (const double value : s) {
    const auto place = std::lower_bound(ends.begin(), ends.end(), value);
    if (place == ends.end()) {
      ends.push_back(value);
    } else {
      *place = value;
    }
  }
  return static_cast<double>(ends.size());
}

/// One token's head: the states' shares, how far an honest implementation's may be off, relative, and the log-sum-exp.
struct Shares {
  std::vector<double> of, error;
  std::vector<bool> present;  ///< what is not empty, also where its share is zero about a larger maximum
  double roundings = 0;       ///< of a state's product on its way through the sums
  Bounded s;
};

Shares shares_of(const std::vector<double>& s) {
  const double top = *std::max_element(s.begin(), s.end()), count = static_cast<double>(s.size()), depth = fixed::log2(count);
  const double rescalings = most_rescalings(s) + 1;  // and one where parts are put together
  Shares shares;
  double sum = 0;
  for (const double value : s) {
    const double weight = value == -infinity ? 0.0 : fixed::exp2(value - top);
    // Differences up to the maximum add up to top - s, each rounded in fp32; an exponential is within 2^-22, and its product rounded; the
    // logarithm of a part's sum is within 2^-22 and rounded with its maximum.
    const double distance = weight > 0 ? top - value : 0.0,
                 part = weight > 0 ? std::max(std::fabs(top), std::fabs(value)) + depth + 4.0 : 0.0;
    shares.of.push_back(weight);
    shares.present.push_back(value != -infinity);
    shares.error.push_back(weight > 0 ? (0.6932 * (distance + part) + 5.0 * rescalings) * f32_eps : 0.0);
    sum += weight;
  }
  double mean_error = 0;
  for (std::size_t i = 0; i < s.size(); ++i) {
    shares.of[i] /= sum;
    mean_error += shares.of[i] * shares.error[i];
  }
  shares.roundings = count + 2.0 * rescalings;
  // The sum's own roundings; the logarithm within 2^-22, a second one where parts have theirs, and the rounding of its sum with a part's
  // maximum.
  const double log_sum = fixed::log2(sum);
  shares.s = {top + log_sum, 1.4427 * (mean_error + count * f32_eps) + (8.0 + 2.0 * log_sum) * f32_eps};
  return shares;
}

/// Sums about a maximum that later states exceed may come to all magnitudes, before their weights shrink them.
constexpr double largest_sum = 0x1p127;
/// Smaller weights may be zero.
constexpr double least_weight = 0x1p-120;

/// One element of the merged values.
Bounded merged_element(const std::vector<double>& v, const Shares& shares, DType type) {
  // Half a unit in the last place, of the least number of a binade, and of denormals.
  const double half_unit = type == DType::bf16 ? 0x1p-8 : 0x1p-11, half_least = type == DType::bf16 ? 0x1p-134 : 0x1p-25;
  double value = 0, magnitude = 0, moved = 0, flushed = 0, together = 0, largest = 0;
  bool open = false;
  for (std::size_t i = 0; i < v.size(); ++i) {
    if (shares.present[i] && std::isfinite(v[i])) {
      together += std::fabs(v[i]);
      largest = std::fmax(largest, std::fabs(v[i]));
    }
    if (shares.of[i] == 0 && std::isfinite(v[i])) continue;
    open = open || (!std::isfinite(v[i]) && shares.of[i] < least_weight);  // a weight that may be zero meets infinity
    value += shares.of[i] * v[i];
    magnitude += std::fabs(shares.of[i] * v[i]);
    flushed += flush_floor * (2.0 + std::fabs(v[i]));
  }
  // Sums that are divided at last may be beyond fp32, and those of parts, means of their states alone, beyond the type.
  open = open || !(together < largest_sum) || !(largest * (1 + 2 * half_unit) < (type == DType::bf16 ? 0x1.FEp127 : 65504.0));
  if (!std::isfinite(value)) return {value, 0.0, open};
  for (std::size_t i = 0; i < v.size(); ++i)
    if (shares.of[i] > 0) moved += shares.of[i] * shares.error[i] * std::fabs(v[i] - value);
  // Weights off move v toward their states; products and sums are rounded, so is the sum of the weights, and the quotient takes 4 units.
  // Sums of parts of the states may be rounded to the type before they are put together.
  const double slack = moved + (shares.roundings * f32_eps + half_unit) * magnitude +
                       (shares.roundings + 4.0) * f32_eps * std::fabs(value) + half_least + flushed;
  return {value, slack, open};
}

template <Rule rule>
void golden(const MergeStates& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.v_merged, reference, "v_merged"), lse(op.s_merged, reference, "s_merged");
  out.make_open();
  lse.make_open();
  const std::int64_t states = op.v.size(1), heads = op.v.size(2), width = op.v.size(3);
  parallel_for(exec.threads, op.s_merged.elements(), cost(op), [&](std::int64_t row) {
    const std::int64_t token = row / heads, head = row % heads;
    std::vector<double> s, v(static_cast<std::size_t>(states));
    for (std::int64_t i = 0; i < states; ++i) s.push_back(quant::get(op.s, (token * states + i) * heads + head));
    if (rule == Rule::last_state_left_out && states > 1) s.back() = -infinity;
    const auto values_at = [&](std::int64_t d) {
      for (std::int64_t i = 0; i < states; ++i)
        v[static_cast<std::size_t>(i)] = quant::get(op.v, ((token * states + i) * heads + head) * width + d);
    };
    if (states == 1) {  // copied, whatever it is, or merged with nothing: a maximum may drop what is no number
      const bool dropped = std::isnan(s[0]) || s[0] == infinity;
      lse.put(row, {s[0], std::fabs(s[0]) < flush_floor ? flush_floor : 0.0, dropped});
      for (std::int64_t d = 0; d < width; ++d) {
        values_at(d);
        out.put(row * width + d, {v[0], std::fabs(v[0]) < flush_floor ? flush_floor : 0.0, dropped || s[0] == -infinity});
      }
      return;
    }
    const bool undefined = std::any_of(s.begin(), s.end(), [](double value) { return std::isnan(value) || value == infinity; });
    const bool empty = std::all_of(s.begin(), s.end(), [](double value) { return value == -infinity; });
    if (undefined || empty) {
      const double nan = std::numeric_limits<double>::quiet_NaN();
      lse.put(row, {undefined ? nan : -infinity, 0.0, undefined});
      for (std::int64_t d = 0; d < width; ++d) {
        values_at(d);
        const bool finite = std::all_of(v.begin(), v.end(), [](double value) { return std::isfinite(value); });
        out.put(row * width + d, {undefined ? nan : 0.0, 0.0, undefined || !finite});
      }
      return;
    }
    Shares shares = shares_of(s);
    if (rule == Rule::logarithm_left_out) shares.s = {*std::max_element(s.begin(), s.end())};
    if (rule == Rule::shares_not_normalized) {
      const double largest = *std::max_element(shares.of.begin(), shares.of.end());
      for (double& share : shares.of) share /= largest;
    }
    lse.put(row, shares.s);
    for (std::int64_t d = 0; d < width; ++d) {
      values_at(d);
      out.put(row * width + d, merged_element(v, shares, op.v.dtype()));
    }
  });
}

constexpr double beginning = -5e4;
/// Beside states that lie so far above, nothing of it is left in fp32.
constexpr double least_above = 152;

/// FlashInfer's kernels up to 0.6.18, and its Triton kernels, begin their running maximum at -5e4, with a weight of 1 and values of 0, in
/// each of the parts that they take the states in: these weigh beside states that lie no higher.
bool begins_above(const MergeStates& actual, std::string_view output, std::int64_t linear) {
  constexpr double begin = beginning, most_parts = 32;
  const bool is_lse = output == "s_merged";
  const std::int64_t states = actual.v.size(1), heads = actual.v.size(2), width = actual.v.size(3), row = is_lse ? linear : linear / width;
  double top = -infinity;
  std::vector<double> s;
  for (std::int64_t i = 0; i < states; ++i) s.push_back(quant::get(actual.s, (row / heads * states + i) * heads + row % heads));
  for (const double value : s) top = std::fmax(top, value);
  if (states == 0 || !(top < begin + least_above)) return false;
  // The log-sum-exp of the states and of so many beginnings.
  const auto together = [&](double parts) {
    const double largest = std::fmax(top, begin);
    double sum = parts * fixed::exp2(begin - largest);
    for (const double value : s) sum += value == -infinity ? 0.0 : fixed::exp2(value - largest);
    return largest + fixed::log2(sum);
  };
  // Log-sum-exps of that size have steps of 2^-8 (2^-7 from 65536 on), and parts' are rounded too.
  const double least = together(1), most = together(most_parts),
               rounding = 4 * f32_eps * std::fmax(std::fabs(least), std::fabs(top < begin ? begin : top));
  if (is_lse) {
    const double lse = quant::get(actual.s_merged, row);
    return lse >= least - rounding && lse <= most + rounding;
  }
  double value = 0, magnitude = 0;
  for (std::int64_t i = 0; i < states; ++i) {
    const double v = quant::get(actual.v, ((row / heads * states + i) * heads + row % heads) * width + linear % width);
    const double share = s[static_cast<std::size_t>(i)] == -infinity ? 0.0 : fixed::exp2(s[static_cast<std::size_t>(i)] - least);
    if (!std::isfinite(v)) return !std::isfinite(quant::get(actual.v_merged, linear));  // times a weight, or NaN where that is zero
    value += share * v, magnitude += std::fabs(share * v);
  }
  const double got = quant::get(actual.v_merged, linear), shrunk = fixed::exp2(least - most);
  const double slack = (fixed::expm1(8 * rounding) + 0x1p-7) * magnitude + (actual.v.dtype() == DType::bf16 ? flush_floor : 0x1p-24);
  return got >= std::fmin(value, value * shrunk) - slack && got <= std::fmax(value, value * shrunk) + slack;
}

StatesMerge states_of(const MergeStates& op) {
  return {op.v, op.s, op.v_merged, op.s_merged};
}

std::optional<Refusal> unsupported(const MergeStates& op, Mode mode) {
  if (mode != Mode::hopper) return {};
  const std::int64_t heads = op.v.size(2), width = op.v.size(3);
  if (width != 64 && width != 128 && width != 256 && width != 512)
    return Refusal{"v", "has D = " + std::to_string(width) + ": the H200's kernel takes 64, 128, 256 and 512"};
  if (const std::int64_t threads = threads_of_merge(states_of(op)); threads > 1024)
    return Refusal{"v", "has N = " + std::to_string(heads) + " heads of D = " + std::to_string(width) +
                            ": the H200's kernel does not launch with " + std::to_string(threads) + " threads, more than 1024"};
  const std::int64_t states = op.v.size(1);
  for (std::int64_t row = 0; states > 0 && row < op.v.size(0) * heads; ++row) {
    double top = -infinity;
    for (std::int64_t i = 0; i < states; ++i) top = std::fmax(top, quant::get(op.s, (row / heads * states + i) * heads + row % heads));
    if (top < beginning + least_above)
      return Refusal{"s", "has a head of token " + std::to_string(row / heads) +
                              " whose states all lie about -5e4 or below, where releases of FlashInfer differ"};
  }
  return {};
}

void hopper(const MergeStates& op, const Exec& exec) {
  merge_in_order_hopper(states_of(op), exec);
}

/// Shares of one head in fp32, and its log-sum-exp.
float fast_shares(const float* s, std::int64_t step, std::vector<float>& shares) {
  float top = -std::numeric_limits<float>::infinity();
  bool undefined = false;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const float value = s[static_cast<std::int64_t>(i) * step];
    undefined = undefined || std::isnan(value) || value == std::numeric_limits<float>::infinity();
    top = std::max(top, value);
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  if (undefined || std::isinf(top)) {
    std::fill(shares.begin(), shares.end(), undefined ? nan : 0.0f);
    return undefined ? nan : top;
  }
  double sum = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const double weight = fixed::exp2(static_cast<double>(s[static_cast<std::int64_t>(i) * step]) - static_cast<double>(top));
    shares[i] = static_cast<float>(weight);
    sum += weight;
  }
  for (float& share : shares) share = static_cast<float>(static_cast<double>(share) / sum);
  return static_cast<float>(static_cast<double>(top) + fixed::log2(sum));
}

/// What rows are merged with, room that one row after the other uses.
struct RowShares {
  std::vector<float> all, factors;
  std::vector<std::int32_t> states;  ///< that have one

  explicit RowShares(std::int64_t count) : all(static_cast<std::size_t>(count), 1.0f) {}
};

void merge_row(const MergeStates& op, std::int64_t row, RowShares& shares, Isa isa) {
  const std::int64_t heads = op.v.size(2), token = row / heads, head = row % heads, bytes = bits(op.v.dtype()) / 8;
  const float* s = op.s.as<float>() + token * op.s.stride(0) + head * op.s.stride(2);
  float* lse = op.s_merged.as<float>() + token * op.s_merged.stride(0) + head * op.s_merged.stride(1);
  *lse = shares.all.size() == 1 ? *s : fast_shares(s, op.s.stride(1), shares.all);
  shares.states.clear(), shares.factors.clear();
  for (std::size_t i = 0; i < shares.all.size(); ++i) {
    if (shares.all[i] == 0) continue;  // what has no share may be anything
    shares.states.push_back(static_cast<std::int32_t>(i));
    shares.factors.push_back(shares.all[i]);
  }
  const SumRows sum{
      .input = static_cast<std::byte*>(op.v.data()) + (token * op.v.stride(0) + head * op.v.stride(2)) * bytes,
      .row_bytes = op.v.stride(1) * bytes,
      .permutation = shares.states.data(),
      .factors = shares.factors.data(),
      .scale = 1.0f,
      .output = static_cast<std::byte*>(op.v_merged.data()) + (token * op.v_merged.stride(0) + head * op.v_merged.stride(1)) * bytes,
      .count = static_cast<std::int64_t>(shares.states.size()),
      .n = op.v.size(3),
      .type = op.v.dtype(),
      .writing = Writing::cached,
      .start = shares.states.empty() ? 0.0f : -0.0f};
  dispatch<SumRowsKernel>(isa, sum);
}

void fast(const MergeStates& op, const Exec& exec) {
  constexpr std::int64_t together = 16;
  const std::int64_t rows = op.s_merged.elements();
  parallel_for(exec.threads, quant::ceil_div(rows, together), together * cost(op), [&](std::int64_t part) {
    RowShares shares(op.v.size(1));
    for (std::int64_t row = part * together; row < std::min((part + 1) * together, rows); ++row) merge_row(op, row, shares, exec.isa);
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_merge_states() {
  using ops::Rule;
  return define<ops::MergeStates>({
      .contract = R"(
fp32: m = max of the states' s, weights 2^(s - m), v = sum of v * weight / sum of weights, rounded once to the type (nearest even), s =
m + log2(sum). Log-sum-exps are in base 2. A state with s = -inf adds nothing; where all have it v = 0 and s = -inf; without states likewise. One
state is copied, or one that is empty gives 0; one whose s is +inf or NaN is open. s = +inf or NaN gives NaN, or what other states give where a
maximum drops NaN, as FlashInfer guards empty states: such rows are open; a weight below 2^-120 may be zero, or not, where states between are put together first; an infinite v whose weight may be flushed is open, and so is what has finite v whose magnitudes add up to 2^127, as sums about a maximum that later states exceed may leave fp32, or has a value so near the type's largest that a part's mean may round beyond it. States are taken in order, in one chain with a running maximum or in parts of them that are then put together, whose values may
be rounded to the type and whose log-sum-exps are rounded. Budget, in units of 2^-24, of n states whose longest rising series is k - 1: a weight's relative error
0.7*(m - s) + 0.7*(max(|m|, |s|) + log2(n) + 4) + 5 k moves v along its distance from the state; n + 2 k of the sum of |v * share|, half a unit of
the type of it (2^-8 or 2^-11, and half the least number), n + 2 k + 4 of |v|; s: 1.45 of the mean error and n, 8 and twice its logarithm; plus what flushed denormals carry. Hopper mode has the order of
FlashInfer's kernels from 0.6.19 on (ops/softmax/flashinfer/merge_in_order.h); rows whose states all lie about -5e4 or below, where releases before differ, it refuses.)",
      .contract_version = 3,
      .golden = ops::golden<Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .defects = {{"begins-at-a-finite-number", "s_merged",
                   "FlashInfer up to 0.6.18, and its Triton kernels, begin their maximum at -5e4: states of which none lies above give "
                   "about that, without keys -5e4 in the place of -inf, and values that are too small",
                   ops::begins_above}},
      .mistakes = {{"shares-not-normalized", "the weights are not divided by their sum", ops::golden<Rule::shares_not_normalized>},
                   {"last-state-left-out", "the last state is not merged", ops::golden<Rule::last_state_left_out>},
                   {"logarithm-left-out", "the largest log-sum-exp is written, without the logarithm of the sum",
                    ops::golden<Rule::logarithm_left_out>}},
      .cases = {"T=3 S=4 N=5 D=64", "T=2 S=9 N=3 D=128 --dtype v=f16", "T=4 S=1 N=2 D=24", "T=2 S=3 N=4 D=40 --special infinite-lse"},
      .bench_cases = {"T=1 S=64 N=64 D=128", "T=256 S=4 N=64 D=128"},
  });
}
}  // namespace dodona
