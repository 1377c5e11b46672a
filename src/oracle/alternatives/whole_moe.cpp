// Whole MoE kernels, written out: route, multiply, activate, quantize, multiply, add up, one number after the other in fp32.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>

#include "core/fixed_math.h"
#include "oracle/alternatives/families.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/element.h"
#include "quant/nibble.h"
#include "quant/swizzle.h"

namespace dodona::oracle::alternatives {
namespace {

using Numbers = std::vector<float>;

std::size_t size(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

/// A matrix of numbers with a scale for each `rows` x `columns` of them.
struct Scaled {
  Numbers numbers, scales;
  std::size_t n = 0, k = 0, rows = 1, columns = 0;

  float scale(std::size_t i, std::size_t at) const { return scales.empty() ? 1.0f : scales[i / rows * (k / columns) + at / columns]; }
};

Numbers decoded(const Tensor& codes) {
  if (codes.dtype() != DType::u8) return floats(codes);
  Numbers numbers;
  for (std::int64_t i = 0; i < 2 * codes.elements(); ++i) numbers.push_back(quant::e2m1_to_f32(quant::nibble(codes.as<std::uint8_t>(), i)));
  return numbers;
}

/// The activation that a call names, alpha in its argument and taken out again.
struct Activation {
  const Call& call;

  bool gated() const { return call.op.schema().find_attr("gated") == nullptr || call.flag("gated"); }
  bool limits_outcome() const { return call.op.schema().find_attr("limited") != nullptr && call.is("limited", "activated"); }
  std::size_t halves() const { return gated() ? 2 : 1; }

  bool is(std::string_view name) const {
    return call.op.schema().find_attr("gate_activation") != nullptr && call.is("gate_activation", name);
  }
  float of(float g, float alpha) const {
    const float x = alpha * g;
    if (is("gelu")) return 0.5f * g * (1.0f + static_cast<float>(fixed::erf(static_cast<double>(x * 0.70710678f))));
    if (is("gelu_tanh"))
      return 0.5f * g * (1.0f + static_cast<float>(fixed::tanh(static_cast<double>(0.79788456f * x * (1.0f + 0.044715f * x * x)))));
    if (is("relu")) return g > 0 ? g : 0.0f;
    if (is("relu2")) return g > 0 ? g * g : 0.0f;
    if (is("identity")) return g;
    return g / (1.0f + exp(-x));
  }
};

struct MoeCall {
  const Call& call;
  bool fp4, fp8_blocks, fp8;
  std::size_t tokens, hidden, width, experts, local, offset, topk, shared;

  bool reference() const { return call.is("arithmetic", "reference"); }
  bool has(std::string_view attribute) const { return call.op.schema().find_attr(attribute) != nullptr; }
  std::size_t block() const { return fp4 ? 16 : fp8_blocks ? 128 : 0; }

  /// The three factors of NVFP4, made of encode scales where these stand for them.
  float factor(const char* name, std::size_t e) const {
    if (const Tensor* first = call.find("gemm1_global_scale"); first != nullptr && first->defined()) {
      const float h = call.number("activation_global_scale") == 0 ? 1.0f : static_cast<float>(call.number("activation_global_scale"));
      const float sums = 1.0f / (first->as<float>()[e] * call.tensor("hidden_states_global_scale").as<float>()[0]);
      if (std::string_view(name) == "output1_scale_scalar") return h * sums;
      if (std::string_view(name) == "output1_scale_gate_scalar") return sums;
      if (std::string_view(name) == "output2_scale_scalar") return 1.0f / (h * call.tensor("gemm2_global_scale").as<float>()[e]);
    }
    const Tensor* const t = call.find(name);
    return t != nullptr && t->defined() ? t->as<float>()[e] : 1.0f;
  }
  Activation activation() const { return {call}; }
  std::size_t sums() const { return activation().halves() * width; }
  bool weighted_input() const { return fp8 && call.flag("use_routing_scales_on_input"); }
  float sum(const Numbers& terms) const { return call.way == Way::strided ? strided_sum(terms, 16) : reversed_sum(terms); }

  // ---- weights, in the order of rows before any shuffle

  std::size_t stored_row(std::size_t plain, std::size_t n, bool halves) const {
    if (reference() || !call.flag("use_shuffled_weight")) return plain;
    const std::size_t deal = fp8_blocks ? 16 : 32;
    std::size_t row = plain;
    if (halves && activation().gated() && !fp8_blocks) row = plain < n / 2 ? 2 * plain : 2 * (plain - n / 2) + 1;
    const std::size_t in = row % deal, lines = deal / 8;
    return row - in + in % lines * 8 + in / lines;
  }

  Scaled weight(const char* name, std::size_t e, std::size_t n, std::size_t k, bool halves) const {
    const Tensor& all = call.tensor(name);
    const std::int64_t each = all.elements() / all.size(0);
    const Tensor flat = all.slice(0, static_cast<std::int64_t>(e), static_cast<std::int64_t>(e) + 1).reshape({each});
    const Numbers stored = decoded(flat);
    const bool blocked = !reference() && has("weight_layout") && call.integer("weight_layout") == 2;
    const std::size_t together = 128 / (size(bits(all.dtype())) / 8);
    Scaled plain{.numbers = Numbers(n * k), .scales = {}, .n = n, .k = k, .rows = fp8_blocks ? size(128) : 1, .columns = block()};
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t row = stored_row(i, n, halves);
      for (std::size_t j = 0; j < k; ++j)
        plain.numbers[i * k + j] = stored[blocked ? (j / together * n + row) * together + j % together : row * k + j];
    }
    if (block() == 0) return plain;
    const Tensor& scales = call.tensor(std::string(name) + "_scale");
    const std::size_t columns = k / block(), own = size(scales.elements()) / size(scales.size(0)) * e;
    const Numbers values = floats(scales);
    for (std::size_t i = 0; i < n / plain.rows; ++i)
      for (std::size_t c = 0; c < columns; ++c) {
        std::size_t at = i * columns + c;
        if (fp4 && !reference())
          at = size(quant::scale_offset(quant::ScaleLayout::swizzled_128x4, static_cast<std::int64_t>(stored_row(i, n, halves)),
                                        static_cast<std::int64_t>(c), static_cast<std::int64_t>(columns)));
        plain.scales.push_back(values[own + at]);
      }
    return plain;
  }

  Scaled rows() const {
    Scaled x{.numbers = decoded(call.tensor("hidden_states")), .scales = {}, .n = tokens, .k = hidden, .rows = 1, .columns = block()};
    if (block() == 0) return x;
    const Numbers scales = floats(call.tensor("hidden_states_scale"));
    for (std::size_t t = 0; t < tokens; ++t)
      for (std::size_t c = 0; c < hidden / block(); ++c) x.scales.push_back(scales[fp4 ? t * (hidden / 16) + c : c * tokens + t]);
    return x;
  }

  /// Row i of x with row j of w, in blocks.
  float product(const Scaled& x, std::size_t i, const Scaled& w, std::size_t j) const {
    const std::size_t step = w.columns > 0 ? w.columns : w.k;
    Numbers parts;
    for (std::size_t first = 0; first < w.k; first += step) {
      Numbers terms;
      for (std::size_t k = first; k < first + step; ++k) terms.push_back(x.numbers[i * x.k + k] * w.numbers[j * w.k + k]);
      parts.push_back(w.columns > 0 ? sum(terms) * (x.scale(i, first) * w.scale(j, first)) : sum(terms));
    }
    return parts.size() == 1 ? parts[0] : sum(parts);
  }

  // ---- routing

  struct Route {
    std::vector<std::size_t> experts;
    Numbers weights;
  };

  Numbers softmax(const Numbers& x) const {
    const float most = *std::max_element(x.begin(), x.end());
    Numbers powers;
    for (const float value : x) powers.push_back(exp(value - most));
    const float total = sum(powers);
    for (float& power : powers) power /= total;
    return powers;
  }

  static std::size_t best(const Numbers& keys, const std::vector<bool>& gone) {
    std::size_t found = keys.size();
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (!gone[i] && (found == keys.size() || keys[i] > keys[found])) found = i;
    return found;
  }

  Route route(const Numbers& x) const {
    constexpr std::array<std::string_view, 10> methods{"Default", "Renormalize",   "DeepSeekV3", "Llama4",  "RenormalizeNaive",
                                                       "TopK",    "SigmoidRenorm", "MiniMax2",   "Sigmoid", "TopKSigmoid"};
    const auto* const named = std::find_if(methods.begin(), methods.end(), [&](auto name) { return call.is("routing_method_type", name); });
    const auto method = named - methods.begin();
    const std::size_t groups = method == 2 ? std::max<std::size_t>(1, size(call.integer("n_group"))) : 1, members = experts / groups;
    Numbers scores(experts), keys = x;
    for (std::size_t e = 0; e < experts; ++e) scores[e] = 0.5f * static_cast<float>(fixed::tanh(static_cast<double>(0.5f * x[e]))) + 0.5f;
    if (method == 0) keys = softmax(x);
    if (method == 6 || method == 8) keys = scores;
    if (method == 2 || method == 7) {
      keys = scores;
      if (const Tensor* bias = call.find("routing_bias"); bias != nullptr && bias->defined())
        for (std::size_t e = 0; e < experts; ++e) {
          const auto value = static_cast<float>(quant::get(*bias, static_cast<std::int64_t>(e)));
          keys[e] += groups > 1 ? rounded(DType::bf16, value) : value;
        }
    }
    std::vector<bool> gone(experts, groups > 1);
    if (groups > 1) {
      Numbers best_two;
      for (std::size_t g = 0; g < groups; ++g) {
        Numbers sorted(keys.begin() + static_cast<std::ptrdiff_t>(g * members),
                       keys.begin() + static_cast<std::ptrdiff_t>((g + 1) * members));
        std::sort(sorted.begin(), sorted.end(), std::greater<>());
        best_two.push_back(sorted[0] + sorted[1]);
      }
      std::vector<bool> kept(groups, false);
      for (std::int64_t i = 0; i < call.integer("topk_group"); ++i) kept[best(best_two, kept)] = true;
      for (std::size_t e = 0; e < experts; ++e) gone[e] = !kept[e / members];
    }
    Route chosen;
    Numbers own;
    for (std::size_t k = 0; k < topk; ++k) {
      const std::size_t e = best(keys, gone);
      gone[e] = true;
      chosen.experts.push_back(e);
      own.push_back(method == 0 ? keys[e] : method == 1 || method == 4 || method == 5 ? x[e] : scores[e]);
    }
    if (method == 1 || method == 4) own = softmax(own);
    const float total = sum(own);
    if (method == 2 || method == 7)
      for (float& weight : own) weight = weight * static_cast<float>(call.number("routed_scaling_factor")) / (total + 1e-20f);
    if (method == 6 && call.flag("norm_topk_prob"))
      for (float& weight : own) weight /= std::max(total, 1e-20f);
    chosen.weights = own;
    for (std::size_t s = 0; s < shared; ++s) chosen.experts.push_back(experts + s), chosen.weights.push_back(1.0f);
    if (!reference())
      for (float& weight : chosen.weights) weight = rounded(DType::bf16, weight);
    return chosen;
  }

  // ---- between the products

  void quantize_fp8(Numbers& x) const {
    for (std::size_t first = 0; first < x.size(); first += 128) {
      float amax = 0;
      for (std::size_t i = first; i < first + 128; ++i) amax = std::max(amax, std::fabs(x[i]));
      const float scale = std::max(amax / 448.0f, 0x1p-126f);
      for (std::size_t i = first; i < first + 128; ++i)
        x[i] = quant::e4m3_to_f32(quant::to_e4m3_satfinite(static_cast<double>(x[i] / scale))) * scale;
    }
  }

  /// What the second product takes: numbers and scales.
  Scaled activated(std::size_t e, const Numbers& sums) const {
    const bool factors = fp4 || fp8, gated = activation().gated();
    Numbers up(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(width)),
        gate(sums.end() - static_cast<std::ptrdiff_t>(width), sums.end());
    if (fp8_blocks && !reference()) quantize_fp8(up), quantize_fp8(gate);
    if (!gated) std::fill(up.begin(), up.end(), factors && !reference() ? factor(up_factor(), e) : 1.0f);
    const bool limited = call.find("gemm1_clamp_limit") != nullptr && call.tensor("gemm1_clamp_limit").defined();
    const bool shifted = call.find("gemm1_beta") != nullptr && call.tensor("gemm1_beta").defined();
    Scaled h{.numbers = {}, .scales = {}, .n = 1, .k = width, .rows = 1, .columns = reference() && fp8_blocks ? 0 : block()};
    for (std::size_t i = 0; i < width; ++i) {
      float g = gate[i], u = up[i];
      if (limited) {
        const float limit = factor("gemm1_clamp_limit", e);
        g = std::min(g, limit), u = std::clamp(u, -limit, limit);
      }
      if (shifted) u += factor("gemm1_beta", e);
      h.numbers.push_back(activation().of(g, factor("gemm1_alpha", e)) * u);
    }
    if (!factors && !fp8_blocks)
      for (float& x : h.numbers) x = rounded(DType::bf16, x);
    if (factors && reference())
      for (float& x : h.numbers)
        x = rounded(DType::bf16, x) * (gated ? factor(up_factor(), e) / factor(gate_factor(), e) : factor(up_factor(), e));
    if (fp8)
      for (float& x : h.numbers) x = quant::e4m3_to_f32(quant::to_e4m3_satfinite(static_cast<double>(x)));
    for (std::size_t first = 0; h.columns > 0 && first < width; first += h.columns) {
      float amax = 0;
      for (std::size_t i = first; i < first + h.columns; ++i) amax = std::max(amax, std::fabs(h.numbers[i]));
      float scale = std::max(amax / 448.0f, 0x1p-126f);
      if (fp4) scale = quant::e4m3_to_f32(quant::to_e4m3_satfinite(static_cast<double>(amax / 6.0f)));
      for (std::size_t i = first; i < first + h.columns; ++i) {
        const auto x = static_cast<double>(scale == 0 ? 0.0f : h.numbers[i] / scale);
        h.numbers[i] = fp4 ? quant::e2m1_to_f32(quant::to_e2m1(x)) : quant::e4m3_to_f32(quant::to_e4m3_satfinite(x));
      }
      h.scales.push_back(scale);
    }
    return h;
  }

  const char* up_factor() const { return fp8 ? "output1_scales_scalar" : "output1_scale_scalar"; }
  const char* gate_factor() const { return fp8 ? "output1_scales_gate_scalar" : "output1_scale_gate_scalar"; }

  float biased(const char* name, std::size_t e, std::size_t row, std::size_t n, float x) const {
    const Tensor* const bias = call.find(name);
    return bias != nullptr && bias->defined() ? x + bias->as<float>()[e * n + row] : x;
  }

  /// One row through one expert.
  Numbers through(std::size_t e, const Scaled& x, std::size_t t, const Scaled& w1, const Scaled& w2, float weight) const {
    Numbers sums(this->sums()), out(hidden);
    for (std::size_t j = 0; j < sums.size(); ++j) {
      sums[j] = biased("gemm1_bias", e, stored_row(j, sums.size(), true), sums.size(), product(x, t, w1, j));
      if (fp4 || fp8) sums[j] *= factor(j < width && activation().gated() && !reference() ? up_factor() : gate_factor(), e);
      sums[j] *= weight;
    }
    const Scaled h = activated(e, sums);
    for (std::size_t j = 0; j < hidden; ++j) {
      out[j] = biased("gemm2_bias", e, stored_row(j, hidden, false), hidden, product(h, 0, w2, j));
      if (fp4 || fp8) out[j] *= factor(fp8 ? "output2_scales_scalar" : "output2_scale_scalar", e);
      if (!reference()) out[j] = rounded(DType::bf16, out[j]);
    }
    return out;
  }

  /// A routing that is given; none where it is not.
  std::vector<Route> given_routes() const {
    std::vector<Route> routes;
    const Tensor *ids = wanted("given_ids"), *weights = wanted("given_weights");
    for (std::size_t t = 0; ids != nullptr && t < tokens; ++t) {
      Route& route = routes.emplace_back();
      for (std::size_t i = t * topk; i < (t + 1) * topk; ++i) {
        route.experts.push_back(static_cast<std::size_t>(ids->as<std::int32_t>()[i]));
        route.weights.push_back(static_cast<float>(quant::get(*weights, static_cast<std::int64_t>(i))));
      }
    }
    return routes;
  }

  bool run() const {
    const Scaled x = rows();
    std::vector<Route> routes = given_routes();
    const Numbers logits = routes.empty() ? floats(call.tensor("routing_logits")) : Numbers{};
    for (std::size_t t = routes.size(); t < tokens; ++t)
      routes.push_back(route(
          {logits.begin() + static_cast<std::ptrdiff_t>(t * experts), logits.begin() + static_cast<std::ptrdiff_t>((t + 1) * experts)}));
    const std::size_t slots = topk + shared;
    std::vector<Numbers> results(tokens * slots);
    std::vector<std::int64_t> place(tokens * slots, -1);
    std::int64_t next = 0;
    for (std::size_t e = 0; e < local + shared; ++e) {
      Scaled w1, w2;
      std::int64_t count = 0;
      for (std::size_t t = 0; t < tokens; ++t)
        for (std::size_t k = 0; k < slots; ++k) {
          if (routes[t].experts[k] != e + offset) continue;
          if (w1.n == 0) w1 = weight("gemm1_weights", e, sums(), hidden, true), w2 = weight("gemm2_weights", e, hidden, width, false);
          results[t * slots + k] = through(e, x, t, w1, w2, weighted_input() ? routes[t].weights[k] : 1.0f);
          place[t * slots + k] = next + count++;
        }
      next += quant::align(count, call.integer("tile_tokens_dim"));
    }
    store_all(routes, results, place);
    return true;
  }

  const Tensor* wanted(const char* name) const {
    const Tensor* const t = call.find(name);
    return t != nullptr && t->defined() ? t : nullptr;
  }

  void store_all(const std::vector<Route>& routes, const std::vector<Numbers>& results, const std::vector<std::int64_t>& place) const {
    const std::size_t slots = topk + shared;
    const Tensor *output = wanted("output"), *rows_out = wanted("gemm2_output"), *weights = wanted("expert_weights"),
                 *index = wanted("expanded_idx_to_permuted_idx"), *replay = wanted("topk_ids"), *chosen = wanted("topk_weights");
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t h = 0; output != nullptr && h < hidden; ++h) {
        Numbers terms;
        for (std::size_t k = 0; k < slots; ++k)
          if (const Numbers& y = results[t * slots + k]; !y.empty()) terms.push_back(weighted_input() ? y[h] : routes[t].weights[k] * y[h]);
        store(*output, static_cast<std::int64_t>(t * hidden + h), reversed_sum(terms));
      }
      for (std::size_t k = 0; k < slots; ++k) {
        const std::size_t pair = t * slots + k;
        const auto at = static_cast<std::int64_t>(pair);
        if (weights != nullptr) store(*weights, at, routes[t].weights[k]);
        if (index != nullptr) quant::set(*index, at, static_cast<double>(place[pair]));
        if (rows_out != nullptr && place[pair] >= 0)
          for (std::size_t h = 0; h < hidden; ++h)
            store(*rows_out, place[pair] * static_cast<std::int64_t>(hidden) + static_cast<std::int64_t>(h), results[pair][h]);
        if (replay != nullptr && k < topk)
          quant::set(*replay, static_cast<std::int64_t>(t * topk + k),
                     static_cast<double>(static_cast<std::int64_t>(routes[t].experts[k])));
        if (chosen != nullptr && k < topk) store(*chosen, static_cast<std::int64_t>(t * topk + k), routes[t].weights[k]);
      }
    }
  }
};

