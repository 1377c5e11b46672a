#include "ops/routing/native_router.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "core/flaw.h"
#include "core/threads.h"
#include "dodona/error.h"
#include "ops/base/rows.h"
#include "ops/routing/routed_rows.h"
#include "ops/routing/softmax_scores.h"
#include "ops/routing/topk_call.h"

namespace dodona::ops {

std::string native_router_contract(std::string_view scores) {
  return std::string(scores) + R"(
Keys are scores plus the fp32 bias, in fp32. Weights are the scores of the chosen. The last column of several is a fused shared expert
where there are any: it weighs the sum of the others over the factor. With renormalize weights are divided by the sum of the chosen experts,
and with apply multiplied by the factor. The order of columns is open, and so are ties of groups and of experts: upstream calls torch.topk
with sorted=False. Rows with a NaN, or whose scores are none, are unspecified. Choices are accepted as keys within their intervals give
them: those of scores as in topk_softmax and topk_sigmoid. Budget of weights: the scores' intervals, topk roundings for the sum, 4 units of
2^-24 for the division, one for each product, and what the roundings to a 16-bit T make of that.)";
}

NativeRoundings compiled_roundings(DType type, bool softmax, std::int64_t shared) {
  return {softmax ? type : f32, shared > 0 ? type : f32, f32};
}

namespace {

float in_bf16(float x) {
  return rounded_score(DType::bf16, x);
}
float add_in_bf16(float a, float b) {
  return in_bf16(ExactArithmetic::add(a, b));
}

/// 0.5 tanh(0.5 x) + 0.5 where tanh may be the approximate instruction, which is within 2^-11 of it, relative: what tanhf becomes with fast
/// math, by which FlashInfer compiles.
Interval interval_of_instruction(float x) {
  const double s = tanh_sigmoid(x);
  if (std::isnan(s) || std::isinf(x)) return {s, s};
  const double error = 0x1.01p-12 * std::fabs(2 * s - 1) + f32_eps;
  const auto number = [](double value) { return static_cast<double>(static_cast<float>(value)); };
  return {number(std::max(0.0, s - error)), number(std::min(1.0, s + error))};
}

double sigmoid_of(const NativeRouter& router, float x) {
  return router.from_tanh ? tanh_sigmoid(x) : fixed::sigmoid(x);
}

/// A row's scores, golden mode's keys, and where those of an honest implementation lie.
struct NativeRow {
  const NativeRouter& router;
  NativeRule rule;
  std::vector<Bounded> scores;
  std::vector<float> keys;
  std::vector<GateKey> open;
  bool defined = true;

  NativeRow(const NativeRouter& native, NativeRule how, std::int64_t t, bool shifted = true) : router(native), rule(how) {
    const std::vector<float> x = router_row(router.logits, t, router.experts()), bias = bias_row(router.bias, router.experts());
    const DType type = router.to.scores;
    std::vector<Bounded> logits;
    if (router.softmax)
      for (const float value : x) logits.push_back({value});
    const SoftmaxScores shares(logits, shifted);
    defined = !router.softmax || shares.defined();
    for (std::size_t e = 0; e < x.size(); ++e) {
      const bool approximate = rule == NativeRule::sigmoid_from_tanh;
      const double exact = router.softmax ? shares.share(e) : approximate ? TanhArithmetic::sigmoid(x[e]) : sigmoid_of(router, x[e]);
      defined = defined && !std::isnan(exact) && !std::isnan(bias[e]);
      const double score = type == f32 ? exact : rounded_score(type, static_cast<float>(exact));
      const Interval interval = router.softmax     ? rounded_interval(type, shares.weight(e))
                                : approximate      ? Interval{score, score}
                                : router.from_tanh ? interval_of_instruction(x[e])
                                                   : sigmoid_interval(type, x[e]);
      scores.push_back({score, std::max({interval.high - score, score - interval.low, 0.0})});
      const Interval key = sum_interval(f32, interval, {bias[e], bias[e]});
      keys.push_back(as_key(rule == NativeRule::keys_in_bf16 ? add_in_bf16(in_bf16(static_cast<float>(score)), in_bf16(bias[e]))
                                                             : static_cast<float>(score) + bias[e]));
      open.push_back({key.low, std::nextafter(key.high, std::numeric_limits<double>::infinity()), {e, ~std::uint64_t{0}}});
    }
  }

