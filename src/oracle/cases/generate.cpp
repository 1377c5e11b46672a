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

/// Calls make(first element, how many) for every chunk of the tensor.
template <class Make>
void for_chunks(const Tensor& tensor, double cost, int threads, const Make& make) {
  const std::int64_t count = tensor.elements(), chunks = (count + chunk_size - 1) / chunk_size;
  parallel_for(threads, chunks, cost * chunk_size,
               [&](std::int64_t c) { make(c * chunk_size, std::min(chunk_size, count - c * chunk_size)); });
}

/// Sets element i to make(i, the i-th normal number).
template <class Make>
void fill_elements(const Tensor& tensor, const Draw& draw, int threads, const Make& make) {
  auto* bytes = tensor.as<std::byte>();
  for_chunks(tensor, 32.0, threads, [&](std::int64_t begin, std::int64_t n) {
    std::array<float, chunk_size> normals;
    std::array<double, chunk_size> row;
    fill_normal(draw.values, static_cast<std::uint64_t>(begin), std::span(normals).first(static_cast<std::size_t>(n)));
    for (std::int64_t k = 0; k < n; ++k) {
      const auto at = static_cast<std::size_t>(k);
      row[at] = within_range(tensor.dtype(), make(begin + k, static_cast<double>(normals[at])));
    }
    quant::from_f64(tensor.dtype(), row.data(), bytes + begin * bits(tensor.dtype()) / 8, n);
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
void fill_normals(const Tensor& tensor, const Draw& draw, int threads) {
  for_chunks(tensor, 32.0, threads, [&](std::int64_t begin, std::int64_t n) {
    std::array<float, chunk_size> normals;
    fill_normal(draw.values, static_cast<std::uint64_t>(begin), std::span(normals).first(static_cast<std::size_t>(n)));
    quant::from_f32(tensor.dtype(), normals.data(), tensor.as<std::byte>() + begin * bits(tensor.dtype()) / 8, n);
  });
}

void fill_values(const Tensor& tensor, const Draw& draw, Dist dist, int threads, double limit) {
  const DType type = tensor.dtype();
  if (dist == Dist::normal && (type == DType::bf16 || type == DType::f16 || type == DType::f32)) return fill_normals(tensor, draw, threads);
  if (is_float(type)) {
    // 8-bit floats are quantised data: spread over their range instead of around 1.
    const double scale = type == DType::f8_e4m3 || type == DType::f8_e5m2 ? 16.0 : 1.0;
    return fill_elements(tensor, draw, threads,
                         [&](std::int64_t i, double normal) { return scale * value_of(draw, type, dist, i, normal, limit); });
  }
  for_chunks(tensor, 16.0, threads, [&](std::int64_t begin, std::int64_t n) {
    std::array<std::uint32_t, chunk_size> words;
    fill_words(draw.values, static_cast<std::uint64_t>(begin), std::span(words).first(static_cast<std::size_t>(n)));
    if (type == DType::u8 || type == DType::i8) {
      std::transform(words.begin(), words.begin() + n, tensor.as<std::uint8_t>() + begin,
                     [](std::uint32_t word) { return static_cast<std::uint8_t>(word); });
      return;
    }
    for (std::int64_t k = 0; k < n; ++k)
      quant::store_bits(type, tensor.data(), begin + k,
                        type == DType::boolean ? draw.below(begin + k, 2) : words[static_cast<std::size_t>(k)]);
  });
}

void fill_ids(const Tensor& tensor, const Draw& draw, std::int64_t bound) {
  const std::int64_t count = tensor.elements();
  for (std::int64_t i = 0; i < count; ++i) quant::set_bits(tensor, i, bound > 0 ? draw.below(i, static_cast<std::uint64_t>(bound)) : 0);
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
  if (bound < width) return fill_ids(tensor, draw, bound);
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

/// Rises from 0. With a bound, to the bound: cut at sorted draws, so that some parts are empty; without one in steps below 8.
void fill_indptr(const Tensor& tensor, const Draw& draw, std::int64_t bound) {
  const std::int64_t count = tensor.elements();
  if (bound > 0 && count > 1) {
    std::vector<std::uint64_t> cuts(static_cast<std::size_t>(count), 0);
    for (std::int64_t i = 1; i + 1 < count; ++i) cuts[static_cast<std::size_t>(i)] = draw.below(i, static_cast<std::uint64_t>(bound) + 1);
    cuts.back() = static_cast<std::uint64_t>(bound);
    std::sort(cuts.begin(), cuts.end());
    for (std::int64_t i = 0; i < count; ++i) quant::set_bits(tensor, i, cuts[static_cast<std::size_t>(i)]);
    return;
  }
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    quant::set_bits(tensor, i, sum);
    sum += draw.below(i, 8);
  }
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
void fill_probs(const Tensor& tensor, const Draw& draw, Dist dist) {
  const std::int64_t width = tensor.rank() > 0 ? tensor.size(-1) : 1;
  const std::int64_t rows = width > 0 ? tensor.elements() / width : 0;
  std::vector<double> row(static_cast<std::size_t>(width));
  for (std::int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::int64_t k = 0; k < width; ++k) {
      const std::int64_t i = r * width + k;
      const double normal = static_cast<double>(dodona::normal(draw.values, static_cast<std::uint64_t>(i)));
      const double value = dist == Dist::edge ? normal : value_of(draw, DType::f32, dist, i, normal);
      const bool zero = dist == Dist::edge && k > 0 && draw.below(i, 4) == 0;
      sum += row[static_cast<std::size_t>(k)] = zero ? 0.0 : fixed::exp(std::clamp(2 * value, -60.0, 60.0));
    }
    for (std::int64_t k = 0; k < width; ++k) quant::set(tensor, r * width + k, row[static_cast<std::size_t>(k)] / sum);
  }
}

/// `edge_limit` as edge_limit_of() has it.
void fill_argument(const Tensor& tensor, Role role, std::int64_t bound, const std::string& dist_name, std::uint64_t seed,
                   std::string_view name, int threads, double edge_limit) {
  const Draw draw(seed, name);
  const Dist dist = dist_of(dist_name);
  const DType type = tensor.dtype();
  const auto each = [&](auto make) { fill_elements(tensor, draw, threads, make); };
  switch (role) {
    case Role::values: return fill_values(tensor, draw, dist, threads, edge_limit > 0 ? edge_limit : no_limit);
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
    case Role::positions: return fill_ids(tensor, draw, bound);
    case Role::page_table: return fill_pages(tensor, draw, bound);
    case Role::lengths: return fill_lengths(tensor, draw, bound);
    case Role::indices: return fill_distinct(tensor, draw, bound, tensor.elements());
    case Role::expert_ids: return fill_distinct(tensor, draw, bound, tensor.rank() > 0 ? tensor.size(-1) : 1);
    case Role::indptr: return fill_indptr(tensor, draw, bound);
    case Role::cos_sin: return fill_cos_sin(tensor, threads);
    case Role::probs: return fill_probs(tensor, draw, dist);
  }
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
  std::vector<InputPlan> inputs;
  for (const PlannedTensor& planned : plan(op.info(), op.schema(), line, attributes)) {
    const TensorSpec& spec = *planned.spec;
    if (spec.direction != Direction::out)
      inputs.push_back({spec.name, spec.role, planned.dtype, planned.shape, planned.bound, spec.layout, !spec.kin.empty()});
  }
  return inputs;
}

}  // namespace

std::vector<InputPlan> plan_inputs(const CaseLine& line) {
  const Op& op = registry().at(line.op);
  return plan_with(op, line, resolved_attributes(line, op.schema()));
}

void fill(const Tensor& tensor, Role role, std::int64_t bound, const std::string& dist, std::uint64_t seed, std::string_view name,
          int threads) {
  fill_argument(tensor, role, bound, dist, seed, name, threads, 0);
}

Arguments generate(const CaseLine& line, int threads) {
  const Op& op = registry().at(line.op);
  Arguments arguments = resolved_attributes(line, op.schema());
  for (const InputPlan& input : plan_with(op, line, arguments)) {
    Tensor tensor;
    try {
      tensor = Tensor(input.dtype, input.shape);
    } catch (const Error& error) {
      throw Error(error.code(), line.op, input.name, "of shape " + to_string(input.shape) + ": " + error.message());
    }
    if (!input.kin) {
      const double edge_limit = edge_limit_of(op, *op.schema().find_tensor(input.name), input.dtype);
      fill_argument(tensor, input.role, input.bound, line.dist, line.seed, input.name, threads, edge_limit);
    }
    if ((input.layout == Layout::column_major || input.layout == Layout::any) && tensor.rank() >= 2) {
      // The logical values stay; only the memory order changes (where any would do, to the one that no one expects).
      const Tensor swapped = tensor.transpose(-1, -2).clone();
      tensor = swapped.transpose(-1, -2);
    }
    arguments.set(input.name, tensor);
  }
  for (const PlannedTensor& planned : plan(op.info(), op.schema(), line, arguments))
    if (planned.spec->given || (planned.spec->direction == Direction::out && line.with.count(planned.spec->name) != 0))
      arguments.set(planned.spec->name, Tensor(planned.dtype, planned.shape));
  op.make_inputs(arguments, line.seed);
  return arguments;
}

}  // namespace dodona::oracle