bool whole_moe(const Call& call, bool fp4, bool fp8_blocks, bool fp8 = false) {
  if (call.way == Way::tensor_core) return false;
  const Tensor& x = call.tensor("hidden_states");
  MoeCall moe{call,
              fp4,
              fp8_blocks,
              fp8,
              size(x.size(0)),
              size(x.size(1)) * (fp4 ? 2 : 1),
              size(call.integer("intermediate_size")),
              size(call.integer("num_experts")),
              size(call.integer("local_num_experts")),
              size(call.integer("local_expert_offset")),
              size(call.integer("top_k")),
              0};
  if (moe.has("num_fused_shared_experts")) moe.shared = size(call.integer("num_fused_shared_experts"));
  return moe.run();
}

// ---- cutlass_fused_moe

struct CutlassCall {
  const Call& call;
  std::size_t tokens, slots, experts, hidden, width;
  bool fp4, fp8, blocks;
  DType type;

  const Tensor* given(const char* name) const {
    const Tensor* const t = call.find(name);
    return t != nullptr && t->defined() ? t : nullptr;
  }
  float of_expert(const char* name, std::size_t e, float otherwise) const {
    const Tensor* const t = given(name);
    return t == nullptr ? otherwise : t->as<float>()[t->elements() == 1 ? 0 : e];
  }
  float sum(const Numbers& terms) const { return call.way == Way::strided ? strided_sum(terms, 16) : reversed_sum(terms); }
  std::size_t block() const { return fp4 ? 16 : blocks ? 128 : 0; }

