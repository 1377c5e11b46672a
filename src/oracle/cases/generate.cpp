#include "oracle/cases/generate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <unordered_map>

#include "core/call.h"
#include "core/fixed_math.h"
#include "core/random.h"
#include "core/threads.h"
#include "dodona/error.h"
#include "oracle/cases/edge_limit.h"
#include "oracle/cases/specials.h"
#include "oracle/cases/window.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

/// Elements made at a time. Even, so that two chunks never share a byte of a packed type.
constexpr std::int64_t chunk_size = 2048;

/// Everything here must stay a pure function of (seed, name, index).
using Draw = InputDraw;

/// Without leaving the type's finite range: e4m3 would turn what it cannot hold into NaN. Infinities are meant.
double within_range(DType type, double value) {
  if (!is_float(type) || std::isinf(value)) return value;
  const double limit = quant::max_finite(type);
  return std::clamp(value, -limit, limit);
}

/// Where the elements of a tensor lie in the whole that it is a part of: runs of equal length, one behind the other in the tensor.
struct Runs {
  std::vector<std::int64_t> begin;  ///< of each run in the whole
  std::int64_t length = 0;

  static Runs whole(const Tensor& tensor) { return {{0}, tensor.elements()}; }
};

Runs runs_of(const InputPlan& input) {
  const int rank = input.shape.rank();
  int last = rank - 1;  // the last axis that is cut
  const auto extent = [&](int axis) {
    const auto& [begin, end] = input.part[static_cast<std::size_t>(axis)];
    return end - begin;
  };
  while (last >= 0 && extent(last) == input.shape[last]) --last;
  if (last < 0) return {{0}, element_count(input.shape)};
  Runs runs{{0}, 1};
  for (int axis = last; axis < rank; ++axis) runs.length *= extent(axis);
  std::int64_t stride = element_count(input.shape);
  for (int axis = 0; axis <= last; ++axis) {
    stride /= input.shape[axis];
    const auto& [begin, end] = input.part[static_cast<std::size_t>(axis)];
    std::vector<std::int64_t> finer;
    for (const std::int64_t run : runs.begin)
      for (std::int64_t i = begin; i < (axis < last ? end : begin + 1); ++i) finer.push_back(run + i * stride);
    runs.begin = std::move(finer);
  }
  return runs;
}

/// Calls make(first element, the same in the whole, how many) for every chunk of the tensor.
template <class Make>
void for_chunks(const Runs& runs, double cost, int threads, const Make& make) {
  const std::int64_t each = (runs.length + chunk_size - 1) / chunk_size;
  parallel_for(threads, each * static_cast<std::int64_t>(runs.begin.size()), cost * chunk_size, [&](std::int64_t c) {
    const std::int64_t run = c / each, at = c % each * chunk_size;
    make(run * runs.length + at, runs.begin[static_cast<std::size_t>(run)] + at, std::min(chunk_size, runs.length - at));
  });
}

/// One tensor to fill, and how.
struct Filling {
  const Tensor& tensor;
  Runs runs;
  Draw draw;
  int threads;
  const StruckNumbers* struck = nullptr;
};

/// Sets element i to make(i, the i-th normal number), counted in the whole.
template <class Make>
void fill_elements(const Filling& f, const Make& make) {
  const DType type = f.tensor.dtype();
  auto* bytes = f.tensor.as<std::byte>();
  for_chunks(f.runs, 32.0, f.threads, [&](std::int64_t begin, std::int64_t in_whole, std::int64_t n) {
    std::array<float, chunk_size> normals;
    std::array<double, chunk_size> row;
    fill_normal(f.draw.values, static_cast<std::uint64_t>(in_whole), std::span(normals).first(static_cast<std::size_t>(n)));
    const auto drawn = [&](std::int64_t i) {
      return make(i, static_cast<double>(dodona::normal(f.draw.values, static_cast<std::uint64_t>(i))));
    };
    for (std::int64_t k = 0; k < n; ++k) {
      const auto at = static_cast<std::size_t>(k);
      double value = make(in_whole + k, static_cast<double>(normals[at]));
      if (f.struck != nullptr) value = (*f.struck)(in_whole + k, value, drawn);
      row[at] = within_range(type, value);
    }
    quant::from_f64(type, row.data(), bytes + begin * bits(type) / 8, n);
  });
}

