#include "oracle/generate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/call.h"
#include "core/fixed_math.h"
#include "core/random.h"
#include "dodona/error.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

/// Everything here must stay a pure function of (seed, name, index).
struct Draw {
  Stream values, choices;
  Draw(std::uint64_t seed, std::string_view name) : values(seed, name), choices(seed, std::string(name) + "/choice") {}
  double normal(std::int64_t i) const { return static_cast<double>(dodona::normal(values, static_cast<std::uint64_t>(i))); }
  double uniform(std::int64_t i) const { return static_cast<double>(dodona::uniform(values, static_cast<std::uint64_t>(i))); }
  std::uint64_t below(std::int64_t i, std::uint64_t n) const { return integer_below(choices, static_cast<std::uint64_t>(i), n); }
};

/// Store without leaving the type's finite range: e4m3 would turn what it cannot hold into NaN.
void put(const Tensor& tensor, std::int64_t i, double value) {
  if (is_float(tensor.dtype())) {
    const double limit = quant::max_finite(tensor.dtype());
    value = std::clamp(value, -limit, limit);
  }
  quant::set(tensor, i, value);
}

/// Values that sit on edges: zeros of both signs, the largest, the smallest normal-ish and denormal ones, exact powers of two, halves.
double edge_value(const Draw& draw, DType type, std::int64_t i) {
  const std::array<double, 12> table{0.0,
                                     -0.0,
                                     1.0,
                                     -1.0,
                                     0.5,
                                     -1.5,
                                     quant::max_finite(type) / 4,
                                     -quant::max_finite(type) / 4,
                                     quant::min_subnormal(type),
                                     -quant::min_subnormal(type),
                                     0x1p-6,
                                     -3.0};
  return draw.below(i, 2) == 0 ? draw.normal(i) : table[draw.below(i + (std::int64_t{1} << 40), table.size())];
}

double value_of(const Draw& draw, DType type, const std::string& dist, std::int64_t i) {
  if (dist == "uniform") return 2 * draw.uniform(i) - 1;
  if (dist == "outliers") return draw.normal(i) * (draw.below(i, 256) == 0 ? 64.0 : 1.0);
  if (dist == "wide-exponent") {
    const auto exponent = static_cast<int>(draw.below(i, 33)) - 16;
    return std::ldexp(draw.normal(i), bits(type) <= 8 ? exponent / 4 : exponent);
  }
  if (dist == "ties") return std::nearbyint(draw.normal(i) * 2) / 2;
  if (dist == "edge") return edge_value(draw, type, i);
  return draw.normal(i);
}

void fill_values(const Tensor& tensor, const Draw& draw, const std::string& dist) {
  const std::int64_t count = tensor.elements();
  // 8-bit floats are quantised data: spread over their range instead of around 1.
  const double scale = tensor.dtype() == DType::f8_e4m3 || tensor.dtype() == DType::f8_e5m2 ? 16.0 : 1.0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (is_float(tensor.dtype())) {
      put(tensor, i, scale * value_of(draw, tensor.dtype(), dist, i));
    } else if (tensor.dtype() == DType::boolean) {
      quant::set_bits(tensor, i, draw.below(i, 2));
    } else {
      quant::set_bits(tensor, i, word(draw.values, static_cast<std::uint64_t>(i)));
    }
  }
}

void fill_ids(const Tensor& tensor, const Draw& draw, std::int64_t bound) {
  const std::int64_t count = tensor.elements();
  for (std::int64_t i = 0; i < count; ++i) quant::set_bits(tensor, i, bound > 0 ? draw.below(i, static_cast<std::uint64_t>(bound)) : 0);
}

/// Distinct along each row of `width` elements; plain draws where there are too few ids for that.
void fill_distinct(const Tensor& tensor, const Draw& draw, std::int64_t bound, std::int64_t width) {
  if (bound < width) return fill_ids(tensor, draw, bound);
  const std::int64_t rows = width > 0 ? tensor.elements() / width : 0;
  std::vector<std::int64_t> ids(static_cast<std::size_t>(bound));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = 0; k < bound; ++k) ids[static_cast<std::size_t>(k)] = k;
    // The first `width` steps of a Fisher-Yates shuffle.
    for (std::int64_t k = 0; k < width; ++k) {
      const auto other = k + static_cast<std::int64_t>(draw.below(row * width + k, static_cast<std::uint64_t>(bound - k)));
      std::swap(ids[static_cast<std::size_t>(k)], ids[static_cast<std::size_t>(other)]);
      quant::set_bits(tensor, row * width + k, static_cast<std::uint64_t>(ids[static_cast<std::size_t>(k)]));
    }
  }
}