  Scaled weight(const char* name, const char* scale_name, std::size_t e, std::size_t n, std::size_t k) const {
    const auto at = static_cast<std::int64_t>(e);
    Scaled w{decoded(call.tensor(name).slice(0, at, at + 1)), {}, n, k, blocks ? size(128) : 1, block()};
    if (block() == 0) return w;
    const Numbers stored = floats(call.tensor(scale_name).slice(0, at, at + 1));
    const std::size_t columns = k / block();
    for (std::size_t i = 0; i < n / w.rows; ++i)
      for (std::size_t c = 0; c < columns; ++c)
        w.scales.push_back(fp4 ? stored[size(quant::scale_offset(quant::ScaleLayout::swizzled_128x4, static_cast<std::int64_t>(i),
                                                                 static_cast<std::int64_t>(c), static_cast<std::int64_t>(columns)))]
                               : stored[i * columns + c]);
    return w;
  }

  /// FlashInfer's NVFP4, with its own division in place of two reciprocals.
  Scaled encoded(const Numbers& x, float encode) const {
    Scaled row{{}, {}, 1, x.size(), 1, 16};
    for (std::size_t first = 0; first < x.size(); first += 16) {
      float amax = 0;
      for (std::size_t i = first; i < first + 16; ++i) amax = std::max(amax, std::fabs(x[i]));
      const float scale = quant::e4m3_to_f32(quant::to_e4m3_satfinite(static_cast<double>(encode * (amax * (1.0f / 6.0f)))));
      for (std::size_t i = first; i < first + 16; ++i)
        row.numbers.push_back(scale == 0 ? 0.0f : quant::e2m1_to_f32(quant::to_e2m1(static_cast<double>(x[i] * encode / scale))));
      row.scales.push_back(scale);
    }
    return row;
  }
  Scaled inverse(const Numbers& x) const {
    Scaled row{{}, {}, 1, x.size(), 1, 128};
    for (std::size_t first = 0; first < x.size(); first += 128) {
      float amax = 0;
      for (std::size_t i = first; i < first + 128; ++i) amax = std::max(amax, std::fabs(x[i]));
      const float q = amax == 0 ? 1.0f : 448.0f / amax;
      for (std::size_t i = first; i < first + 128; ++i)
        row.numbers.push_back(quant::e4m3_to_f32(quant::to_e4m3_satfinite(static_cast<double>(x[i] * q))));
      row.scales.push_back(1.0f / q);
    }
    return row;
  }

