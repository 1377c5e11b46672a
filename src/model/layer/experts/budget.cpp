#include "model/layer/experts/budget.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "dodona/op.h"
#include "model/layer/values.h"
#include "ops/base/golden_output.h"
#include "ops/rows/activation/silu.h"
#include "ops/rows/quantize/requantize.h"
#include "ops/schemes/deep_gemm.h"
#include "ops/schemes/half_product.h"
#include "ops/schemes/scaled_fp4.h"
#include "ops/sums/open_rows.h"

namespace dodona::model {
namespace {

using ops::Bounded;

constexpr std::int64_t group = 128;

/// Rows as a product takes them: what is multiplied, and how far the numbers that another implementation multiplies may lie from that.
struct TakenRows {
  Tensor numbers, scales;    ///< [rows, K] in e4m3, [rows, K/128]; [rows, K/2] pairs of e2m1, [rows, K/16]; without scales, numbers in bf16
  std::vector<double> open;  ///< [rows, K]
};

/// Codes of `numbers` [rows, K] and scales of groups, by a rule.
TakenRows requantized(const ops::Requantizer& rule, const std::vector<Bounded>& x, std::int64_t rows, std::int64_t k) {
  const DType codes = rule.code == DType::f4_e2m1 ? DType::u8 : rule.code;
  TakenRows out{Tensor(codes, {rows, k * bits(rule.code) / 8}), Tensor(rule.scale, {rows, k / rule.group}), std::vector<double>(x.size())};
  for (std::int64_t i = 0; i < rows; ++i)
    ops::requantize(rule, std::span(x).subspan(static_cast<std::size_t>(i * k), static_cast<std::size_t>(k)),
                    ops::RequantizedRow{.codes = out.numbers.as<std::uint8_t>() + i * out.numbers.size(1),
                                        .scales = out.scales.as<std::byte>() + i * bytes_for(rule.scale, out.scales.size(1)),
                                        .open = out.open.data() + i * k});
  return out;
}

/// For products with blocks of fp8.
TakenRows quantized(const std::vector<Bounded>& x, std::int64_t rows, const Projection& weight) {
  return requantized(ops::sgl_fp8_groups, x, rows, weight.columns());
}
/// For products with NVFP4, by the weight's own input scale.
TakenRows in_nvfp4(const std::vector<Bounded>& x, std::int64_t rows, const Projection& weight) {
  ops::Requantizer rule = ops::encoded_nvfp4;
  rule.encode_scale = 1.0f / weight.weight.input_scale;
  return requantized(rule, x, rows, weight.columns());
}
/// As they are, numbers in bf16 whose slack holds every such rounding.
TakenRows in_bf16(const std::vector<Bounded>& x, std::int64_t rows, const Projection& weight) {
  const std::int64_t k = weight.columns();
  TakenRows out{Tensor(DType::bf16, {rows, k}), {}, std::vector<double>(x.size())};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    quant::set(out.numbers, at, x[i].exact);
    out.open[i] = x[i].open ? std::numeric_limits<double>::infinity() : x[i].slack + std::fabs(quant::get(out.numbers, at) - x[i].exact);
  }
  return out;
}

/// Rows times the weight of an expert in fp32, and what the rows leave open of that.
std::vector<Bounded> products(const TakenRows& rows, const Projection& weight, const Exec& exec) {
  const std::int64_t m = rows.numbers.size(0), n = weight.rows(), k = weight.columns();
  const Tensor& w = weight.weight.weight;
  const Tensor d(DType::bf16, {m, n});
  Reference reference;
  ops::Operand columns{.type = w.dtype(), .codes = w.data(), .count = n, .k = k, .stride = k, .scales = {}, .zeros = {}};
  double factor = 1;
  if (rows.numbers.dtype() == DType::u8) {
    columns = ops::fp4_operand(w, ops::nvfp4_scales(weight.block_scales.data(), k));
    factor = std::fabs(static_cast<double>(weight.alpha()));
    const Tensor alpha = scalar(weight.alpha());
    const ops::Product product = ops::fp4_product(ops::fp4_operand(rows.numbers, ops::linear_scales(rows.scales, 1, 16)), columns, alpha);
    ops::golden_products({&product, 1}, ops::fp4_by_blocks, d, &reference, "d", exec);
  } else if (rows.scales.defined()) {
    const ops::GoldenOutput out(d, &reference, "d");
    out.make_open();
    const ops::DeepGemmProduct product{.a = rows.numbers, .sfa = rows.scales, .b = w, .sfb = weight.block_scales, .d = d};
    ops::deep_gemm_golden({&product, 1}, out, true, ops::DeepGemmScaling::right, exec);
    columns.scales = ops::linear_scales(weight.block_scales, group, group);
  } else {
    ops::golden_half_product({.operands = {ops::batch_of_one(rows.numbers), ops::batch_of_one(w.transpose(0, 1)), ops::batch_of_one(d)},
                              .out = d,
                              .out_name = "d"},
                             exec, &reference);
  }
  const ReferenceOutput& record = *reference.find("d");
  const std::vector<double> open = ops::open_products(rows.open.data(), m, columns, exec);
  std::vector<Bounded> sums(static_cast<std::size_t>(m * n));
  for (std::size_t at = 0; at < sums.size(); ++at)
    sums[at] = {record.exact[at], record.slack[at] + factor * open[at], record.unspecified.empty() ? false : record.unspecified[at] != 0};
  return sums;
}

/// silu moves by at most 1.1 times what its argument does.
Bounded activated(const Bounded& gate, const Bounded& up, bool rounds_activation) {
  constexpr double steepest = 1.1;
  const Bounded silu = ops::silu(gate.exact).widened(steepest * gate.slack);
  const Bounded narrow = rounds_activation ? ops::rounded_to(DType::bf16, silu) : silu;
  return ops::rounded_to(DType::bf16, ops::rounded_f32(narrow * up));
}

/// fl32 of a sum of terms in any order, each product rounded too.
Bounded summed(const std::vector<Bounded>& terms) {
  Bounded sum;
  double magnitude = 0;
  for (const Bounded& term : terms) {
    sum = sum + term;
    magnitude += std::fabs(term.exact) + term.slack;
  }
  return sum.widened(2.0 * static_cast<double>(terms.size()) * ops::f32_eps * magnitude);
}

/// One element of a token's sum over its slots: rows before their rounding.
Bounded combined(const ExpertsBackend& backend, const std::vector<Bounded>& rows, const float* weights, double factor) {
  const ExpertsRoundings& rules = backend.roundings;
  std::vector<Bounded> terms;
  Bounded between;
  for (std::size_t j = 0; j < rows.size(); ++j) {
    const double weight =
        rules.narrow_weights ? quant::round_to(DType::bf16, static_cast<double>(weights[j])) : static_cast<double>(weights[j]);
    const Bounded term = rules.weighs_first ? ops::rounded_to(DType::bf16, ops::rounded_f32(rows[j] * weight))
                                            : ops::rounded_to(DType::bf16, rows[j]) * weight;
    if (rules.rounds_between) between = ops::rounded_to(DType::bf16, between + term);
    terms.push_back(term);
  }
  if (rules.rounds_between) return ops::rounded_to(DType::bf16, between * factor);
  const Bounded sum = summed(terms);
  return ops::rounded_to(DType::bf16, backend.factor == FactorPlace::experts ? ops::rounded_f32(sum * factor) : sum);
}

}  // namespace

