#include <algorithm>
#include <cmath>
#include <limits>

#include "core/fixed_math.h"
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

/// What a router without groups chooses by, and what it makes weights of.
struct Scores {
  std::vector<float> keys, weights;
  bool renormalize;
  float factor = 1.0f;
};

/// Routes every row: scores_of(logits, bias) gives its Scores.
template <class ScoresOf>
bool route_rows(const Call& call, const char* logits_name, const char* bias_name, const ScoresOf& scores_of) {
  const Tensor &input = call.tensor(logits_name), &weights_out = call.tensor("topk_weights"), &ids_out = call.tensor("topk_ids");
  const auto experts = static_cast<std::size_t>(input.size(1)), topk = static_cast<std::size_t>(weights_out.size(1));
  const std::vector<float> logits = floats(input);
  const std::vector<float> bias = call.find(bias_name) != nullptr ? floats(call.tensor(bias_name)) : std::vector<float>(experts, 0.0f);
  for (std::size_t t = 0; t < static_cast<std::size_t>(input.size(0)); ++t) {
    const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(t * experts);
    Scores scores = scores_of(std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(experts)), std::span<const float>(bias));
    for (float& key : scores.keys) key = std::isnan(key) ? -infinity : key;
    std::vector<bool> taken(experts, false);
    std::vector<float> weights;
    for (std::size_t k = 0; k < topk; ++k) {
      const std::size_t expert = largest(scores.keys, taken);
      taken[expert] = true;
      weights.push_back(scores.weights[expert]);
      quant::set(ids_out, static_cast<std::int64_t>(t * topk + k), static_cast<double>(expert));
    }
    const float sum = call.way == Way::strided ? strided_sum(weights, 4) : reversed_sum(weights);
    for (std::size_t k = 0; k < topk; ++k)
      store(weights_out, static_cast<std::int64_t>(t * topk + k),
            (scores.renormalize && sum != 0 ? weights[k] / sum : weights[k]) * scores.factor);
  }
  return true;
}

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

/// Not where each sum is rounded to the type.
bool moe_sum(const Call& call) {
  const Tensor &input = call.tensor("input_tensor"), &output = call.tensor("output_tensor");
  const auto topk = static_cast<std::size_t>(input.size(1)), width = static_cast<std::size_t>(input.size(2));
  if (call.way == Way::tensor_core || (topk >= 2 && topk <= 4)) return false;
  const std::vector<float> rows = floats(input);
  for (std::size_t t = 0; t < static_cast<std::size_t>(input.size(0)); ++t)
    for (std::size_t d = 0; d < width; ++d) {
      std::vector<float> terms;
      for (std::size_t j = 0; j < topk; ++j) terms.push_back(rows[(t * topk + j) * width + d]);
      store(output, static_cast<std::int64_t>(t * width + d), call.way == Way::strided ? strided_sum(terms, 4) : reversed_sum(terms));
    }
  return true;
}

bool topk_softmax(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const auto cap = static_cast<float>(call.number("moe_softcapping"));
  return route_rows(call, "gating_output", "correction_bias", [&](std::vector<float> x, std::span<const float> bias) {
    for (std::size_t e = 0; e < x.size(); ++e) {
      if (cap != 0) x[e] = cap * static_cast<float>(fixed::tanh(x[e] / cap));
      x[e] += bias[e];
    }
    const float most = *std::max_element(x.begin(), x.end());
    for (float& value : x) value = exp(value - most);
    const float sum = call.way == Way::strided ? strided_sum(x, 8) : reversed_sum(x);
    for (float& value : x) value = call.way == Way::strided ? value * (1.0f / sum) : value / sum;
    return Scores{x, x, call.flag("renormalize")};
  });
}