constexpr double no_limit = std::numeric_limits<double>::infinity();

/// Values that sit on edges: zeros of both signs, the largest, the smallest normal-ish and denormal ones, exact powers of two, halves.
/// `limit` keeps the large ones where what they are multiplied with and added up to still has an answer.
double edge_value(const Draw& draw, DType type, std::int64_t i, double normal, double limit) {
  const double large = std::min(quant::max_finite(type) / 4, limit);
  const std::array<double, 12> table{
      0.0, -0.0, 1.0, -1.0, 0.5, -1.5, large, -large, quant::min_subnormal(type), -quant::min_subnormal(type), 0x1p-6, -3.0};
  return draw.below(i, 2) == 0 ? normal : table[draw.below_again(i, table.size())];
}

enum class Dist { normal, uniform, outliers, wide_exponent, ties, edge };

Dist dist_of(const std::string& name) {
  constexpr std::array<std::string_view, 6> names{"normal", "uniform", "outliers", "wide-exponent", "ties", "edge"};
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw Error(ErrorCode::bad_option, "", "--dist", "does not know '" + name + "'");
  return static_cast<Dist>(found - names.begin());
}

double value_of(const Draw& draw, DType type, Dist dist, std::int64_t i, double normal, double limit = no_limit) {
  switch (dist) {
    case Dist::normal: return normal;
    case Dist::uniform: return 2 * draw.uniform(i) - 1;
    case Dist::outliers: return normal * (draw.below(i, 256) == 0 ? 64.0 : 1.0);
    case Dist::wide_exponent: {
      const auto exponent = static_cast<int>(draw.below(i, 33)) - 16;
      return std::ldexp(normal, bits(type) <= 8 ? exponent / 4 : exponent);
    }
    case Dist::ties: return std::nearbyint(normal * 2) / 2;
    case Dist::edge: return edge_value(draw, type, i, normal, limit);
  }
  return normal;
}

/// Positive, and never zero in the type. "wide-exponent" and "edge" reach the magnitudes at which kernels lose accuracy or flush.
double scale_of(const Draw& draw, DType type, Dist dist, std::int64_t i) {
  const double position = 2.0 * draw.uniform(i) - 1.0;
  double scale = fixed::exp2(position);
  switch (dist) {
    case Dist::normal:
    case Dist::uniform: break;
    case Dist::outliers: scale *= draw.below(i, 256) == 0 ? 64.0 : 1.0; break;
    case Dist::wide_exponent: scale = fixed::exp2((bits(type) <= 8 ? 6.0 : 16.0) * position); break;
    case Dist::ties: scale = fixed::exp2(std::nearbyint(1.5 * position)); break;
    case Dist::edge:
      if (draw.below(i, 4) == 0) scale = std::array{1e-8, 0x1p-20, 1.0, 16.0}[draw.below_again(i, 4)];
      break;
  }
  return std::max(scale, quant::min_subnormal(type));
}

/// The exponent of a scale of eight bits, 2^(code - 127), by the same distributions.
std::uint32_t scale_exponent(const Draw& draw, Dist dist, std::int64_t i) {
  if (dist == Dist::edge && draw.below(i, 4) == 0) return std::array{100u, 107u, 127u, 131u}[draw.below_again(i, 4)];
  const double position = 2.0 * draw.uniform(i) - 1.0, range = dist == Dist::wide_exponent ? 16.0 : 1.5;
  const bool outlier = dist == Dist::outliers && draw.below(i, 256) == 0;
  return static_cast<std::uint32_t>(127 + static_cast<int>(std::nearbyint(range * position)) + (outlier ? 6 : 0));
}

/// Words of four, the first in the low byte.
double scale_word(const Draw& draw, Dist dist, std::int64_t i) {
  std::uint32_t word = 0;
  for (std::int64_t j = 4; j-- > 0;) word = word << 8 | scale_exponent(draw, dist, 4 * i + j);
  return static_cast<double>(static_cast<std::int32_t>(word));
}

