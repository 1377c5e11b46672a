#include "ops/routing/trtllm_router.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "core/fixed_math.h"
#include "dodona/error.h"
#include "ops/routing/softmax_scores.h"
#include "ops/routing/topk_call.h"

namespace dodona::ops {

const std::string_view trtllm_router_contract = R"(
Routing: s = fl32(0.5*fl32(tanh(x/2)) + 0.5) of fp32 logits. Keys are compared, ties go to the lower index: Default by softmax,
SigmoidRenorm and Sigmoid by s, DeepSeekV3 and MiniMax2 by fl32(s + bias), the others by the logits; DeepSeekV3 with n_group above 1 rounds the bias to bf16 first and keeps the
topk_group groups of the largest fl32 sums of their two best keys. Weights: Default the share of the softmax, Renormalize and
RenormalizeNaive softmax of the chosen logits, Llama4, Sigmoid and TopKSigmoid s, TopK the logit, SigmoidRenorm s over the sum of the chosen
s (norm_topk_prob), DeepSeekV3 and MiniMax2 s*routed_scaling_factor over that sum + 1e-20; rounded to bf16. Fused shared experts follow with weight 1. given_ids and given_weights stand in for all this: nothing is chosen, scaled or rounded. Keys that are computed are known to an interval: s to 1.5 * 2^-23, the
softmax as in topk_softmax; the weights' budget is what the intervals make of them, topk + 5 units of 2^-24 and the rounding to bf16.)";

namespace {

enum class Key : std::uint8_t { logit, softmax, sigmoid, biased_sigmoid };
enum class Weight : std::uint8_t { share, share_of_chosen, logit, sigmoid, over_sum, scaled_over_sum };

struct Method {
  std::string_view name;
  Key key;
  Weight weight;
};
constexpr Method methods[trtllm_methods] = {
    {"Default", Key::softmax, Weight::share},
    {"Renormalize", Key::logit, Weight::share_of_chosen},
    {"DeepSeekV3", Key::biased_sigmoid, Weight::scaled_over_sum},
    {"Llama4", Key::logit, Weight::sigmoid},
    {"RenormalizeNaive", Key::logit, Weight::share_of_chosen},
    {"TopK", Key::logit, Weight::logit},
    {"SigmoidRenorm", Key::sigmoid, Weight::over_sum},
    {"MiniMax2", Key::biased_sigmoid, Weight::scaled_over_sum},
    {"Sigmoid", Key::sigmoid, Weight::sigmoid},
    {"TopKSigmoid", Key::logit, Weight::sigmoid},
};
const Method& method_of(const TrtllmRouter& router) {
  return methods[static_cast<int>(router.method)];
}

std::vector<Bounded> as_bounded(std::span<const float> x) {
  std::vector<Bounded> all;
  for (const float value : x) all.push_back({static_cast<double>(value)});
  return all;
}

/// What softmax leaves open of a share of those of `chosen`.
std::vector<Bounded> shares(const std::vector<float>& x, std::span<const std::int64_t> chosen) {
  std::vector<Bounded> logits, weights;
  for (const std::int64_t e : chosen) logits.push_back({static_cast<double>(x[static_cast<std::size_t>(e)])});
  const SoftmaxScores scores(logits);
  for (std::size_t k = 0; k < chosen.size(); ++k) weights.push_back(scores.weight(k));
  return weights;
}

}  // namespace

TrtllmMethod trtllm_method(std::string_view name) {
  const auto* const found = std::find_if(std::begin(methods), std::end(methods), [&](const Method& method) { return method.name == name; });
  return static_cast<TrtllmMethod>(found == std::end(methods) ? 0 : found - std::begin(methods));
}

TrtllmRow::TrtllmRow(const TrtllmRouter& router, std::int64_t token)
    : router_(router), x_(router_row(router.logits, token, router.experts())) {
  const Method& method = method_of(router);
  std::vector<float> bias;
  if (method.key == Key::biased_sigmoid) {
    bias = bias_row(router.bias, router.experts());
    if (router.grouped())
      for (float& b : bias) b = rounded_score(DType::bf16, b);
  }
  for (const auto* numbers : {&x_, &bias})
    defined_ = defined_ && std::none_of(numbers->begin(), numbers->end(), [](float value) { return std::isnan(value); });
  const SoftmaxScores softmax(method.key == Key::softmax ? as_bounded(x_) : std::vector<Bounded>{});
  if (method.key == Key::softmax || method.weight == Weight::share_of_chosen) {
    const float most = *std::max_element(x_.begin(), x_.end());
    defined_ = defined_ && std::isfinite(most);
  }
  for (std::size_t e = 0; e < x_.size(); ++e) {
    const float b = bias.empty() ? 0.0f : bias[e];
    double key = x_[e];
    Interval open{key, key};
    if (method.key == Key::softmax && defined_) key = static_cast<float>(softmax.share(e)), open = softmax.key(e);
    if (method.key == Key::sigmoid) key = tanh_sigmoid(x_[e]), open = tanh_sigmoid_interval(x_[e]);
    if (method.key == Key::biased_sigmoid) {
      key = tanh_sigmoid(x_[e]) + b;
      open = sum_interval(DType::f32, tanh_sigmoid_interval(x_[e]), {b, b});
    }
    keys_.push_back(as_key(static_cast<float>(key)));
    open_.push_back({open.low, open.high, {std::bit_cast<std::uint32_t>(x_[e]), std::bit_cast<std::uint32_t>(b)}});
  }
}

std::vector<std::int64_t> TrtllmRow::choose() const {
  return ops::choose({DType::f32, groups(), kept_groups(), router_.topk}, keys_, ExactArithmetic::add);
}

std::vector<GateKey> TrtllmRow::group_order() const {
  return groups() > 1 ? group_keys(DType::f32, groups(), open_) : std::vector<GateKey>{{0.0, 0.0, {}}};
}

bool TrtllmRow::allows(std::span<const std::int64_t> chosen) const {
  return is_legitimate_choice(open_, group_order(), kept_groups(), chosen);
}

bool TrtllmRow::certain(std::span<const std::int64_t> chosen) const {
  const std::vector<GateKey> order = group_order();
  const auto count = static_cast<std::int64_t>(keys_.size()), members = count / groups();
  // The groups that so many others certainly stand behind are kept.
  std::vector<bool> kept(order.size());
  std::int64_t certainly = 0;
  for (std::int64_t j = 0; j < groups(); ++j) {
    std::int64_t behind = 0;
    for (std::int64_t other = 0; other < groups(); ++other) behind += other != j && stands_before(order, j, other) ? 1 : 0;
    kept[static_cast<std::size_t>(j)] = behind >= groups() - kept_groups();
    certainly += kept[static_cast<std::size_t>(j)] ? 1 : 0;
  }
  if (certainly != kept_groups()) return false;
  for (std::int64_t e = 0; e < count; ++e) {
    if (!kept[static_cast<std::size_t>(e / members)] || std::find(chosen.begin(), chosen.end(), e) != chosen.end()) continue;
    if (!std::all_of(chosen.begin(), chosen.end(), [&](std::int64_t c) { return stands_before(open_, c, e); })) return false;
  }
  return true;
}

RoutedRow TrtllmRow::route(const std::vector<std::int64_t>& chosen) const {
  const Weight weight = method_of(router_).weight;
  RoutedRow row{chosen, chosen, {}};
  if (weight == Weight::share) {
    const SoftmaxScores softmax(as_bounded(x_));
    for (const std::int64_t e : chosen) row.weights.push_back(softmax.weight(static_cast<std::size_t>(e)));
  } else if (weight == Weight::share_of_chosen) {
    row.weights = shares(x_, chosen);
  } else if (weight == Weight::logit) {
    for (const std::int64_t e : chosen) row.weights.push_back({static_cast<double>(x_[static_cast<std::size_t>(e)])});
  } else {
    ChosenScores scores;
    for (const std::int64_t e : chosen) {
      const float x = x_[static_cast<std::size_t>(e)];
      scores.add(tanh_sigmoid(x), tanh_sigmoid_interval(x));
    }
    const bool scaled = weight == Weight::scaled_over_sum, over_sum = scaled || (weight == Weight::over_sum && router_.normalize);
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      // Scores that are certainly zero stay zero over a sum of zero and 1e-20.
      Bounded value = over_sum && scores.high_sum == 0 ? Bounded{} : scores.weight(k, over_sum);
      if (!over_sum) value.open = false;
      if (scaled) value = value * static_cast<double>(router_.factor);
      row.weights.push_back(value.widened(2.0 * f32_eps * std::fabs(value.exact)));
    }
  }
  for (std::int64_t s = 0; s < router_.shared; ++s) {
    row.ids.push_back(router_.experts() + s);
    row.weights.push_back({1.0});
  }
  return row;
}