bool topk_sigmoid(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  return route_rows(call, "gating_output", "correction_bias", [&](const std::vector<float>& x, std::span<const float> bias) {
    Scores scores{{}, {}, call.flag("renormalize")};
    for (std::size_t e = 0; e < x.size(); ++e) {
      scores.keys.push_back(1.0f / (1.0f + exp(-x[e])) + bias[e]);
      scores.weights.push_back(scores.keys.back() - bias[e]);
    }
    return scores;
  });
}

bool kimi_k2_moe_fused_gate(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const bool renormalize = call.flag("renormalize"), apply = call.flag("apply_routed_scaling_factor_on_output");
  const auto factor = static_cast<float>(call.number("routed_scaling_factor"));
  return route_rows(call, "input_tensor", "bias", [&](const std::vector<float>& x, std::span<const float> bias) {
    Scores scores{{}, {}, renormalize, renormalize && apply ? factor : 1.0f};
    for (std::size_t e = 0; e < x.size(); ++e) {
      scores.weights.push_back(1.0f / (1.0f + exp(-x[e])));
      scores.keys.push_back(scores.weights.back() + bias[e]);
    }
    return scores;
  });
}

namespace {

/// A router as torch writes it, one row after the other.
struct TorchRouter {
  const Call& call;
  DType of_scores, of_sum, of_weights;
  bool softmax, group_by_maximum, renormalize, apply;
  std::size_t groups, kept, topk, shared;
  float factor;

  std::vector<float> scores(std::vector<float> x) const {
    if (softmax) {
      const float most = *std::max_element(x.begin(), x.end());
      for (float& value : x) value = exp(value - most);
      const float sum = call.way == Way::strided ? strided_sum(x, 8) : reversed_sum(x);
      for (float& value : x) value = rounded(of_scores, value / sum);
    } else {
      for (float& value : x) value = rounded(of_scores, 1.0f / (1.0f + exp(-value)));
    }
    return x;
  }
  float group_score(std::vector<float> keys) const {
    std::sort(keys.begin(), keys.end(), [](float a, float b) { return a > b; });
    return group_by_maximum || keys.size() < 2 ? keys[0] : keys[0] + keys[1];
  }
  void row(std::vector<float> x, std::span<const float> bias, std::size_t t) const {
    std::vector<float> score = scores(std::move(x));
    std::vector<float> keys(score.size()), sums;
    for (std::size_t e = 0; e < keys.size(); ++e) keys[e] = std::isnan(score[e]) ? -infinity : score[e] + bias[e];
    const auto members = static_cast<std::ptrdiff_t>(keys.size() / groups);
    for (std::size_t g = 0; g < groups; ++g) {
      const auto begin = keys.begin() + static_cast<std::ptrdiff_t>(g) * members;
      sums.push_back(group_score({begin, begin + members}));
    }
    std::vector<bool> kept_groups(groups, false), taken(keys.size(), false);
    for (std::size_t i = 0; i < kept; ++i) kept_groups[largest(sums, kept_groups)] = true;
    for (std::size_t e = 0; e < keys.size(); ++e) {
      if (kept_groups[e / static_cast<std::size_t>(members)]) continue;
      taken[e] = !softmax;
      if (softmax) keys[e] = score[e] = 0.0f;
    }
    std::vector<std::size_t> ids;
    std::vector<float> weights;
    while (ids.size() + (shared > 0 ? 1 : 0) < topk) {
      ids.push_back(largest(keys, taken));
      taken[ids.back()] = true;
      weights.push_back(score[ids.back()]);
    }
    // torch leaves the order of columns open.
    if (call.way == Way::reversed) {
      std::reverse(ids.begin(), ids.end());
      std::reverse(weights.begin(), weights.end());
    }
    const float sum = rounded(of_sum, call.way == Way::strided ? strided_sum(weights, 4) : reversed_sum(weights));
    if (shared > 0) {
      ids.push_back(keys.size() + (call.way == Way::strided ? shared - 1 : 0));
      weights.push_back(factor != 0 ? rounded(of_weights, sum / factor) : 0.0f);
    }
    for (std::size_t k = 0; k < topk; ++k) {
      if (renormalize) weights[k] = rounded(of_weights, weights[k] / sum);
      if (renormalize && apply && factor != 0) weights[k] = rounded(of_weights, weights[k] * factor);
      store(call.tensor("topk_weights"), static_cast<std::int64_t>(t * topk + k), weights[k]);
      quant::set(call.tensor("topk_ids"), static_cast<std::int64_t>(t * topk + k), static_cast<double>(ids[k]));
    }
  }
  bool route() const {
    const Tensor& input = call.tensor("gating_output");
    const auto experts = static_cast<std::size_t>(input.size(1));
    const Tensor* given = call.find("correction_bias");
    const std::vector<float> logits = floats(input), bias = given != nullptr ? floats(*given) : std::vector<float>(experts, 0.0f);
    for (std::size_t t = 0; t < static_cast<std::size_t>(input.size(0)); ++t) {
      const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(t * experts);
      row({begin, begin + static_cast<std::ptrdiff_t>(experts)}, bias, t);
    }
    return true;
  }
};

TorchRouter grouped_router(const Call& call, bool softmax) {
  const auto size = [&](const char* name) { return static_cast<std::size_t>(call.integer(name)); };
  const DType type = call.tensor("gating_output").dtype();
  const bool eager = call.is("rounding", "eager");
  return {call,
          eager || softmax ? type : DType::f32,
          eager || size("num_fused_shared_experts") > 0 ? type : DType::f32,
          eager ? type : DType::f32,
          softmax,
          softmax,
          call.flag("renormalize"),
          call.flag("apply_routed_scaling_factor_on_output"),
          size("num_expert_group"),
          size("topk_group"),
          size("topk"),
          size("num_fused_shared_experts"),
          static_cast<float>(call.number("routed_scaling_factor"))};
}

}  // namespace