/// Normal numbers as they are: all of these types hold them.
void fill_normals(const Filling& f) {
  for_chunks(f.runs, 32.0, f.threads, [&](std::int64_t begin, std::int64_t in_whole, std::int64_t n) {
    std::array<float, chunk_size> normals;
    fill_normal(f.draw.values, static_cast<std::uint64_t>(in_whole), std::span(normals).first(static_cast<std::size_t>(n)));
    quant::from_f32(f.tensor.dtype(), normals.data(), f.tensor.as<std::byte>() + begin * bits(f.tensor.dtype()) / 8, n);
  });
}

/// The low bits of words, or choices of true and false.
void fill_bits(const Filling& f) {
  const DType type = f.tensor.dtype();
  for_chunks(f.runs, 16.0, f.threads, [&](std::int64_t begin, std::int64_t in_whole, std::int64_t n) {
    std::array<std::uint32_t, chunk_size> words;
    fill_words(f.draw.values, static_cast<std::uint64_t>(in_whole), std::span(words).first(static_cast<std::size_t>(n)));
    if (f.struck != nullptr)
      for (std::int64_t k = 0; k < n; ++k)
        if ((*f.struck)(in_whole + k, 1, {}) == 0) words[static_cast<std::size_t>(k)] = 0;
    if (type == DType::u8 || type == DType::i8) {
      std::transform(words.begin(), words.begin() + n, f.tensor.as<std::uint8_t>() + begin,
                     [](std::uint32_t word) { return static_cast<std::uint8_t>(word); });
      return;
    }
    for (std::int64_t k = 0; k < n; ++k)
      quant::store_bits(type, f.tensor.data(), begin + k,
                        type == DType::boolean ? f.draw.below(in_whole + k, 2) : words[static_cast<std::size_t>(k)]);
  });
}

void fill_values(const Filling& f, Dist dist, double limit) {
  const DType type = f.tensor.dtype();
  const bool plain = dist == Dist::normal && (type == DType::bf16 || type == DType::f16 || type == DType::f32);
  if (plain && f.struck == nullptr) return fill_normals(f);
  if (!is_float(type)) return fill_bits(f);
  // 8-bit floats are quantised data: spread over their range instead of around 1.
  const double scale = type == DType::f8_e4m3 || type == DType::f8_e5m2 ? 16.0 : 1.0;
  fill_elements(f, [&](std::int64_t i, double normal) { return scale * value_of(f.draw, type, dist, i, normal, limit); });
}

/// Calls set(element, the same in the whole) for every element.
template <class Set>
void each_element(const Runs& runs, const Set& set) {
  for (std::size_t run = 0; run < runs.begin.size(); ++run)
    for (std::int64_t k = 0; k < runs.length; ++k) set(static_cast<std::int64_t>(run) * runs.length + k, runs.begin[run] + k);
}

void fill_ids(const Tensor& tensor, const Runs& runs, const Draw& draw, std::int64_t bound) {
  each_element(runs, [&](std::int64_t i, std::int64_t in_whole) {
    quant::set_bits(tensor, i, bound > 0 ? draw.below(in_whole, static_cast<std::uint64_t>(bound)) : 0);
  });
}

/// From 1 up; the first is the longest possible.
void fill_lengths(const Tensor& tensor, const Draw& draw, std::int64_t bound) {
  const std::int64_t count = tensor.elements();
  for (std::int64_t i = 0; i < count && bound > 1; ++i)
    quant::set_bits(tensor, i, i == 0 ? static_cast<std::uint64_t>(bound - 1) : 1 + draw.below(i, static_cast<std::uint64_t>(bound - 1)));
}

/// Distinct along each row of `width` elements; plain draws where there are too few ids for that. The first `width` steps of a Fisher-Yates
/// shuffle of [0, bound), of which only what has moved is held: the bound may be any number, memory goes by the tensor.
void fill_distinct(const Tensor& tensor, const Draw& draw, std::int64_t bound, std::int64_t width) {
  if (bound < width) return fill_ids(tensor, Runs::whole(tensor), draw, bound);
  const std::int64_t rows = width > 0 ? tensor.elements() / width : 0;
  std::unordered_map<std::int64_t, std::int64_t> moved;
  for (std::int64_t row = 0; row < rows; ++row) {
    moved.clear();
    for (std::int64_t k = 0; k < width; ++k) {
      const auto other = k + static_cast<std::int64_t>(draw.below(row * width + k, static_cast<std::uint64_t>(bound - k)));
      const auto here = moved.try_emplace(k, k).first->second, there = moved.try_emplace(other, other).first->second;
      moved[other] = here;
      moved.erase(k);
      quant::set_bits(tensor, row * width + k, static_cast<std::uint64_t>(there));
    }
  }
}