Bounded trtllm_weight(const TrtllmRouter& router, const Bounded& weight) {
  return router.rounded ? rounded_to(DType::bf16, weight) : weight;
}

void check_trtllm_router(const TrtllmRouter& router) {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  const auto refuse = [&](const char* argument, std::int64_t value, const std::string& expected) {
    throw Error(ErrorCode::bad_value, "", argument, "is " + number(value) + ", expected " + expected);
  };
  const std::int64_t experts = router.experts();
  if (router.topk > experts) refuse("top_k", router.topk, "at most num_experts = " + number(experts));
  if (router.method == TrtllmMethod::llama4 && router.topk != 1) refuse("top_k", router.topk, "1, as Llama4 has it");
  if (router.shared > 0 && !router.grouped())
    refuse("num_fused_shared_experts", router.shared, "0 but for DeepSeekV3 with n_group above 1");
  if (!router.grouped()) {
    if (router.groups > 1) refuse("n_group", router.groups, "0 or 1: of the routing methods only DeepSeekV3 has groups");
    if (router.kept_groups > 1) refuse("topk_group", router.kept_groups, "0 or 1 without groups");
    return;
  }
  if (experts % router.groups != 0 || experts / router.groups > 32)
    refuse("n_group", router.groups, "a divisor of num_experts = " + number(experts) + " that leaves at most 32 experts a group");
  if (router.kept_groups < 1 || router.kept_groups > router.groups)
    refuse("topk_group", router.kept_groups, "1 to n_group = " + number(router.groups));
  if (const std::int64_t available = router.kept_groups * (experts / router.groups); router.topk > available)
    refuse("top_k", router.topk, "at most the " + number(available) + " experts of topk_group groups");
}

}  // namespace dodona::ops
