// Faults of sums: kept in a narrow type while they grow, scaled by another block's scale; and of maxima that reach into the next row.
// Golden mode's answer is computed anew from what the schema says of the call.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "core/shape_expr.h"
#include "core/storage.h"
#include "dodona/error.h"
#include "oracle/faults/product_model.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

/// Another answer in the place of golden mode's.
void put_answer(GoldenRun& run, const std::string& name, const std::vector<double>& exact, const std::vector<double>& slack) {
  ReferenceOutput& record = run.reference.output(name, static_cast<std::int64_t>(exact.size()));
  for (auto& [output, tensor] : run.outputs) {
    if (output != name) continue;
    tensor = tensor.clone();
    for (std::size_t i = 0; i < exact.size(); ++i) {
      if (exact[i] == record.exact[i]) continue;
      quant::set(tensor, static_cast<std::int64_t>(i), exact[i]);
    }
  }
  record.exact = exact;
  record.slack = slack;
}

float rounded(DType type, float x) {
  if (type != DType::bf16 || !std::isfinite(x)) return static_cast<float>(quant::round_to(type, static_cast<double>(x)));
  auto bits_of = std::bit_cast<std::uint32_t>(x);
  bits_of += 0x7FFF + (bits_of >> 16 & 1);
  return std::bit_cast<float>(bits_of & 0xFFFF0000u);
}

// ---- accumulators

/// Products that a sum of a narrow type takes at once: one by one, or a tile's sum in fp32.
constexpr std::array<std::int64_t, 5> tiles{1, 16, 32, 64, 128};
constexpr double most_products = 0x1p24, most_rounded = 0x1p22;

Values narrow_sums(Site s) {
  const auto model = ProductModel::of(s.call);
  if (!model) return {};
  const double products = static_cast<double>(model->batches() * model->rows() * model->columns()) * static_cast<double>(model->depth());
  Values values;
  for (const char* const type : {"bf16", "f16"})
    for (const std::int64_t tile : tiles)
      if (tile < model->depth() && products <= most_products && products / static_cast<double>(tile) <= most_rounded)
        values.emplace_back(type + std::string(",") + std::to_string(tile));
  return values;
}
GoldenRun with_narrow_sums(Site s) {
  const ProductModel model = *ProductModel::of(s.call);
  const DType type = word(s).starts_with("bf16") ? DType::bf16 : DType::f16;
  const std::int64_t tile = std::stoll(word(s).substr(word(s).find(',') + 1)), depth = model.depth();
  const ProductModel::Factors factors = model.factors();
  GoldenRun run = s.call.golden;
  const auto addends = model.addends(factors);
  if (!addends) return run;
  std::vector<double> exact(factors.outer.size()), slack(exact.size());
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const auto columns = static_cast<std::size_t>(model.columns()), rows = static_cast<std::size_t>(model.rows());
    const float* const a = factors.a.data() + i / columns * static_cast<std::size_t>(depth);
    const float* const b = factors.b.data() + (i / (rows * columns) * columns + i % columns) * static_cast<std::size_t>(depth);
    float sum = 0;
    for (std::int64_t k = 0; k < depth; k += tile) {
      float part = 0;
      for (std::int64_t j = k; j < std::min(k + tile, depth); ++j) part += a[j] * b[j];
      sum = rounded(type, sum + part);
    }
    exact[i] = static_cast<double>(sum) * factors.outer[i] + (*addends)[i];
    slack[i] = factors.outer[i] == 1.0 && (*addends)[i] == 0 ? 0.0 : std::fabs(exact[i]) * 0x1p-22;
  }
  put_answer(run, model.output(), exact, slack);
  return run;
}
std::string narrow_sums_in_words(Site s) {
  const std::string tile = word(s).substr(word(s).find(',') + 1);
  return "sums are kept in " + word(s).substr(0, word(s).find(',')) + ": rounded " +
         (tile == "1" ? "with every product that is added" : "after every " + tile + " products");
}

// ---- blocks of scales