  static Interval rounded_interval(DType type, const Bounded& x) {
    const auto number = [&](double value) { return static_cast<double>(rounded_score(type, static_cast<float>(value))); };
    const double low = x.exact - x.slack;
    return {number(low < 2 * flush_floor ? 0.0 : low), number(x.exact + x.slack)};
  }

  std::int64_t routed() const { return router.topk() - (router.shared > 0 ? 1 : 0); }
  bool by_maximum() const { return router.group_by_maximum != (rule == NativeRule::group_by_the_other_key); }

  std::vector<std::int64_t> choose() const {
    float (*const add)(float, float) = rule == NativeRule::keys_in_bf16 ? add_in_bf16 : ExactArithmetic::add;
    return ops::choose({f32, router.groups, router.kept_groups, routed()}, keys, add,
                       rule == NativeRule::dropped_count_as_zero ? ChoiceRule::dropped_count_as_zero
                       : by_maximum()                            ? ChoiceRule::group_by_maximum
                                                                 : ChoiceRule::right);
  }

  std::vector<GateKey> groups() const {
    if (router.groups == 1) return {{0.0, 0.0, {}}};
    const std::size_t members = open.size() / static_cast<std::size_t>(router.groups);
    std::vector<GateKey> all = group_keys(f32, router.groups, open);
    for (std::size_t j = 0; j < all.size(); ++j) {
      if (by_maximum()) {
        all[j] = open[j * members];
        for (std::size_t e = j * members; e < (j + 1) * members; ++e) {
          all[j].low = std::max(all[j].low, open[e].low);
          all[j].high = std::max(all[j].high, open[e].high);
        }
      }
      all[j].high = std::nextafter(all[j].high, std::numeric_limits<double>::infinity());
      all[j].origin = {~std::uint64_t{0}, j};
    }
    return all;
  }

  /// In whatever order: golden mode's keys lie in the intervals, so their order is one that these allow.
  bool allows(std::vector<std::int64_t> chosen) const {
    std::stable_sort(chosen.begin(), chosen.end(),
                     [&](std::int64_t a, std::int64_t b) { return keys[static_cast<std::size_t>(a)] > keys[static_cast<std::size_t>(b)]; });
    return is_legitimate_choice(open, groups(), router.kept_groups, chosen);
  }

  /// Which of the chosen experts count as 0, because their groups were dropped; nullopt where no groups that may be kept give the choice.
  /// An expert that scores more than 0 and weighs 0 was dropped; one that weighs more was kept.
  std::optional<std::vector<bool>> zeros(const std::vector<std::int64_t>& chosen, const std::vector<double>& weighs) const {
    for (const std::int64_t e : chosen)
      if (e < 0 || e >= router.experts()) return std::nullopt;
    std::vector<bool> none(chosen.size()), dropped = none, kept = none;
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      dropped[k] = weighs[k] == 0 && open[static_cast<std::size_t>(chosen[k])].low > 0;
      kept[k] = weighs[k] != 0;
    }
    const auto masked = [&] {
      return router.dropped_count_as_zero() && is_legitimate_masked_choice(open, groups(), router.kept_groups, chosen, kept, dropped);
    };
    if (dropped != none && masked()) return dropped;
    if (allows(chosen) || masked()) return none;
    return std::nullopt;
  }

  /// A number computed in fp32 and rounded to the type.
  static Bounded rounded(DType type, const Bounded& x) { return type == f32 ? rounded_f32(x) : rounded_to(type, rounded_f32(x)); }
  /// Division is within 2 units in the last place.
  Bounded quotient(const Bounded& a, const Bounded& b) const {
    const double value = a.exact / b.exact, least = std::fabs(b.exact) - b.slack;
    if (!(least > 0x1p-90)) return {value, 0.0, true};
    return rounded(router.to.weights,
                   {value, (a.slack + std::fabs(value) * b.slack) / least + 3.0 * f32_eps * std::fabs(value), a.open || b.open});
  }