bool has_budget(const ExpertsBackend& backend, const LinearMethod& stored) {
  return backend.weights == ExpertWeights::fp8 || backend.bounded != nullptr || &stored == &bf16_method ||
         (&stored == &nvfp4_method && &backend == &plain_experts);
}

std::vector<Bounded> bounded_experts(const LayerWeights& weights, const Tensor& x, const Routing& routing, const Exec& exec) {
  // Fast mode may have given up raw weights for packed ones: they are made anew.
  const std::vector<ExpertRows> groups = groups_of(routing.counts);
  const auto packed = [](const MlpWeights& expert) { return expert.gate_up.prepared.defined() || expert.whole.defined(); };
  if (!groups.empty() && packed(weights.expert(groups.front().expert))) {
    Exec raw_weights = exec;
    raw_weights.mode = Mode::golden;
    LayerWeights raw(weights.source(), weights.setting(), raw_weights);
    raw.touch(routing.counts, raw_weights);
    return bounded_experts(raw, x, routing, raw_weights);
  }
  if (weights.backend().bounded != nullptr) return weights.backend().bounded(weights, x, routing, exec);
  const LinearMethod& stored = stored_experts(weights.config(), weights.setting());
  const auto taken = weights.backend().weights == ExpertWeights::fp8 ? quantized : &stored == &bf16_method ? in_bf16 : in_nvfp4;
  const std::int64_t tokens = x.size(0), hidden = x.size(1), topk = routing.ids.size(1);
  std::vector<Bounded> values(static_cast<std::size_t>(x.elements()));
  for (std::int64_t i = 0; i < x.elements(); ++i) values[static_cast<std::size_t>(i)] = {quant::get(x, i)};
  std::vector<std::vector<Bounded>> rows(static_cast<std::size_t>(tokens * topk));
  for (const ExpertRows& expert : groups) {
    std::vector<std::int64_t> pairs;
    std::vector<Bounded> mine;
    for (std::int64_t i = 0; i < routing.ids.elements(); ++i) {
      if (routing.ids.as<std::int32_t>()[i] != expert.expert) continue;
      pairs.push_back(i);
      const auto begin = values.begin() + i / topk * hidden;
      mine.insert(mine.end(), begin, begin + hidden);
    }
    const auto count = static_cast<std::int64_t>(pairs.size());
    const MlpWeights& weight = weights.expert(expert.expert);
    const std::vector<Bounded> both = products(taken(mine, count, weight.gate_up), weight.gate_up, exec);
    const std::int64_t width = weight.down.columns();
    std::vector<Bounded> h(static_cast<std::size_t>(count * width));
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t k = 0; k < width; ++k) {
        const auto half = [&](std::int64_t at) { return ops::rounded_to(DType::bf16, both[static_cast<std::size_t>(2 * i * width + at)]); };
        h[static_cast<std::size_t>(i * width + k)] = activated(half(k), half(width + k), weights.backend().roundings.rounds_activation);
      }
    const std::vector<Bounded> out = products(taken(h, count, weight.down), weight.down, exec);
    for (std::int64_t i = 0; i < count; ++i)
      rows[static_cast<std::size_t>(pairs[static_cast<std::size_t>(i)])] = {out.begin() + i * hidden, out.begin() + (i + 1) * hidden};
  }
  const double factor = weights.config().routed_scaling_factor;
  std::vector<Bounded> sums(values.size());
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t c = 0; c < hidden; ++c) {
      std::vector<Bounded> column;
      for (std::int64_t j = t * topk; j < (t + 1) * topk; ++j)
        column.push_back(rows[static_cast<std::size_t>(j)][static_cast<std::size_t>(c)]);
      sums[static_cast<std::size_t>(t * hidden + c)] = combined(weights.backend(), column, routing.weights.as<float>() + t * topk, factor);
    }
  return sums;
}

}  // namespace dodona::model
