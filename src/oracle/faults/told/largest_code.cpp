#include "oracle/faults/told/largest_code.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/storage.h"
#include "oracle/faults/rewritten.h"
#include "oracle/judge/pattern/samples.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

/// What a quantizer was given and gives.
struct Quantized {
  std::string codes, scales;
  Tensor values;
  std::int64_t group = 0;                ///< numbers of a row that share a scale
  std::vector<std::int64_t> scale_at{};  ///< of each group its element of the scales

  std::int64_t groups() const { return values.elements() / group; }
};

/// The largest magnitudes of groups of the input, where codes are as many as its numbers.
std::optional<Quantized> quantized_of(const FaultCase& call) {
  for (const auto& [name, scale] : call.golden.outputs) {
    const TensorSpec& spec = *call.op.schema().find_tensor(name);
    const FaultSite site{call, name, &spec, scale};
    const auto order = scale_order(site);
    if (!order || !is_float(scale.dtype())) continue;
    for (const auto& [codes_name, packed] : call.golden.outputs) {
      const Tensor codes = as_codes(packed, call.op.schema().find_tensor(codes_name)->storage);
      if (codes_name == name || call.op.schema().find_tensor(codes_name)->judge != Judge::code) continue;
      for (const TensorSpec& input : call.op.schema().tensors) {
        const Tensor* const values = call.inputs.find(input.name);
        if (input.direction != Direction::in || values == nullptr || !values->defined() || !is_float(values->dtype()) ||
            bits(values->dtype()) < 16 || values->rank() < 1 || values->elements() != codes.elements() || values->elements() == 0 ||
            values->elements() > most_elements)
          continue;
        Quantized found{codes_name, name, *values};
        const std::int64_t width = values->size(-1), rows = values->elements() / width;
        std::int64_t columns = spec.storage.scales ? spec.storage.scales->columns : 0;
        if (!spec.storage.scales) columns = scale.dtype() == DType::f8_e8m0 ? 32 : 16;
        if (columns == 0 && scale.elements() != rows) continue;
        found.group = columns == 0 ? width : columns;
        if (width % found.group != 0 || (spec.storage.scales && spec.storage.scales->rows != 1)) continue;
        const std::int64_t in_row = width / found.group;
        if (!in_tiles(*order) && scale.elements() != rows * in_row) continue;
        if (in_tiles(*order) && (scale.rank() != 2 || scale.size(1) < in_row || scale.size(0) < rows)) continue;
        const ScaleMatrices tiles{scale.rank() >= 2 ? scale.size(-2) : 1, scale.rank() >= 1 ? scale.size(-1) : 1, *order};
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t g = 0; g < in_row; ++g)
            found.scale_at.push_back(in_tiles(*order) ? tiles.in_tiles(r * tiles.columns + g) : r * in_row + g);
        return found;
      }
    }
  }
  return std::nullopt;
}

/// Of a group its largest magnitude over its scale: the least and the largest of all groups, and whether all scales are powers of two.
struct Quotients {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  bool powers = true;
  std::size_t count = 0;
};
std::optional<Quotients> quotients(const Quantized& q, const Tensor& scales, const ReferenceOutput& said) {
  Quotients found;
  for (std::int64_t g = 0; g < q.groups(); ++g) {
    const auto at = static_cast<std::size_t>(q.scale_at[static_cast<std::size_t>(g)]);
    double most_of = 0;
    for (std::int64_t i = g * q.group; i < (g + 1) * q.group; ++i) most_of = std::max(most_of, std::fabs(quant::get(q.values, i)));
    const double scale = quant::get(scales, static_cast<std::int64_t>(at));
    // Groups of nothing, and those that the contract leaves open, say nothing.
    if (!(most_of > 1e-6) || !std::isfinite(most_of) || (!said.unspecified.empty() && said.unspecified[at] != 0)) continue;
    if (!(scale > 0) || !std::isfinite(scale)) return std::nullopt;
    int exponent = 0;
    found.powers = found.powers && std::frexp(scale, &exponent) == 0.5;
    found.least = std::min(found.least, most_of / scale), found.most = std::max(found.most, most_of / scale);
    ++found.count;
  }
  constexpr std::size_t enough = 4;
  if (found.count < enough) return std::nullopt;
  return found;
}

}  // namespace

std::optional<Explanation> largest_code(const FaultCase& call, const NamedTensors& actual, const Verdict&, const JudgeOptions& options) {
  const auto q = quantized_of(call);
  if (!q) return std::nullopt;
  const Tensor& written = *find(actual, q->scales);
  const FaultSite site{call};
  const ReferenceOutput* const scales = kept_exactly(site, q->scales, *find(call.golden.outputs, q->scales));
  const Tensor codes = as_codes(*find(call.golden.outputs, q->codes), call.op.schema().find_tensor(q->codes)->storage);
  const ReferenceOutput* const numbers = kept_exactly(site, q->codes, codes);
  if (scales == nullptr || numbers == nullptr) return std::nullopt;
  const auto right = quotients(*q, *find(call.golden.outputs, q->scales), *scales), given = quotients(*q, written, *scales);
  if (!right || !given || std::fabs(given->most / right->most - 1) < 0.004) return std::nullopt;
  const bool one = given->most < 1.002 * given->least, powers = given->powers && given->most <= 2.002 * given->least;
  if (!one && !powers) return std::nullopt;
  std::vector<double> of_scales = scales->exact, its_slack = scales->slack, of_codes = numbers->exact, slack = numbers->slack;
  for (std::int64_t g = 0; g < q->groups(); ++g) {
    const auto at = static_cast<std::size_t>(q->scale_at[static_cast<std::size_t>(g)]);
    const double before = of_scales[at], after = quant::get(written, static_cast<std::int64_t>(at));
    if (!(before > 0) || !(after > 0)) continue;
    of_scales[at] = after;
    for (std::int64_t i = g * q->group; i < (g + 1) * q->group; ++i) {
      of_codes[static_cast<std::size_t>(i)] *= before / after;
      slack[static_cast<std::size_t>(i)] =
          slack[static_cast<std::size_t>(i)] * before / after + 0x1p-20 * std::fabs(of_codes[static_cast<std::size_t>(i)]);
    }
  }
  GoldenRun run = call.golden;
  put_numbers(run, q->scales, of_scales, its_slack);
  ReferenceOutput& record = run.reference.output(q->codes, static_cast<std::int64_t>(of_codes.size()));
  record.exact = of_codes;
  record.slack = slack;
  for (auto& [name, tensor] : run.outputs)
    if (name == q->codes) tensor = *find(actual, name);
  const Verdict other = judge(call.op, call.inputs, run, actual, options);
  if (other.outcome != Outcome::pass) return std::nullopt;
  using pattern::number;
  Explanation found{"another-largest-code", {}};
  found.text = q->scales + ": scales are made for another largest code: ";
  found.text += one ? number(given->most) + ", where the contract has " + number(right->most) + "; codes follow from them"
                    : "powers of two that bring a block's largest number to between " + number(given->least) + " and " +
                          number(given->most) + ", where the contract's bring it to between " + number(right->least) + " and " +
                          number(right->most) + "; codes follow from them";
  for (const auto& name : {q->codes, q->scales}) found.outputs.push_back(name);
  found.complete = true;
  return found;
}

}  // namespace dodona::oracle