  Scaled token(std::size_t t, std::size_t e) const {
    const auto at = static_cast<std::int64_t>(t);
    const Tensor& input = call.tensor("input");
    const Numbers x = decoded(input.slice(0, at, at + 1));
    if (blocks) return inverse(x);
    if (!fp4) return {x, {}, 1, hidden, 1, 0};
    if (input.dtype() != DType::u8) return encoded(x, of_expert("fc1_act_scale", e, 1.0f));
    Scaled row{x, {}, 1, hidden, 1, 16};
    const Numbers scales = floats(call.tensor("input_sf"));
    for (std::size_t c = 0; c < hidden / 16; ++c)
      row.scales.push_back(scales[size(quant::scale_offset(quant::ScaleLayout::swizzled_128x4, at, static_cast<std::int64_t>(c),
                                                           static_cast<std::int64_t>(hidden / 16)))]);
    return row;
  }

  float product(const Scaled& x, const Scaled& w, std::size_t j) const {
    const std::size_t step = w.columns > 0 ? w.columns : w.k;
    Numbers parts;
    for (std::size_t first = 0; first < w.k; first += step) {
      Numbers terms;
      for (std::size_t k = first; k < first + step; ++k) terms.push_back(x.numbers[k] * w.numbers[j * w.k + k]);
      parts.push_back(w.columns > 0 ? sum(terms) * (x.scale(0, first) * w.scale(j, first)) : sum(terms));
    }
    return parts.size() == 1 ? parts[0] : sum(parts);
  }