Values uneven_scales(Site s) {
  const auto model = ProductModel::of(s.call);
  if (!model ||
      static_cast<double>(model->batches() * model->rows() * model->columns()) * static_cast<double>(model->depth()) > most_products)
    return {};
  Values values;
  for (const ScaleBlocks& b : model->blocks())
    if ((b.extent_rows + b.in_rows - 1) / b.in_rows != b.rows || (b.extent_columns + b.in_columns - 1) / b.in_columns != b.columns)
      values.emplace_back(b.scale);
  return values;
}
ScaleBlocks evenly(ScaleBlocks blocks) {
  blocks.rows = (blocks.extent_rows + blocks.in_rows - 1) / blocks.in_rows;
  blocks.columns = (blocks.extent_columns + blocks.in_columns - 1) / blocks.in_columns;
  return blocks;
}
GoldenRun with_even_blocks(Site s) {
  const ProductModel model = *ProductModel::of(s.call);
  GoldenRun run = s.call.golden;
  const auto addends = model.addends(model.factors());
  if (!addends) return run;
  std::vector<ScaleBlocks> blocks = model.blocks();
  for (ScaleBlocks& b : blocks)
    if (b.scale == word(s)) b = evenly(b);
  std::vector<double> exact = model.sums(model.factors(blocks));
  for (std::size_t i = 0; i < exact.size(); ++i) exact[i] += (*addends)[i];
  const ReferenceOutput& right = *s.call.golden.reference.find(model.output());
  std::vector<double> slack = right.slack;
  // Where the scales stay the same so does the sum; elsewhere it may be larger than the one that the slack is of.
  for (std::size_t i = 0; i < slack.size(); ++i)
    if (right.exact[i] != 0 && std::fabs(exact[i]) > std::fabs(right.exact[i])) slack[i] *= std::fabs(exact[i] / right.exact[i]);
  put_answer(run, model.output(), exact, slack);
  return run;
}
std::string even_blocks_in_words(Site s) {
  const ProductModel model = *ProductModel::of(s.call);
  for (const ScaleBlocks& b : model.blocks()) {
    if (b.scale != word(s)) continue;
    const ScaleBlocks even = evenly(b);
    const bool by_rows = even.rows != b.rows;
    const std::int64_t extent = by_rows ? b.extent_rows : b.extent_columns, count = by_rows ? b.in_rows : b.in_columns;
    return b.scale + ": a block of scales is taken for " + std::to_string(by_rows ? even.rows : even.columns) +
           (by_rows ? " rows" : " columns") + " of " + b.operand + ", " + std::to_string(extent) + " over " + std::to_string(count) +
           " blocks, not for " + std::to_string(by_rows ? b.rows : b.columns);
  }
  return {};
}

// ---- rows that are added up

struct Slots {
  std::string argument;
  int dimension;
};
/// An input with a dimension of a few that no output has: what is added up over.
std::optional<Slots> slots_of(Site s) {
  if (s.call.op.info().category != Category::moe) return std::nullopt;
  std::string written = " ";
  for (const TensorSpec& spec : s.call.op.schema().tensors)
    if (spec.direction != Direction::in) written += spec.shape + " ";
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const tensor = s.call.inputs.find(spec.name);
    if (spec.direction != Direction::in || tensor == nullptr || !tensor->defined() || tensor->rank() < 2 || !is_float(tensor->dtype()) ||
        (spec.role != Role::values && spec.role != Role::weight && spec.role != Role::probs))
      continue;
    SymbolNames names;
    const ShapeExpr shape = ShapeExpr::parse(spec.shape, names);
    const ShapeAlternative* const dims = shape.for_rank(tensor->rank());
    for (int d = 1; dims != nullptr && d < tensor->rank(); ++d) {
      const auto symbols = dims->dims[static_cast<std::size_t>(d)].symbols();
      if (symbols.size() != 1 || tensor->size(d) < 3 || tensor->size(d) > 16) continue;
      const std::string name = names.name(symbols.front());
      if (name.find("topk") != std::string::npos && written.find(" " + name + " ") == std::string::npos) return Slots{spec.name, d};
    }
  }
  return std::nullopt;
}
Values slots_to_round(Site s) {
  if (!slots_of(s)) return {};
  Values values;
  for (const auto& [name, tensor] : s.call.golden.outputs) {
    const ReferenceOutput* const reference = s.call.golden.reference.find(name);
    if ((tensor.dtype() == DType::bf16 || tensor.dtype() == DType::f16) && reference != nullptr &&
        reference->exact.size() == static_cast<std::size_t>(tensor.elements()))
      for (const char* const what : {" sums", " addends"}) values.emplace_back(name + what);
  }
  return values;
}
/// `out sums`: rounded with every addend; `out addends`: each addend is, and their sum once.
GoldenRun with_rounded_slots(Site s) {
  const Slots slots = *slots_of(s);
  const std::string name = first_of(word(s));
  const bool whole = rest_of(word(s)) == "sums";
  const Tensor right = *s.call.inputs.find(slots.argument);
  GoldenRun run = s.call.golden;
  const ReferenceOutput before = *run.reference.find(name);
  const DType type = find(run.outputs, name)->dtype();
  std::vector<double> sum(before.exact.size()), plain(sum.size());
  for (std::int64_t slot = 0; slot < right.size(slots.dimension); ++slot) {
    Arguments inputs = s.call.inputs;
    const Tensor alone = right.clone();
    for (std::int64_t i = 0; i < alone.elements(); ++i)
      if (index_of(i, alone.shape())[slots.dimension] != slot) quant::set_bits(alone, i, 0);
    inputs.set(slots.argument, alone);
    const GoldenRun part = run_golden(s.call.op, inputs, s.call.exec);
    const ReferenceOutput* const its = part.reference.find(name);
    if (its == nullptr || its->exact.size() != sum.size()) return run;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      plain[i] += its->exact[i];
      sum[i] += through(type, its->exact[i]);
      if (whole) sum[i] = through(type, sum[i]);
    }
  }
  for (std::size_t i = 0; i < sum.size(); ++i)
    if (std::isfinite(before.exact[i]) &&
        std::fabs(plain[i] - before.exact[i]) > before.slack[i] + 1e-4 * std::fabs(before.exact[i]) + 1e-30)
      return run;  // no sum over the slots
  put_answer(run, name, sum, std::vector<double>(sum.size()));
  return run;
}
std::string rounded_slots_in_words(Site s) {
  const Slots slots = *slots_of(s);
  const std::string of = first_of(word(s));
  const std::string type(name(find(s.call.golden.outputs, of)->dtype()));
  if (rest_of(word(s)) == "addends")
    return of + ": each addend of the sum over the slots of " + slots.argument + " is rounded to " + type + " before they are added up";
  return of + ": the sum over the " + std::to_string(s.call.inputs.find(slots.argument)->size(slots.dimension)) + " slots of " +
         slots.argument + " is kept in " + type + ", rounded with every addend";
}