  RoutedRow route(const std::vector<std::int64_t>& chosen, std::int64_t shared_id, const std::vector<bool>& zeros = {}) const {
    RoutedRow row{chosen, chosen, {}};
    Bounded sum;
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      const auto i = static_cast<std::size_t>(chosen[k]);
      const bool zero = !zeros.empty() && zeros[k];
      row.weights.push_back(zero ? Bounded{} : rule == NativeRule::bias_in_weights ? Bounded{keys[i]} : scores[i]);
      sum = sum + row.weights.back();
    }
    sum = rounded(router.to.sum, sum.widened(static_cast<double>(chosen.size()) * f32_eps * std::fabs(sum.exact)));
    if (router.shared > 0) {
      row.ids.push_back(shared_id);
      // Without a factor the column keeps the weight of the expert that it replaces: of the next best, whichever that is.
      row.weights.push_back(router.factor != 0 ? quotient(sum, {router.factor}) : Bounded{0.0, 0.0, true});
      if (rule == NativeRule::shared_expert_in_the_sum) sum = sum + row.weights.back();
    }
    if (!router.renormalize) return row;
    for (Bounded& w : row.weights) {
      w = quotient(w, sum);
      if (router.apply && router.factor != 0) w = rounded(router.to.weights, w * static_cast<double>(static_cast<float>(router.factor)));
    }
    return row;
  }
};

double row_cost(const NativeRouter& router) {
  return 60.0 * static_cast<double>(router.experts());
}

}  // namespace

void golden_native_route(const NativeRouter& router, const Exec& exec, Reference* reference, NativeRule rule) {
  const GoldenOutput weights(router.weights, reference, "topk_weights"), ids(router.ids, reference, "topk_ids");
  weights.make_open();
  ids.make_open();
  const bool shifted = !router.softmax || !exponentials_are_unshifted(exec);
  if (!router.softmax && sigmoid_is_from_tanh(exec)) rule = NativeRule::sigmoid_from_tanh;
  parallel_for(exec.threads, router.logits.size(0), row_cost(router), [&](std::int64_t t) {
    const NativeRow row(router, rule, t, shifted);
    put_route(weights, ids, t, row.route(row.choose(), router.experts()), !row.defined);
  });
}

void condition_native_route(const NativeRouter& actual, const Exec& exec, Reference& reference) {
  const Tensor weights_scratch = actual.weights.clone(), ids_scratch = actual.ids.clone();
  const GoldenOutput weights(weights_scratch, &reference, "topk_weights"), ids(ids_scratch, &reference, "topk_ids");
  const std::int64_t columns = actual.topk();
  const ReferenceOutput& expected = *reference.find("topk_ids");
  parallel_for(exec.threads, actual.logits.size(0), row_cost(actual), [&](std::int64_t t) {
    if (!other_choice(actual.ids, expected, t * columns, columns)) return;
    const NativeRow row(actual, NativeRule::right, t);
    std::vector<std::int64_t> chosen;
    std::vector<double> weighs;
    for (std::int64_t k = 0; k < row.routed(); ++k) {
      chosen.push_back(static_cast<std::int64_t>(quant::get(actual.ids, t * columns + k)));
      weighs.push_back(quant::get(actual.weights, t * columns + k));
    }
    auto shared_id = actual.experts();
    if (actual.shared > 0) shared_id = static_cast<std::int64_t>(quant::get(actual.ids, t * columns + columns - 1));
    const bool in_range = shared_id >= actual.experts() && shared_id < actual.experts() + std::max<std::int64_t>(actual.shared, 1);
    if (!row.defined || !in_range) return;
    if (const auto zeros = row.zeros(chosen, weighs)) put_route(weights, ids, t, row.route(chosen, shared_id, *zeros), false);
  });
}

namespace {

/// sigmoid at steps of an eighth from -16 to 16, rounded to the type: between two of them lie all scores between.
class SigmoidSteps {
 public:
  explicit SigmoidSteps(DType type) {
    for (std::size_t i = 0; i < steps_.size(); ++i)
      steps_[i] = rounded_score(type, static_cast<float>(fixed::sigmoid(static_cast<double>(i) / 8.0 - 16.0)));
  }
  /// Of a number.
  Interval around(float x) const {
    if (!(x >= -16.0f)) return {0.0, static_cast<double>(steps_.front())};
    if (!(x < 16.0f)) return {static_cast<double>(steps_.back()), 1.0};
    const auto i = static_cast<std::size_t>((x + 16.0f) * 8.0f);
    return {static_cast<double>(steps_[i]), static_cast<double>(steps_[std::min(i + 1, steps_.size() - 1)])};
  }