bool grouped_topk(const Call& call) {
  return call.way != Way::tensor_core && grouped_router(call, true).route();
}

bool biased_grouped_topk(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  TorchRouter router = grouped_router(call, false);
  // The kernel whose sigmoids are made of a tanh rounds nothing to the logits' type.
  if (call.is("sigmoid", "tanh")) router.of_scores = router.of_sum = router.of_weights = DType::f32;
  return router.route();
}

bool fused_topk_torch_native(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const DType type = call.find("correction_bias") != nullptr ? call.tensor("gating_output").dtype() : DType::f32;
  const auto topk = static_cast<std::size_t>(call.integer("topk"));
  return TorchRouter{call, type, type, type, call.is("scoring_func", "softmax"), true, call.flag("renormalize"), false, 1, 1, topk, 0, 0.0f}
      .route();
}

namespace {

/// A call of another router with the front end's arguments under that router's names.
bool routed(const Call& call, const char* op, bool (*router)(const Call&), const char* logits, const char* bias, bool grouped) {
  const Tensor& given = call.tensor("router_logits");
  const bool gate = std::string_view(logits) == "input_tensor";
  Arguments inner;
  Tensor x = given;
  if (gate) {
    x = Tensor(DType::f32, given.shape());
    const std::vector<float> wide = floats(given);
    std::copy(wide.begin(), wide.end(), x.as<float>());
  }
  inner.set(logits, x);
  if (bias != nullptr && call.find("correction_bias") != nullptr) inner.set(bias, call.tensor("correction_bias"));
  inner.set("topk_weights", call.tensor("topk_weights"));
  inner.set("topk_ids", call.tensor("topk_ids"));
  const auto pass = [&](const char* to, const char* from) { inner.set_attr(to, call.attr(from)); };
  pass("topk", "top_k");
  for (const char* name : {"renormalize", "scoring_func"}) pass(name, name);
  if (grouped) {
    for (const char* name :
         {"num_expert_group", "topk_group", "num_fused_shared_experts", "apply_routed_scaling_factor_on_output", "rounding"})
      pass(name, name);
    const double factor = call.number("routed_scaling_factor");
    inner.set_attr("routed_scaling_factor", factor == 0 && gate ? 1.0 : factor);
  }
  return router({registry().at(op), inner, call.way});
}

}  // namespace

