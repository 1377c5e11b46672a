#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/alternatives/families.h"
#include "quant/element.h"

namespace dodona::oracle::alternatives {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Position of the largest value that is not taken, the first of equals.
std::size_t largest(const std::vector<float>& values, const std::vector<bool>& taken) {
  std::size_t best = values.size();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!taken[i] && (best == values.size() || values[i] > values[best])) best = i;
  return best;
}

struct Gate {
  const Call& call;
  DType type;
  std::size_t experts, groups, kept, topk, shared;

  float key(float x) const { return std::isnan(x) ? -infinity : x; }

  std::vector<float> group_sums(const std::vector<float>& keys) const {
    const std::size_t members = experts / groups;
    const float least = rounded(type, -std::numeric_limits<float>::max());
    std::vector<float> sums;
    for (std::size_t g = 0; g < groups; ++g) {
      std::vector<float> sorted(keys.begin() + static_cast<std::ptrdiff_t>(g * members),
                                keys.begin() + static_cast<std::ptrdiff_t>((g + 1) * members));
      sorted.insert(sorted.end(), 2, least);
      std::sort(sorted.begin(), sorted.end(), [](float a, float b) { return a > b; });
      sums.push_back(key(rounded(type, sorted[0] + sorted[1])));
    }
    return sums;
  }

  std::vector<std::size_t> choose(const std::vector<float>& keys) const {
    const std::vector<float> sums = group_sums(keys);
    std::vector<bool> kept_groups(groups, false), taken(experts, true);
    for (std::size_t i = 0; i < kept; ++i) kept_groups[largest(sums, kept_groups)] = true;
    for (std::size_t e = 0; e < experts; ++e) taken[e] = !kept_groups[e / (experts / groups)];
    std::vector<std::size_t> chosen;
    for (std::size_t k = 0; k < topk - shared; ++k) {
      chosen.push_back(largest(keys, taken));
      taken[chosen.back()] = true;
    }
    return chosen;
  }

  void row(std::span<const float> logits, std::span<const float> bias, std::int64_t t) const {
    std::vector<float> scores, keys;
    for (std::size_t e = 0; e < experts; ++e) {
      scores.push_back(rounded(type, 1.0f / (1.0f + exp(-logits[e]))));
      keys.push_back(key(rounded(type, scores.back() + bias[e])));
    }
    const std::vector<std::size_t> chosen = choose(keys);
    std::vector<float> weights;
    weights.reserve(chosen.size());
    for (const std::size_t e : chosen) weights.push_back(scores[e]);
    const float sum = call.way == Way::strided ? strided_sum(weights, 4) : reversed_sum(weights);
    const auto scaling = static_cast<float>(call.number("routed_scaling_factor"));
    const Tensor &weights_out = call.tensor("topk_weights"), &ids_out = call.tensor("topk_ids");
    for (std::size_t k = 0; k < topk; ++k) {
      const bool routed = k < chosen.size();
      const std::int64_t at = t * static_cast<std::int64_t>(topk) + static_cast<std::int64_t>(k);
      float weight = (routed ? weights[k] : sum / scaling) / sum;
      if (call.flag("apply_routed_scaling_factor_on_output")) weight *= scaling;
      store(weights_out, at, weight);
      quant::set(ids_out, at, static_cast<double>(routed ? chosen[k] : experts + k - chosen.size()));
    }
  }
};

}  // namespace

bool moe_fused_gate(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor& input = call.tensor("input_tensor");
  const auto size = [&](const char* name) { return static_cast<std::size_t>(call.integer(name)); };
  const Gate gate{call,
                  input.dtype(),
                  static_cast<std::size_t>(input.size(1)),
                  size("num_expert_group"),
                  size("topk_group"),
                  size("topk"),
                  size("num_fused_shared_experts")};
  const std::vector<float> logits = floats(input), bias = floats(call.tensor("bias"));
  for (std::int64_t t = 0; t < input.size(0); ++t)
    gate.row(std::span(logits).subspan(static_cast<std::size_t>(t) * gate.experts, gate.experts), bias, t);
  return true;
}

bool apply_shuffle_mul_sum(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &input = call.tensor("input"), &output = call.tensor("output");
  const std::vector<float> rows = floats(input);
  const std::vector<std::int64_t> permutation = integers(call.tensor("permutation"));
  const std::vector<float> factors =
      call.find("factors") != nullptr ? floats(call.tensor("factors")) : std::vector<float>(permutation.size(), 1.0f);
  const std::size_t tokens = static_cast<std::size_t>(output.size(0)), width = static_cast<std::size_t>(output.size(1));
  const std::size_t topk = tokens > 0 ? permutation.size() / tokens : 0;
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t d = 0; d < width; ++d) {
      std::vector<float> terms;
      for (std::size_t j = t * topk; j < (t + 1) * topk; ++j)
        terms.push_back(factors[j] * rows[static_cast<std::size_t>(permutation[j]) * width + d]);
      store(output, static_cast<std::int64_t>(t * width + d), call.way == Way::strided ? strided_sum(terms, 4) : reversed_sum(terms));
    }
  return true;
}

/// Not where the order is the contract's.
bool moe_sum_reduce(const Call& call) {
  if (call.way == Way::tensor_core || call.is("order", "ascending")) return false;
  const Tensor &input = call.tensor("input_tensor"), &output = call.tensor("output_tensor");
  const std::vector<float> rows = floats(input);
  const auto topk = static_cast<std::size_t>(input.size(1)), width = static_cast<std::size_t>(input.size(2));
  const auto factor = static_cast<float>(call.number("routed_scaling_factor"));
  for (std::size_t t = 0; t < static_cast<std::size_t>(input.size(0)); ++t)
    for (std::size_t d = 0; d < width; ++d) {
      std::vector<float> terms;
      for (std::size_t j = 0; j < topk; ++j) terms.push_back(rows[(t * topk + j) * width + d]);
      const float sum = call.way == Way::strided ? strided_sum(terms, 4) : reversed_sum(terms);
      store(output, static_cast<std::int64_t>(t * width + d), sum * factor);
    }
  return true;
}

}  // namespace dodona::oracle::alternatives