/// Pages are each used once where there are enough of them, else once in a row.
void fill_pages(const Tensor& tensor, const Draw& draw, std::int64_t bound) {
  const std::int64_t count = tensor.elements(), width = tensor.rank() > 0 ? tensor.size(-1) : 1;
  fill_distinct(tensor, draw, bound, bound >= count ? count : width);
}

/// Rises from 0 to the bound, cut at sorted draws, so that some parts are empty.
void fill_indptr(const Tensor& tensor, const Draw& draw, std::int64_t bound) {
  const std::int64_t count = tensor.elements();
  std::vector<std::uint64_t> cuts(static_cast<std::size_t>(count), 0);
  for (std::int64_t i = 1; i + 1 < count; ++i) cuts[static_cast<std::size_t>(i)] = draw.below(i, static_cast<std::uint64_t>(bound) + 1);
  if (count > 1) cuts.back() = static_cast<std::uint64_t>(bound);
  std::sort(cuts.begin(), cuts.end());
  for (std::int64_t i = 0; i < count; ++i) quant::set_bits(tensor, i, cuts[static_cast<std::size_t>(i)]);
}

/// Row p: cos(p * f_i) for i below half the width, then sin(p * f_i); f_i = 10000^(-2i/width).
void fill_cos_sin(const Tensor& tensor, int threads) {
  const std::int64_t width = tensor.rank() > 0 ? tensor.size(-1) : 0, half = width / 2;
  if (width == 0) return;
  const std::int64_t rows = tensor.elements() / width;
  parallel_for(threads, half, 64.0 * static_cast<double>(rows), [&](std::int64_t i) {
    const double frequency = fixed::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(width));
    for (std::int64_t p = 0; p < rows; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      quant::set(tensor, p * width + i, fixed::cos(angle));
      quant::set(tensor, p * width + half + i, fixed::sin(angle));
    }
  });
}

/// Each row a softmax of twice its values; "edge" has exact zeros among them.
void fill_probs(const Tensor& tensor, const Runs& runs, const Draw& draw, Dist dist) {
  const std::int64_t width = tensor.rank() > 0 ? tensor.size(-1) : 1;
  const std::int64_t rows = width > 0 ? tensor.elements() / width : 0;
  std::vector<double> row(static_cast<std::size_t>(width));
  for (std::int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    const std::int64_t first = r * width, in_whole = runs.begin[static_cast<std::size_t>(first / runs.length)] + first % runs.length;
    for (std::int64_t k = 0; k < width; ++k) {
      const std::int64_t i = in_whole + k;
      const double normal = static_cast<double>(dodona::normal(draw.values, static_cast<std::uint64_t>(i)));
      const double value = dist == Dist::edge ? normal : value_of(draw, DType::f32, dist, i, normal);
      const bool zero = dist == Dist::edge && k > 0 && draw.below(i, 4) == 0;
      sum += row[static_cast<std::size_t>(k)] = zero ? 0.0 : fixed::exp(std::clamp(2 * value, -60.0, 60.0));
    }
    for (std::int64_t k = 0; k < width; ++k) quant::set(tensor, r * width + k, row[static_cast<std::size_t>(k)] / sum);
  }
}

/// Elements that are made one by one, so that a part needs no others.
bool made_alone(const InputPlan& input) {
  switch (input.role) {
    case Role::values:
    case Role::weight:
    case Role::logits:
    case Role::lse_base_2:
    case Role::lse_base_e:
    case Role::scale:
    case Role::coins: return true;
    case Role::positions: return input.specials.empty();
    // Rows of their own.
    case Role::probs: return input.part.empty() || input.part.back() == std::pair<std::int64_t, std::int64_t>(0, input.shape.at(-1));
    default: return false;
  }
}