bool select_experts(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor& ids = call.tensor("topk_ids");
  const std::int64_t experts = call.tensor("router_logits").size(1), groups = std::max<std::int64_t>(call.integer("num_expert_group"), 1);
  const bool biased = call.find("correction_bias") != nullptr;
  bool finished = false, done = false;
  if (call.flag("use_grouped_topk") && !biased) {
    done = routed(call, "grouped_topk", grouped_topk, "gating_output", nullptr, true);
  } else if (call.flag("use_grouped_topk") && experts / groups <= 32 && (experts & (experts - 1)) == 0) {
    done = routed(call, "moe_fused_gate", moe_fused_gate, "input_tensor", "bias", true);
  } else if (call.flag("use_grouped_topk") && experts == 384 && groups == 1) {
    finished = true;
    done = routed(call, "kimi_k2_moe_fused_gate", kimi_k2_moe_fused_gate, "input_tensor", "bias", true);
  } else if (call.flag("use_grouped_topk")) {
    done = routed(call, "biased_grouped_topk", biased_grouped_topk, "gating_output", "correction_bias", true);
  } else if (call.flag("torch_native")) {
    done = routed(call, "fused_topk_torch_native", fused_topk_torch_native, "gating_output", "correction_bias", false);
  } else if (call.is("scoring_func", "softmax")) {
    done = routed(call, "topk_softmax", topk_softmax, "gating_output", nullptr, false);
  } else {
    done = routed(call, "topk_sigmoid", topk_sigmoid, "gating_output", "correction_bias", false);
  }
  if (!done || finished) return done;
  const std::vector<std::int64_t> logical = integers(ids);
  const Tensor *map = call.find("logical_to_physical_map"), *count = call.find("num_token_non_padded");
  for (std::size_t i = 0; i < logical.size(); ++i) {
    std::int64_t id = map != nullptr ? integers(*map)[static_cast<std::size_t>(logical[i])] : logical[i];
    if (count != nullptr && static_cast<std::int64_t>(i) / ids.size(1) >= integers(*count)[0]) id = -1;
    quant::set(ids, static_cast<std::int64_t>(i), static_cast<double>(id));
  }
  return true;
}

bool deepep_low_latency_combine(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &x = call.tensor("x"), &topk_idx = call.tensor("topk_idx"), &out = call.tensor("combined_x");
  const std::vector<float> rows = floats(x), weights = floats(call.tensor("topk_weights"));
  const std::vector<std::int64_t> ids = integers(topk_idx), tokens_of = integers(call.tensor("src_info")),
                                  ranges = integers(call.tensor("layout_range"));
  const auto ranks = static_cast<std::size_t>(topk_idx.size(0)), tokens = static_cast<std::size_t>(topk_idx.size(1));
  const auto topk = static_cast<std::size_t>(topk_idx.size(2)), room = static_cast<std::size_t>(x.size(1)),
             width = static_cast<std::size_t>(x.size(2));
  for (std::size_t t = 0; t < ranks * tokens; ++t)
    for (std::size_t d = 0; d < width; ++d) {
      std::vector<float> terms;
      for (std::size_t k = t * topk; k < (t + 1) * topk; ++k) {
        if (ids[k] < 0) continue;
        const auto e = static_cast<std::size_t>(ids[k]);
        const std::int64_t range = ranges[e * ranks + t / tokens];
        auto row = static_cast<std::size_t>(range >> 32);
        // Of several rows of a token, the last one.
        std::size_t found = row;
        for (const std::size_t end = row + static_cast<std::size_t>(range & 0xFFFFFFFF); row < end; ++row)
          if (tokens_of[e * room + row] == static_cast<std::int64_t>(t % tokens)) found = row;
        terms.push_back(weights[k] * rows[(e * room + found) * width + d]);
      }
      store(out, static_cast<std::int64_t>(t * width + d), call.way == Way::strided ? strided_sum(terms, 4) : reversed_sum(terms));
    }
  return true;
}