void fill_indptr(const Tensor& tensor, const Draw& draw) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    quant::set_bits(tensor, i, sum);
    sum += draw.below(i, 8);
  }
}

/// Row p: cos(p * f_i) for i below half the width, then sin(p * f_i); f_i = 10000^(-2i/width).
void fill_cos_sin(const Tensor& tensor) {
  const std::int64_t width = tensor.rank() > 0 ? tensor.size(-1) : 0, half = width / 2;
  if (width == 0) return;
  const std::int64_t rows = tensor.elements() / width;
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency = fixed::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(width));
    for (std::int64_t p = 0; p < rows; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      quant::set(tensor, p * width + i, fixed::cos(angle));
      quant::set(tensor, p * width + half + i, fixed::sin(angle));
    }
  }
}

void fill_probs(const Tensor& tensor, const Draw& draw) {
  const std::int64_t width = tensor.rank() > 0 ? tensor.size(-1) : 1;
  const std::int64_t rows = width > 0 ? tensor.elements() / width : 0;
  std::vector<double> row(static_cast<std::size_t>(width));
  for (std::int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::int64_t k = 0; k < width; ++k) sum += row[static_cast<std::size_t>(k)] = fixed::exp(2 * draw.normal(r * width + k));
    for (std::int64_t k = 0; k < width; ++k) quant::set(tensor, r * width + k, row[static_cast<std::size_t>(k)] / sum);
  }
}

}  // namespace

void fill(const Tensor& tensor, Role role, std::int64_t bound, const std::string& dist, std::uint64_t seed, std::string_view name) {
  const Draw draw(seed, name);
  const std::int64_t count = tensor.elements();
  const auto each = [&](auto value) {
    for (std::int64_t i = 0; i < count; ++i) put(tensor, i, value(i));
  };
  switch (role) {
    case Role::values: return fill_values(tensor, draw, dist);
    case Role::weight: return each([&](std::int64_t i) { return 1.0 + 0.25 * draw.normal(i); });
    case Role::logits: return each([&](std::int64_t i) { return 2.0 * value_of(draw, tensor.dtype(), dist, i); });
    case Role::lse_base_2:
    case Role::lse_base_e:
      return each([&](std::int64_t i) {
        // "edge" also has empty parts: a log-sum-exp of nothing.
        if (dist == "edge" && draw.below(i, 8) == 0) return -std::numeric_limits<double>::infinity();
        return 3.0 * draw.normal(i);
      });
    case Role::scale: return each([&](std::int64_t i) { return fixed::exp2(2.0 * draw.uniform(i) - 1.0); });
    case Role::coins: return each([&](std::int64_t i) { return draw.uniform(i); });
    case Role::positions:
    case Role::page_table: return fill_ids(tensor, draw, bound);
    case Role::indices: return fill_distinct(tensor, draw, bound, count);
    case Role::expert_ids: return fill_distinct(tensor, draw, bound, tensor.rank() > 0 ? tensor.size(-1) : 1);
    case Role::indptr: return fill_indptr(tensor, draw);
    case Role::cos_sin: return fill_cos_sin(tensor);
    case Role::probs: return fill_probs(tensor, draw);
  }
}

Arguments generate(const CaseLine& line) {
  const Op& op = registry().at(line.op);
  Arguments arguments = attributes_of(line, op.schema());
  for (const AttrSpec& spec : op.schema().attrs)
    if (spec.recipe && arguments.find_attr(spec.name) == nullptr) arguments.set_attr(spec.name, spec.default_value);
  for (const auto& [attr, value] : arguments.attrs)
    if (op.schema().find_attr(attr) == nullptr) throw Error(ErrorCode::unknown_argument, line.op, attr, "is not an attribute of this op");
  for (const PlannedTensor& planned : plan(op.info(), op.schema(), line.symbols, line.dtypes, arguments)) {
    if (planned.spec->direction == Direction::out) continue;
    Tensor tensor;
    try {
      tensor = Tensor(planned.dtype, planned.shape);
    } catch (const Error& error) {
      throw Error(error.code(), line.op, planned.spec->name, "of shape " + to_string(planned.shape) + ": " + error.message());
    }
    fill(tensor, planned.spec->role, planned.bound, line.dist, line.seed, planned.spec->name);
    if (planned.spec->layout == Layout::column_major && tensor.rank() >= 2) {
      // The logical values stay; only the memory order changes.
      const Tensor swapped = tensor.transpose(-1, -2).clone();
      tensor = swapped.transpose(-1, -2);
    }
    arguments.set(planned.spec->name, tensor);
  }
  return arguments;
}

}  // namespace dodona::oracle