/// `edge_limit` as edge_limit_of() has it.
void fill_argument(const Filling& f, Role role, std::int64_t bound, Dist dist, double edge_limit) {
  const Tensor& tensor = f.tensor;
  const Draw& draw = f.draw;
  const DType type = tensor.dtype();
  const auto each = [&](auto make) { fill_elements(f, make); };
  switch (role) {
    case Role::values: return fill_values(f, dist, edge_limit > 0 ? edge_limit : no_limit);
    case Role::weight: return each([](std::int64_t, double normal) { return 1.0 + 0.25 * normal; });
    case Role::logits: return each([&](std::int64_t i, double normal) { return 2.0 * value_of(draw, type, dist, i, normal); });
    case Role::lse_base_2:
    case Role::lse_base_e:
      return each([&](std::int64_t i, double normal) {
        // "edge" also has empty parts: a log-sum-exp of nothing.
        const bool empty = dist == Dist::edge && draw.below(i, 8) == 0;
        return empty ? -std::numeric_limits<double>::infinity() : 3.0 * normal;
      });
    case Role::scale:
      return each([&](std::int64_t i, double) { return type == DType::i32 ? scale_word(draw, dist, i) : scale_of(draw, type, dist, i); });
    case Role::coins:
      // A coin of exactly 0 accepts a draft of no probability where <= stands for <.
      return each([&](std::int64_t i, double) { return dist == Dist::edge && draw.below(i, 4) == 0 ? 0.0 : draw.uniform(i); });
    case Role::positions: return fill_ids(tensor, f.runs, draw, bound);
    case Role::page_table: return fill_pages(tensor, draw, bound);
    case Role::lengths: return fill_lengths(tensor, draw, bound);
    case Role::indices: return fill_distinct(tensor, draw, bound, tensor.elements());
    case Role::expert_ids: return fill_distinct(tensor, draw, bound, tensor.rank() > 0 ? tensor.size(-1) : 1);
    case Role::indptr: return fill_indptr(tensor, draw, bound);
    case Role::cos_sin: return fill_cos_sin(tensor, f.threads);
    case Role::probs: return fill_probs(tensor, f.runs, draw, dist);
  }
}

Tensor allocated(const std::string& op, const std::string& name, DType dtype, const Dims& shape) {
  try {
    return Tensor(dtype, shape);
  } catch (const Error& error) {
    throw Error(error.code(), op, name, "of shape " + to_string(shape) + ": " + error.message());
  }
}

Dims shape_of_part(const InputPlan& input) {
  Dims shape = input.shape;
  for (std::size_t axis = 0; axis < input.part.size(); ++axis)
    shape[static_cast<int>(axis)] = input.part[axis].second - input.part[axis].first;
  return shape;
}
Tensor cut_to_part(const Tensor& whole, const InputPlan& input) {
  Tensor part = whole;
  for (std::size_t axis = 0; axis < input.part.size(); ++axis)
    part = part.slice(static_cast<int>(axis), input.part[axis].first, input.part[axis].second);
  return part.contiguous() ? part : part.clone();
}

/// The part of an input that the plan asks for, contiguous.
Tensor made(const Op& op, const CaseLine& line, const InputPlan& input, int threads) {
  const Runs runs = input.part.empty() ? Runs{{0}, element_count(input.shape)} : runs_of(input);
  const int width = bits(input.dtype);
  const bool whole_bytes = runs.length * width % 8 == 0 &&
                           std::all_of(runs.begin.begin(), runs.begin.end(), [&](std::int64_t begin) { return begin * width % 8 == 0; });
  const bool alone = input.part.empty() || (made_alone(input) && (whole_bytes || runs.begin.size() == 1));
  Tensor tensor = allocated(line.op, input.name, input.dtype, alone ? shape_of_part(input) : input.shape);
  if (input.kin) return tensor;
  const StruckNumbers struck(input, line.seed);
  const Filling filling{tensor, alone ? runs : Runs::whole(tensor), Draw(line.seed, input.name), threads,
                        struck.none() ? nullptr : &struck};
  fill_argument(filling, input.role, input.bound, dist_of(line.dist), edge_limit_of(op, *op.schema().find_tensor(input.name), input.dtype));
  strike_ids(tensor, input, line.seed);
  return alone ? tensor : cut_to_part(tensor, input);
}