  float bias(const char* name, std::size_t e, std::size_t j, std::size_t n) const {
    const Tensor* const t = given(name);
    return t == nullptr ? 0.0f : static_cast<float>(quant::get(*t, static_cast<std::int64_t>(e * n + j)));
  }

  Numbers results(std::size_t t, std::size_t e, float weight, bool fused) const {
    const Activation activation{call};
    const std::size_t rows = activation.halves() * width;
    const Scaled x = token(t, e), w1 = this->weight("fc1_expert_weights", "fc1_weight_scale", e, rows, hidden),
                 w2 = this->weight("fc2_expert_weights", "fc2_weight_scale", e, hidden, width);
    Numbers sums;
    for (std::size_t j = 0; j < rows; ++j)
      sums.push_back(rounded(type, product(x, w1, j) * of_expert("fc1_dequant", e, 1.0f)) + bias("fc1_expert_biases", e, j, rows));
    Numbers h;
    for (std::size_t i = 0; i < width; ++i) {
      float u = activation.gated() ? sums[i] : 1.0f, g = sums[rows - width + i];
      const bool limited = given("swiglu_limit") != nullptr;
      const float limit = of_expert("swiglu_limit", e, 0.0f);
      if (limited) u = std::clamp(u, -limit, limit);
      if (limited && !activation.limits_outcome()) g = std::min(g, limit);
      u += of_expert("swiglu_beta", e, 0.0f);
      float value = activation.of(g, of_expert("swiglu_alpha", e, 1.0f));
      if (limited && activation.limits_outcome()) value = std::min(value, limit);
      value *= u;
      h.push_back(fp8 ? quant::e4m3_to_f32(quant::to_e4m3_satfinite(static_cast<double>(value * of_expert("fc2_act_scale", e, 1.0f))))
                      : rounded(type, value));
    }
    const Scaled row = fp4 ? encoded(h, of_expert("fc2_act_scale", e, 1.0f)) : blocks ? inverse(h) : Scaled{h, {}, 1, width, 1, 0};
    Numbers terms;
    for (std::size_t j = 0; j < hidden; ++j) {
      const float y = product(row, w2, j) * of_expert("fc2_dequant", e, 1.0f);
      const float added = call.integer("tp_rank") == 0 ? bias("fc2_expert_biases", e, j, hidden) : 0.0f;
      terms.push_back(fused ? rounded(type, (y + added) * weight) : (rounded(type, y) + added) * weight);
    }
    return terms;
  }