// ---- maxima

struct Quantized {
  const TensorSpec *scale, *codes;
  Tensor input;
  std::int64_t group;
};
/// A scale for each group of an input, and codes beside it.
std::optional<Quantized> quantized(Site s) {
  for (const auto& [name, tensor] : s.call.golden.outputs) {
    const TensorSpec* const spec = s.call.op.schema().find_tensor(name);
    const TensorSpec* const codes = spec->storage.scales ? s.call.op.schema().find_tensor(spec->storage.scales->of) : nullptr;
    const auto input = scaled_input(s.call, *spec, tensor);
    const ReferenceOutput* const reference = s.call.golden.reference.find(name);
    if (codes == nullptr || codes->direction == Direction::in || !input || !input->contiguous() || reference == nullptr ||
        reference->exact.size() != static_cast<std::size_t>(tensor.elements()))
      continue;
    const ReferenceOutput* const of_codes = s.call.golden.reference.find(codes->name);
    if (of_codes == nullptr || of_codes->exact.size() != static_cast<std::size_t>(input->elements())) continue;
    return Quantized{spec, codes, *input, input->elements() / tensor.elements()};
  }
  return std::nullopt;
}
Values maxima_of_lanes(Site s) {
  const auto call = quantized(s);
  if (!call || std::has_single_bit(static_cast<std::uint64_t>(call->group))) return {};
  return {std::string(call->scale->name)};
}
/// What became codes: the input's numbers over their group's largest, times its code. Nothing where they are no such quotients.
struct Quotients {
  std::vector<double> largest, of;  ///< of each group; of each number, before its rounding
  double code = 0;
};
std::optional<Quotients> quotients_of(Site s, const Quantized& call) {
  const ReferenceOutput& codes = *s.call.golden.reference.find(call.codes->name);
  const bool whole = find(s.call.golden.outputs, call.codes->name)->dtype() == DType::i8;
  Quotients quotients;
  quotients.of.resize(codes.exact.size());
  for (std::int64_t first = 0; first < call.input.elements(); first += call.group) {
    double largest = 0;
    std::int64_t at = first;
    for (std::int64_t i = first; i < first + call.group; ++i)
      if (const double magnitude = std::fabs(quant::get(call.input, i)); magnitude > largest) largest = magnitude, at = i;
    quotients.largest.push_back(largest);
    const double code = std::fabs(codes.exact[static_cast<std::size_t>(at)]);
    quotients.code = whole ? std::round(code) : code;
    for (std::int64_t i = first; i < first + call.group && largest > 0; ++i) {
      const auto k = static_cast<std::size_t>(i);
      quotients.of[k] = quant::get(call.input, i) / largest * quotients.code;
      if (std::fabs(codes.exact[k] - quotients.of[k]) > quotients.code / 8) return std::nullopt;
    }
  }
  return quotients;
}
GoldenRun with_maxima_of_lanes(Site s) {
  const Quantized call = *quantized(s);
  GoldenRun run = s.call.golden;
  const auto quotients = quotients_of(s, call);
  if (!quotients) return run;
  ReferenceOutput scale = *run.reference.find(call.scale->name), codes = *run.reference.find(call.codes->name);
  const auto lanes = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(call.group)));
  for (std::size_t g = 0; g < scale.exact.size(); ++g) {
    const double own = quotients->largest[g];
    double all = own;
    const std::int64_t first = static_cast<std::int64_t>(g) * call.group;
    for (std::int64_t i = first + call.group; i < std::min(first + lanes, call.input.elements()); ++i)
      all = std::max(all, std::fabs(quant::get(call.input, i)));
    if (!(own > 0) || !(all > own)) continue;
    scale.exact[g] *= all / own;
    scale.slack[g] = scale.slack[g] * (all / own) + 0x1p-23 * std::fabs(scale.exact[g]);
    for (std::int64_t i = first; i < first + call.group; ++i) {
      const auto k = static_cast<std::size_t>(i);
      codes.exact[k] = quotients->of[k] * (own / all);
      codes.slack[k] = 0x1p-21 * std::fabs(codes.exact[k]);
    }
  }
  put_answer(run, call.scale->name, scale.exact, scale.slack);
  put_answer(run, call.codes->name, codes.exact, codes.slack);
  return run;
}
std::string lanes_in_words(Site s) {
  const Quantized call = *quantized(s);
  const auto lanes = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(call.group)));
  return word(s) + ": maxima are taken over " + std::to_string(lanes) + " elements, a power of two, not over " +
         std::to_string(call.group) + ": the first ones of the next row, or group, count";
}