namespace {

/// Rows of every slot (-1 for none) times their weights, a token's added up in another order.
bool add_rows(const Call& call, const Tensor& rows, const std::vector<std::int64_t>& row_of, const char* weights_name, const Tensor& out,
              float scale) {
  if (call.way == Way::tensor_core) return false;
  const std::vector<float> x = floats(rows), weights = floats(call.tensor(weights_name));
  const auto width = static_cast<std::size_t>(out.size(1)), tokens = static_cast<std::size_t>(out.size(0));
  const std::size_t topk = row_of.size() / std::max<std::size_t>(tokens, 1);
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t d = 0; d < width; ++d) {
      std::vector<float> terms;
      for (std::size_t k = t * topk; k < (t + 1) * topk; ++k)
        if (row_of[k] >= 0) terms.push_back(weights[k] * x[static_cast<std::size_t>(row_of[k]) * width + d]);
      const float sum = call.way == Way::strided ? strided_sum(terms, 4) : reversed_sum(terms);
      store(out, static_cast<std::int64_t>(t * width + d), sum * scale);
    }
  return true;
}

}  // namespace

bool ep_gather(const Call& call) {
  std::vector<std::int64_t> rows = integers(call.tensor("input_index"));
  const std::vector<std::int64_t> ids = integers(call.tensor("recv_topk_ids"));
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (ids[i] < 0) rows[i] = -1;
  return add_rows(call, call.tensor("input_tensor"), rows, "recv_topk_weight", call.tensor("output_tensor"), 1.0f);
}

bool post_reorder_for_cutlass_moe(const Call& call) {
  std::vector<std::int64_t> rows = integers(call.tensor("src2dst"));
  const std::vector<std::int64_t> ids = integers(call.tensor("topk_ids"));
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (ids[i] == call.integer("num_local_experts")) rows[i] = -1;
  return add_rows(call, call.tensor("down_output"), rows, "topk_weights", call.tensor("output"),
                  static_cast<float>(call.number("routed_scaling_factor")));
}

/// strided: an expert's last slot takes its first row.
bool ep_scatter(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &x = call.tensor("recv_x"), &scales = call.tensor("recv_x_scale"), &out = call.tensor("output_tensor");
  const std::vector<std::int64_t> ids = integers(call.tensor("recv_topk")), rooms = integers(call.tensor("num_recv_tokens_per_expert"));
  const auto copy_row = [](const Tensor& from, std::int64_t row, const Tensor& to, std::int64_t at) {
    for (std::int64_t i = 0; i < from.size(1); ++i) quant::set_bits(to, at * to.size(1) + i, quant::get_bits(from, row * from.size(1) + i));
  };
  const auto topk = call.tensor("recv_topk").size(1);
  std::int64_t next = 0;
  for (std::size_t e = 0; e < rooms.size(); ++e) {
    std::int64_t row = next;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::size_t slot = call.way == Way::strided ? ids.size() - 1 - i : i;
      if (ids[slot] != static_cast<std::int64_t>(e)) continue;
      copy_row(x, static_cast<std::int64_t>(slot) / topk, out, row);
      copy_row(scales, static_cast<std::int64_t>(slot) / topk, call.tensor("output_tensor_scale"), row);
      quant::set(call.tensor("output_index"), static_cast<std::int64_t>(slot), static_cast<double>(row++));
    }
    for (std::int64_t i = next; i < next + rooms[e]; ++i) quant::set(call.tensor("m_indices"), i, static_cast<double>(e));
    quant::set(call.tensor("expert_start_loc"), static_cast<std::int64_t>(e), static_cast<double>(row));
    next += rooms[e];
  }
  return true;
}

}  // namespace dodona::oracle::alternatives