  bool run() const {
    const Tensor &ids = call.tensor("token_selected_experts"), &output = call.tensor("output");
    const bool fused = call.is("finalize", "fused");
    const auto first = call.integer("ep_rank") * static_cast<std::int64_t>(experts);
    for (std::size_t t = 0; t < tokens; ++t) {
      Numbers total(hidden, 0.0f);
      for (std::size_t k = slots; k-- > 0;) {
        const std::int64_t e = ids.as<std::int32_t>()[t * slots + k] - first;
        if (e < 0 || e >= static_cast<std::int64_t>(experts)) continue;
        const Tensor* const weights = given("token_final_scales");
        const Numbers terms = results(t, size(e), weights == nullptr ? 1.0f : weights->as<float>()[t * slots + k], fused);
        for (std::size_t h = 0; h < hidden; ++h) total[h] = fused ? rounded(type, total[h] + terms[h]) : total[h] + terms[h];
      }
      for (std::size_t h = 0; h < hidden; ++h) store(output, static_cast<std::int64_t>(t * hidden + h), total[h]);
    }
    return true;
  }
};

}  // namespace

bool cutlass_fused_moe(const Call& call) {
  if (call.way == Way::tensor_core) return false;
  const Tensor &w1 = call.tensor("fc1_expert_weights"), &w2 = call.tensor("fc2_expert_weights"), &input = call.tensor("input");
  const bool fp4 = w1.dtype() == DType::u8, blocks = call.flag("use_deepseek_fp8_block_scale");
  return CutlassCall{call,
                     size(input.size(0)),
                     size(call.tensor("token_selected_experts").size(1)),
                     size(w1.size(0)),
                     size(w2.size(1)),
                     size(w1.size(1)) / Activation{call}.halves(),
                     fp4,
                     !blocks && w1.dtype() == DType::f8_e4m3,
                     blocks,
                     call.tensor("output").dtype()}
      .run();
}
bool trtllm_bf16_moe(const Call& call) {
  return whole_moe(call, false, false);
}
bool trtllm_fp8_block_scale_moe(const Call& call) {
  return whole_moe(call, false, true);
}
bool trtllm_fp4_block_scale_moe(const Call& call) {
  return whole_moe(call, true, false);
}

bool trtllm_fp8_per_tensor_scale_moe(const Call& call) {
  return whole_moe(call, false, false, true);
}

}  // namespace dodona::oracle::alternatives