// ---- conversions to int8

Values ways_to_int8(Site s) {
  const auto call = quantized(s);
  if (!call || find(s.call.golden.outputs, call->codes->name)->dtype() != DType::i8) return {};
  return {std::string("toward-zero"), std::string("halves-to-even")};
}
GoldenRun converted_otherwise(Site s) {
  const Quantized call = *quantized(s);
  GoldenRun run = s.call.golden;
  const auto quotients = quotients_of(s, call);
  if (!quotients) return run;
  ReferenceOutput codes = *run.reference.find(call.codes->name);
  const bool cut = word(s) == "toward-zero";
  const auto converted = [&](double x) { return cut ? std::trunc(x) : std::nearbyint(x); };
  for (std::size_t i = 0; i < codes.exact.size(); ++i) {
    const double x = quotients->of[i], blur = 0x1p-21 * std::fabs(x);
    const double low = converted(x - blur), high = converted(x + blur);
    // What is a whole number, or a half, up to a rounding may fall either way.
    codes.exact[i] = (low + high) / 2;
    codes.slack[i] = low == high ? 0 : 0.5;
  }
  put_answer(run, call.codes->name, codes.exact, codes.slack);
  return run;
}
std::string conversion_in_words(Site s) {
  return quantized(s)->codes->name +
         (word(s) == "toward-zero" ? ": quotients are cut toward zero, not rounded" : ": halves are rounded to even, not away from zero");
}

constexpr std::array table{
    Fault{.id = "sums-kept-narrow",
          .summary = "sums are kept in 16 bits while they grow, product by product or tile by tile",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = narrow_sums,
          .words = narrow_sums_in_words,
          .rerun = with_narrow_sums},
    Fault{.id = "scale-blocks-evenly",
          .summary = "blocks of scales are taken to divide what they scale evenly",
          .strikes = call,
          .severity = gross,
          .applies = always,
          .variants = uneven_scales,
          .words = even_blocks_in_words,
          .rerun = with_even_blocks},
    Fault{.id = "slots-rounded",
          .summary = "the sum over a token's experts is kept in the output's type, rounded with every addend",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = slots_to_round,
          .words = rounded_slots_in_words,
          .rerun = with_rounded_slots},
    Fault{.id = "int8-conversion",
          .summary = "codes of int8 are cut toward zero, or halves go to even ones",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = ways_to_int8,
          .words = conversion_in_words,
          .rerun = converted_otherwise,
          .variant = true},
    Fault{.id = "maximum-beyond-the-group",
          .summary = "a group's maximum is taken over a power of two of elements: the next group's first ones count",
          .strikes = call,
          .severity = gross,
          .applies = always,
          .variants = maxima_of_lanes,
          .words = lanes_in_words,
          .far = true,
          .rerun = with_maxima_of_lanes},
};

}  // namespace

std::span<const Fault> sum_faults() {
  return table;
}

}  // namespace dodona::oracle