 private:
  std::array<float, 257> steps_{};
};

/// A row in fast mode: golden mode's scores and keys, but where bounds leave no doubt that an expert counts nowhere.
class FastRow {
 public:
  FastRow(const NativeRouter& router, const SigmoidSteps& steps, std::span<const float> bias, std::int64_t t)
      : router_(router), bias_(bias), count_(bias.size()) {
    quant::to_f32(router.logits.dtype(), row_begin(router.logits, t, bits(router.logits.dtype()) / 8), score_.data(),
                  static_cast<std::int64_t>(count_));
    if (router.softmax) {
      make_shares();
      for (std::size_t e = 0; e < count_; ++e) low_[e] = high_[e] = as_key(score_[e] + bias_[e]);
      std::fill_n(known_.begin(), count_, std::uint8_t{1});
      return;
    }
    std::fill_n(known_.begin(), count_, std::uint8_t{0});
    for (std::size_t e = 0; e < count_; ++e) {
      const bool number = score_[e] == score_[e];
      const Interval score = steps.around(score_[e]);
      low_[e] = number ? as_key(static_cast<float>(score.low) + bias_[e]) : -std::numeric_limits<float>::infinity();
      high_[e] = number ? as_key(static_cast<float>(score.high) + bias_[e]) : low_[e];
      // Steps are those of the other sigmoid.
      if (router.from_tanh && number) know(e);
    }
  }

  /// What `choose` gives for the keys.
  void choose(std::int64_t wanted, std::vector<std::int64_t>& chosen) {
    const std::size_t members = count_ / static_cast<std::size_t>(router_.groups);
    std::array<float, 1024> lows;
    std::array<std::uint8_t, 1024> kept;
    keep_groups(members, kept);
    std::size_t left = 0;
    for (std::size_t e = 0; e < count_; ++e)
      if (kept[e / members] != 0) lows[left++] = low_[e];
    const auto nth = lows.begin() + (wanted - 1);
    std::nth_element(lows.begin(), nth, lows.begin() + static_cast<std::ptrdiff_t>(left), std::greater<>());
    chosen.clear();
    for (std::size_t e = 0; e < count_; ++e)
      if (kept[e / members] != 0 && high_[e] >= *nth) {
        know(e);
        chosen.push_back(static_cast<std::int64_t>(e));
      }
    std::partial_sort(chosen.begin(), chosen.begin() + wanted, chosen.end(), [&](std::int64_t a, std::int64_t b) {
      const float x = low_[static_cast<std::size_t>(a)], y = low_[static_cast<std::size_t>(b)];
      return x != y ? x > y : a < b;
    });
    chosen.resize(static_cast<std::size_t>(wanted));
  }

  /// Of an expert that was chosen.
  float score(std::int64_t e) const { return score_[static_cast<std::size_t>(e)]; }

 private:
  float rounded(double score) const { return rounded_score(router_.to.scores, static_cast<float>(score)); }

  /// As SoftmaxScores has them.
  void make_shares() {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    bool defined = true;
    double most = -infinity, sum = 0;
    for (std::size_t e = 0; e < count_; ++e) {
      const auto x = static_cast<double>(score_[e]);
      defined = defined && x < infinity;
      most = std::max(most, x);
    }
    std::array<double, 1024> exact;
    for (std::size_t e = 0; e < count_; ++e) {
      exact[e] =
          defined && std::isfinite(most) ? fixed::exp(static_cast<double>(score_[e]) - most) : std::numeric_limits<double>::quiet_NaN();
      sum += exact[e];
    }
    for (std::size_t e = 0; e < count_; ++e) score_[e] = rounded(exact[e] / sum);
  }

  void know(std::size_t e) {
    if (known_[e] != 0) return;
    known_[e] = 1;
    score_[e] = rounded(sigmoid_of(router_, score_[e]));
    low_[e] = high_[e] = as_key(score_[e] + bias_[e]);
  }