/// The attributes of the line, its dialect's recipe and the recipe's defaults.
Arguments resolved_attributes(const CaseLine& line, const OpSchema& schema) {
  Arguments arguments = attributes_of(line, schema);
  for (const AttrSpec& spec : schema.attrs)
    if (spec.recipe && arguments.find_attr(spec.name) == nullptr) arguments.set_attr(spec.name, spec.default_value);
  for (const auto& [attr, value] : arguments.attrs)
    if (schema.find_attr(attr) == nullptr) throw Error(ErrorCode::unknown_argument, line.op, attr, "is not an attribute of this op");
  return arguments;
}

std::vector<InputPlan> plan_with(const Op& op, const CaseLine& line, const Arguments& attributes) {
  require_independent(op, line.window);
  std::vector<InputPlan> inputs;
  for (const PlannedTensor& planned : plan(op.info(), op.schema(), line, attributes)) {
    const TensorSpec& spec = *planned.spec;
    if (spec.direction == Direction::out) continue;
    InputPlan input{spec.name, spec.role, planned.dtype, planned.shape, planned.bound, spec.layout, !spec.kin.empty()};
    if (!line.window.empty()) input.part = part_of(op, spec, planned.shape, line.window);
    inputs.push_back(std::move(input));
  }
  for (const RowRange& range : line.window)
    if (line.symbols.count(range.symbol) == 0)
      throw Error(ErrorCode::bad_option, line.op, "--window", to_string(Window{range}) + " is of a size that the line does not give");
  place_specials(op, line, inputs);
  return inputs;
}

/// What follows from other inputs follows from the whole of them.
bool needs_the_whole(const std::vector<InputPlan>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const InputPlan& input) { return input.kin || input.slots; });
}

Tensor in_layout(const Tensor& tensor, const InputPlan& input) {
  if (std::find(input.specials.begin(), input.specials.end(), Special::gaps) != input.specials.end()) return with_gaps(tensor);
  // The logical values stay; only the memory order changes (where any would do, to the one that no one expects).
  if ((input.layout == Layout::column_major || input.layout == Layout::any) && tensor.rank() >= 2)
    return tensor.transpose(-1, -2).clone().transpose(-1, -2);
  return tensor;
}

}  // namespace

std::vector<InputPlan> plan_inputs(const CaseLine& line) {
  const Op& op = registry().at(line.op);
  return plan_with(op, line, resolved_attributes(line, op.schema()));
}

double elements_of(const std::string& line) {
  double elements = 1;
  try {
    for (const InputPlan& input : plan_inputs(parse_case_line(line))) elements += static_cast<double>(element_count(input.shape));
  } catch (const Error&) {
    // What is wrong with it is said where it is run.
  }
  return elements;
}

void fill(const Tensor& tensor, Role role, std::int64_t bound, const std::string& dist, std::uint64_t seed, std::string_view name,
          int threads) {
  fill_argument({tensor, Runs::whole(tensor), Draw(seed, name), threads}, role, bound, dist_of(dist), 0);
}

Arguments generate(const CaseLine& line, int threads) {
  const Op& op = registry().at(line.op);
  Arguments arguments = resolved_attributes(line, op.schema());
  std::vector<InputPlan> inputs = plan_with(op, line, arguments);
  const bool whole = needs_the_whole(inputs);
  if (whole)
    for (InputPlan& input : inputs) input.part.clear();
  for (const InputPlan& input : inputs) arguments.set(input.name, in_layout(made(op, line, input, threads), input));
  for (const InputPlan& input : inputs)
    if (input.slots) make_stale(*arguments.find(input.name), input, arguments, line.seed);
  for (const PlannedTensor& planned : plan(op.info(), op.schema(), line, arguments)) {
    const TensorSpec& spec = *planned.spec;
    if (!spec.given && !(spec.direction == Direction::out && line.with.count(spec.name) != 0)) continue;
    InputPlan output{spec.name, spec.role, planned.dtype, planned.shape};
    if (!whole && !line.window.empty()) output.part = part_of(op, spec, planned.shape, line.window);
    arguments.set(spec.name, allocated(line.op, spec.name, planned.dtype, shape_of_part(output)));
  }
  op.make_inputs(arguments, line.seed);
  return whole ? resized(op, arguments, line.window) : arguments;
}

}  // namespace dodona::oracle