  /// The best two of a group, as golden mode finds them.
  std::pair<float, float> best_two(std::size_t begin, std::size_t end) {
    const auto two = [&](const auto& keys, float least) {
      float first = lowest_key(DType::f32), second = first;
      for (std::size_t e = begin; e < end; ++e) {
        if (high_[e] < least) continue;
        const float key = keys(e);
        second = std::max(second, std::min(first, key));
        first = std::max(first, key);
      }
      return std::pair{first, second};
    };
    const float least = two([&](std::size_t e) { return low_[e]; }, -std::numeric_limits<float>::infinity()).second;
    return two(
        [&](std::size_t e) {
          know(e);
          return low_[e];
        },
        least);
  }

  void keep_groups(std::size_t members, std::array<std::uint8_t, 1024>& kept) {
    const auto groups = static_cast<std::size_t>(router_.groups);
    if (router_.kept_groups == router_.groups) return void(std::fill_n(kept.begin(), groups, std::uint8_t{1}));
    std::array<float, 1024> sums;
    std::vector<std::size_t> order(groups);
    for (std::size_t j = 0; j < groups; ++j) {
      const auto [first, second] = best_two(j * members, (j + 1) * members);
      sums[j] = as_key(router_.group_by_maximum ? first : first + second);
      order[j] = j;
      kept[j] = 0;
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return sums[a] > sums[b]; });
    for (std::size_t i = 0; i < static_cast<std::size_t>(router_.kept_groups); ++i) kept[order[i]] = 1;
  }

  const NativeRouter& router_;
  std::span<const float> bias_;
  std::size_t count_;
  std::array<float, 1024> score_, low_, high_;  ///< score: the logit as long as it is not known; then low and high are the key
  std::array<std::uint8_t, 1024> known_;
};

}  // namespace

void fast_native_route(const NativeRouter& router, const Exec& exec) {
  const SigmoidSteps steps(router.to.scores);
  const std::vector<float> bias = bias_row(router.bias, router.experts());
  const std::int64_t routed = router.topk() - (router.shared > 0 ? 1 : 0);
  const auto factor = static_cast<float>(router.factor);
  parallel_for(exec.threads, router.logits.size(0), 8.0 * static_cast<double>(router.experts()), [&](std::int64_t t) {
    FastRow row(router, steps, bias, t);
    std::vector<std::int64_t> chosen;
    row.choose(routed, chosen);
    std::vector<float> weights;
    float sum = 0;
    for (const std::int64_t e : chosen) {
      weights.push_back(row.score(e));
      sum += weights.back();
    }
    const auto rounded = [&](double x) { return rounded_score(router.to.weights, static_cast<float>(x)); };
    sum = rounded_score(router.to.sum, sum);
    if (router.shared > 0) weights.push_back(factor != 0 ? rounded(sum / factor) : 0.0f);
    for (std::size_t k = 0; k < weights.size(); ++k) {
      if (router.renormalize) {
        weights[k] = rounded(weights[k] / sum);
        if (router.apply && factor != 0) weights[k] = rounded(weights[k] * factor);
      }
      const std::int64_t at = t * router.topk() + static_cast<std::int64_t>(k);
      quant::set(router.weights, at, weights[k] == weights[k] ? weights[k] : std::numeric_limits<double>::quiet_NaN());
      quant::set(router.ids, at, static_cast<double>(k < chosen.size() ? chosen[k] : router.experts()));
    }
  });
}

void check_native_route(const NativeRouter& router) {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  const std::int64_t experts = router.experts();
  const bool pairs = !router.group_by_maximum && router.groups > 1;
  if (experts % router.groups != 0 || (pairs && experts / router.groups < 2))
    throw Error(ErrorCode::bad_shape, "", "gating_output",
                "has shape " + to_string(router.logits.shape()) + ", expected [T, E] with E a multiple of num_expert_group = " +
                    number(router.groups) + (pairs ? " that leaves at least 2 experts a group" : ""));
  if (router.kept_groups > router.groups)
    throw Error(ErrorCode::bad_value, "", "topk_group",
                "is " + number(router.kept_groups) + ", expected at most num_expert_group = " + number(router.groups));
  const std::int64_t available = router.kept_groups * (experts / router.groups);
  if (router.topk() > available)
    throw Error(ErrorCode::bad_value, "", "topk",
                "is " + number(router.topk()) + ", expected at most the " + number(available) + " experts of the groups that are kept");
  if (router.shared > 0 && router.topk() < 2)
    throw Error(ErrorCode::bad_value, "", "topk", "is 1, expected a column for an expert beside the fused shared one");
}

}  // namespace dodona::ops
