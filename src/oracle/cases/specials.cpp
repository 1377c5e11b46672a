#include "oracle/cases/specials.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "core/row_lengths.h"
#include "core/storage.h"
#include "dodona/error.h"
#include "oracle/cases/window.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

bool any_of_roles(const TensorSpec& spec, std::initializer_list<Role> roles) {
  return std::find(roles.begin(), roles.end(), spec.role) != roles.end();
}
bool of_numbers(const TensorSpec& spec) {
  return any_of_roles(spec, {Role::values, Role::logits});
}
bool of_lse(const TensorSpec& spec) {
  return any_of_roles(spec, {Role::lse_base_2, Role::lse_base_e});
}

/// One input of an op, and the others beside it.
struct Site {
  const Op& op;
  const TensorSpec& spec;
  const InputPlan& input;
  const std::vector<InputPlan>& all;

  bool wide_float() const { return is_float(input.dtype) && bits(input.dtype) > 8; }
  bool can_be_nan() const { return is_float(input.dtype) && input.dtype != DType::f4_e2m1 && input.dtype != DType::f8_e8m0; }
  std::int64_t elements() const { return element_count(input.shape); }
  std::int64_t width() const { return input.shape.rank() > 0 ? input.shape[input.shape.rank() - 1] : 1; }
};

/// Rows that stand for themselves: along a size that the op calls independent, and not along the row itself. Where it calls none so, the
/// rows of the first input of this role.
bool has_rows(const Site& s) {
  if (!of_numbers(s.spec) || s.input.shape.rank() < 2) return false;
  const auto& independent = s.op.schema().properties.rows_independent;
  if (independent.empty()) {
    const auto first = std::find_if(s.all.begin(), s.all.end(), [&](const InputPlan& other) {
      const TensorSpec& spec = *s.op.schema().find_tensor(other.name);
      return spec.role == s.spec.role && spec.direction == Direction::in && other.shape.rank() >= 2 &&
             (is_float(other.dtype) || spec.storage.code) && !other.kin;
    });
    return first != s.all.end() && first->name == s.input.name;
  }
  const std::vector<std::string> dims = dims_of(s.spec.shape, s.input.shape.rank());
  const auto is_independent = [&](const std::string& dim) {
    return std::find(independent.begin(), independent.end(), dim) != independent.end();
  };
  return !dims.empty() && !is_independent(dims.back()) && std::any_of(dims.begin(), dims.end() - 1, is_independent);
}
bool zero_rows(const Site& s) {
  return has_rows(s) && (is_float(s.input.dtype) || s.spec.storage.code);
}
bool rows_of_floats(const Site& s) {
  return has_rows(s) && is_float(s.input.dtype);
}
bool rows_with_nan(const Site& s) {
  return has_rows(s) && s.can_be_nan();
}
bool rows_with_infinities(const Site& s) {
  return has_rows(s) && (s.wide_float() || s.input.dtype == DType::f8_e5m2);
}
bool quantized_rows(const Site& s) {
  if (!rows_of_floats(s) || !s.wide_float() || s.spec.role != Role::values) return false;
  const auto& tensors = s.op.schema().tensors;
  return std::any_of(tensors.begin(), tensors.end(), [](const TensorSpec& spec) {
    return spec.direction == Direction::out && std::find(spec.dtypes.begin(), spec.dtypes.end(), DType::f8_e4m3) != spec.dtypes.end();
  });
}
bool float_logits(const Site& s) {
  return s.spec.role == Role::logits && s.wide_float();
}
/// Weights, and what is added to logits: values along their last dimension.
bool weights(const Site& s) {
  if (!is_float(s.input.dtype)) return false;
  if (s.spec.role == Role::weight) return true;
  return s.spec.role == Role::values && s.input.shape.rank() == 1 && std::any_of(s.all.begin(), s.all.end(), [&](const InputPlan& other) {
           const std::vector<std::string> dims = dims_of(s.op.schema().find_tensor(other.name)->shape, other.shape.rank());
           return other.role == Role::logits && !dims.empty() && dims.back() == s.spec.shape;
         });
}
bool weights_above_bf16(const Site& s) {
  return weights(s) && (s.input.dtype == DType::f32 || s.input.dtype == DType::f16);
}
bool logarithms(const Site& s) {
  return of_lse(s.spec);
}
bool one_of_several_logarithms(const Site& s) {
  return of_lse(s.spec);
}
bool rows_of_logarithms(const Site& s) {
  return of_lse(s.spec) && s.input.shape.rank() >= 2;
}
bool scales_with_zero(const Site& s) {
  return s.spec.role == Role::scale && is_float(s.input.dtype) && s.input.dtype != DType::f8_e8m0 && s.elements() >= 2;
}
bool one_scale(const Site& s) {
  return s.spec.role == Role::scale && is_float(s.input.dtype) && s.elements() == 1;
}
bool scale_to_be_set(const Site& s) {
  return one_scale(s) && s.spec.direction == Direction::inout;
}
bool lengths(const Site& s) {
  if (any_of_roles(s.spec, {Role::lengths, Role::positions})) return s.input.bound > 1;
  return s.spec.role == Role::indptr && s.input.bound > 0 && s.elements() > 2;
}
bool offsets(const Site& s) {
  return s.spec.role == Role::indptr && s.input.bound > 0 && s.elements() > 2;
}
/// Offsets into rows that need not all be somebody's: not those of an output that is written everywhere, nor where lengths beside them say
/// the same.
bool offsets_that_may_end_early(const Site& s) {
  if (!offsets(s)) return false;
  const auto& tensors = s.op.schema().tensors;
  const bool all_written = std::any_of(tensors.begin(), tensors.end(), [&](const TensorSpec& spec) {
    return spec.direction != Direction::in && !spec.padded && (" " + spec.shape + " ").find(" " + s.spec.bound + " ") != std::string::npos;
  });
  const bool lengths_too = std::any_of(s.all.begin(), s.all.end(), [&](const InputPlan& other) {
    return any_of_roles(*s.op.schema().find_tensor(other.name), {Role::lengths, Role::positions}) &&
           element_count(other.shape) == s.elements() - 1;
  });
  return !all_written && !lengths_too;
}
bool straying_experts(const Site& s) {
  return s.spec.role == Role::expert_ids && (s.spec.may_stray || s.input.bound == 0);
}
bool several_experts(const Site& s) {
  return s.spec.role == Role::expert_ids && s.width() >= 2;
}
bool experts_of_rows(const Site& s) {
  return s.spec.role == Role::expert_ids && s.elements() > s.width();
}
bool tables(const Site& s) {
  return s.spec.role == Role::page_table && s.elements() > s.width();
}
bool slots(const Site& s) {
  return any_of_roles(s.spec, {Role::indices, Role::page_table}) && s.elements() >= 1 && s.input.bound > 0;
}
bool several_slots(const Site& s) {
  return s.spec.role == Role::indices && s.elements() >= 2 && s.input.bound > 0 && !s.spec.may_stray;
}
bool strided(const Site& s) {
  return s.spec.layout == Layout::rows && s.input.shape.rank() >= 2 && bits(s.input.dtype) >= 8 && s.spec.direction != Direction::out;
}

/// Whether positions are where ranges begin, for which others say where they end.
bool are_begins(const Site& s, const TensorSpec& begins) {
  return std::any_of(s.all.begin(), s.all.end(), [&](const InputPlan& other) {
    const TensorSpec& spec = *s.op.schema().find_tensor(other.name);
    return spec.role == Role::positions && spec.shape == begins.shape && spec.bound == begins.bound + "+1";
  });
}
/// What says which parts of a cache are in use: a table of pages and the requests' lengths, or a list of slots.
std::optional<InputPlan::Slots> slots_of(const Site& s) {
  if (s.spec.role != Role::values || s.spec.direction != Direction::in || !s.can_be_nan() || s.input.shape.rank() < 2) return std::nullopt;
  const std::vector<std::string> dims = dims_of(s.spec.shape, s.input.shape.rank());
  for (const InputPlan& table : s.all) {
    const TensorSpec& spec = *s.op.schema().find_tensor(table.name);
    if (dims.empty() || spec.bound.empty() || spec.bound != dims.front()) continue;
    const int rank = table.shape.rank();
    if (rank == 1 && any_of_roles(spec, {Role::positions, Role::indices}) && !are_begins(s, spec)) return InputPlan::Slots{table.name, ""};
    if (rank != 2 || spec.role != Role::page_table || s.input.shape.rank() < 3) continue;
    const std::string requests = dims_of(spec.shape, rank).front();
    for (const InputPlan& length : s.all) {
      const TensorSpec& its = *s.op.schema().find_tensor(length.name);
      if (length.shape.rank() == 1 && its.shape == requests && any_of_roles(its, {Role::lengths, Role::positions}))
        return InputPlan::Slots{table.name, length.name};
    }
  }
  return std::nullopt;
}
bool cache(const Site& s) {
  return slots_of(s).has_value();
}

/// What says how many rows of each group there are: dimensions "G M K" beside lengths "G" of at most M, or "M K" beside lengths "E" of at
/// most M / E.
std::optional<InputPlan::Slots> counts_of(const Site& s) {
  if (s.spec.role != Role::values || s.spec.direction != Direction::in || !s.can_be_nan()) return std::nullopt;
  const std::vector<std::string> dims = dims_of(s.spec.shape, s.input.shape.rank());
  for (const InputPlan& length : s.all) {
    const TensorSpec& its = *s.op.schema().find_tensor(length.name);
    if (length.shape.rank() != 1 || !any_of_roles(its, {Role::lengths, Role::positions})) continue;
    const bool apart = dims.size() == 3 && holds_row_lengths(its, dims[0], dims[1]);
    const bool together = dims.size() == 2 && its.bound == dims[0] + "/" + its.shape + "+1";
    if (apart || together) return InputPlan::Slots{"", length.name};
  }
  return std::nullopt;
}
bool rows_of_groups(const Site& s) {
  return counts_of(s).has_value();
}
bool zero_groups(const Site& s) {
  return zero_rows(s) && s.spec.role == Role::values;
}
bool wide_scales(const Site& s) {
  return scales_with_zero(s) && (s.input.dtype == DType::f32 || s.input.dtype == DType::bf16);
}

/// In the order of the enumeration.
constexpr std::array<bool (*)(const Site&), 32> strikes{zero_rows,
                                                        rows_of_floats,
                                                        rows_of_floats,
                                                        zero_groups,
                                                        rows_with_nan,
                                                        rows_with_nan,
                                                        rows_with_infinities,
                                                        quantized_rows,
                                                        float_logits,
                                                        weights,
                                                        weights_above_bf16,
                                                        logarithms,
                                                        one_of_several_logarithms,
                                                        logarithms,
                                                        rows_of_logarithms,
                                                        scales_with_zero,
                                                        wide_scales,
                                                        scales_with_zero,
                                                        one_scale,
                                                        scale_to_be_set,
                                                        lengths,
                                                        offsets,
                                                        offsets_that_may_end_early,
                                                        straying_experts,
                                                        several_experts,
                                                        experts_of_rows,
                                                        tables,
                                                        slots,
                                                        several_slots,
                                                        cache,
                                                        rows_of_groups,
                                                        strided};

/// The stream of one special of one input; what strikes all log-sum-exps alike has one for all of them.
InputDraw draw_of(Special special, const std::string& argument, std::uint64_t seed) {
  const bool shared = special == Special::empty_lse || special == Special::empty_lse_rows;
  return {seed, (shared ? "lse" : argument) + "/" + std::string(name(special))};
}

/// One row in eight, and one for certain.
bool struck(const InputDraw& draw, std::int64_t row, std::int64_t rows) {
  return draw.below(row, 8) == 0 || row == static_cast<std::int64_t>(draw.below_again(0, static_cast<std::uint64_t>(rows)));
}

bool has(const InputPlan& input, Special special) {
  return std::find(input.specials.begin(), input.specials.end(), special) != input.specials.end();
}

std::int64_t id(const Tensor& tensor, std::int64_t i) {
  return static_cast<std::int64_t>(quant::get(tensor, i));
}
void set_id(const Tensor& tensor, std::int64_t i, std::int64_t value) {
  quant::set_bits(tensor, i, static_cast<std::uint64_t>(value));
}

constexpr std::array<std::int64_t, 13> edges{1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129};

void lengths_at_edges(const Tensor& tensor, const InputPlan& input, const InputDraw& draw) {
  const std::int64_t count = tensor.elements(), longest = input.bound - 1;
  if (input.role == Role::indptr) {
    for (std::int64_t i = 1, at = 0; i + 1 < count; ++i) {
      at = std::min(input.bound, at + edges[static_cast<std::size_t>(draw.below(i, edges.size()))]);
      set_id(tensor, i, at);
    }
    return;
  }
  // The first stays what it is: of lengths it is the longest possible.
  const auto fitting = static_cast<std::uint64_t>(std::count_if(edges.begin(), edges.end(), [&](auto edge) { return edge <= longest; }));
  for (std::int64_t i = 1; i < count && fitting > 0; ++i) set_id(tensor, i, edges[static_cast<std::size_t>(draw.below(i, fitting))]);
}

void all_in_one_group(const Tensor& tensor, const InputPlan& input, const InputDraw& draw) {
  const auto count = tensor.elements();
  const auto group = static_cast<std::int64_t>(draw.below(0, static_cast<std::uint64_t>(count - 1)));
  for (std::int64_t i = 1; i + 1 < count; ++i) set_id(tensor, i, i > group ? input.bound : 0);
}

void end_before_the_rows(const Tensor& tensor, const InputPlan& input) {
  const std::int64_t end = input.bound - std::max<std::int64_t>(input.bound / 4, 1);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) set_id(tensor, i, std::min(id(tensor, i), end));
}

void first_is_zero(const Tensor& tensor) {
  const std::int64_t first = id(tensor, 0);
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    if (id(tensor, i) == 0) set_id(tensor, i, first);
  set_id(tensor, 0, 0);
}

void rows_of_the_first(const Tensor& tensor) {
  const std::int64_t width = tensor.size(-1);
  for (std::int64_t i = width; i < tensor.elements(); ++i) quant::set_bits(tensor, i, quant::get_bits(tensor, i % width));
}

}  // namespace

void place_specials(const Op& op, const CaseLine& line, std::vector<InputPlan>& inputs) {
  for (const Special special : line.specials) {
    bool struck_any = false;
    for (InputPlan& input : inputs) {
      const Site site{op, *op.schema().find_tensor(input.name), input, inputs};
      if (input.kin || !strikes[static_cast<std::size_t>(special)](site)) continue;
      input.specials.push_back(special);
      if (special == Special::stale_cache) input.slots = slots_of(site);
      if (special == Special::stale_rows) input.slots = counts_of(site);
      struck_any = true;
    }
    if (struck_any) continue;
    std::string known;
    for (const InputPlan& input : inputs)
      known += (known.empty() ? "" : ", ") + input.name + " (" + std::string(name(input.role)) + (input.kin ? ", made of others)" : ")");
    const SpecialText& text = specials()[static_cast<std::size_t>(special)];
    throw Error(ErrorCode::bad_option, line.op, "--special",
                std::string(text.name) + " strikes " + std::string(text.strikes) + ", of which this call has none: its inputs are " +
                    (known.empty() ? "none" : known));
  }
}

StruckNumbers::StruckNumbers(const InputPlan& input, std::uint64_t seed)
    : rows_(0), width_(input.shape.rank() > 0 ? input.shape[input.shape.rank() - 1] : 1), type_(input.dtype) {
  rows_ = width_ > 0 ? element_count(input.shape) / width_ : 0;
  for (const Special special : input.specials)
    if (special < Special::edge_lengths) strikes_.push_back({special, draw_of(special, input.name, seed)});
}

double StruckNumbers::operator()(std::int64_t i, double value, const std::function<double(std::int64_t)>& drawn) const {
  const std::int64_t row = i / width_, column = i % width_;
  for (const auto& [special, draw] : strikes_) {
    const auto here = [&d = draw, row, this] { return struck(d, row, rows_); };
    const auto chosen = [&d = draw, row, column, this] {
      return column == static_cast<std::int64_t>(d.below_again(row + 1, static_cast<std::uint64_t>(width_)));
    };
    switch (special) {
      case Special::zero_rows:
        if (here()) value = 0;
        break;
      case Special::tiny_rows:
        if (here()) value *= 0x1p-8;
        break;
      case Special::equal_rows:
        if (here()) value = drawn(row * width_);
        break;
      case Special::zero_groups:
        if (here() && column / 128 == static_cast<std::int64_t>(draw.below_again(row + 1, static_cast<std::uint64_t>(width_))) / 128)
          value = 0;
        break;
      case Special::nan_rows:
        if (here()) value = nan;
        break;
      case Special::nan_elements:
        if (here() && chosen()) value = nan;
        break;
      case Special::infinite_elements:
        if (here() && chosen()) value = std::signbit(value) ? -infinity : infinity;
        break;
      case Special::fp8_ties:
        // The largest of each group is 448 * 2^-6, so that its scale is a power of two.
        if (here())
          value = column % 128 == 0 ? 7.0
                                    : std::copysign(std::ldexp(17.0 + 2.0 * static_cast<double>(draw.below_again(rows_ + i + 1, 8)),
                                                               static_cast<int>(draw.below(rows_ + i + 1, 6)) - 8),
                                                    value);
        break;
      case Special::minus_infinite_logits:
      case Special::empty_lse:
      case Special::one_sided_lse:
        if (draw.below(i, 8) == 0) value = -infinity;
        break;
      case Special::negative_weights: value -= 4; break;
      case Special::bf16_weights: value = quant::round_to(DType::bf16, value); break;
      case Special::infinite_lse:
        if (draw.below(i, 8) == 0) value = infinity;
        break;
      case Special::empty_lse_rows:
        if (here()) value = -infinity;
        break;
      case Special::zero_scales:
        if (draw.below(i, 8) == 0) value = 0;
        break;
      case Special::tiny_scales:
        if (draw.below(i, 8) == 0) value = 1e-23;
        break;
      case Special::largest_scales:
        if (draw.below(i, 8) == 0) value = std::min(448.0, quant::max_finite(type_));
        break;
      case Special::saturating_scales: value *= 4096; break;
      case Special::fresh_scales: value = 0; break;
      default: break;
    }
  }
  return value;
}

void strike_ids(const Tensor& tensor, const InputPlan& input, std::uint64_t seed) {
  for (const Special special : input.specials) {
    const InputDraw draw = draw_of(special, input.name, seed);
    switch (special) {
      case Special::edge_lengths: lengths_at_edges(tensor, input, draw); break;
      case Special::one_group: all_in_one_group(tensor, input, draw); break;
      case Special::absent_ids:
        for (std::int64_t i = 0; i < tensor.elements(); ++i)
          if (draw.below(i, 8) == 0) set_id(tensor, i, -1);
        break;
      case Special::repeated_ids:
        for (std::int64_t i = 0; i < tensor.elements(); i += tensor.size(-1)) quant::set_bits(tensor, i + 1, quant::get_bits(tensor, i));
        break;
      case Special::one_expert:
      case Special::shared_pages: rows_of_the_first(tensor); break;
      case Special::short_offsets: end_before_the_rows(tensor, input); break;
      case Special::first_slot: first_is_zero(tensor); break;
      case Special::repeated_slots: set_id(tensor, 1, id(tensor, 0)); break;
      default: break;
    }
  }
}

namespace {

/// Slots that a list names, or requests of lengths in pages of a table.
std::vector<bool> used_slots(const Tensor& table, const Tensor* lengths, std::int64_t page, std::int64_t count) {
  std::vector<bool> used(static_cast<std::size_t>(count), false);
  const auto use = [&](std::int64_t slot) {
    if (slot >= 0 && slot < count) used[static_cast<std::size_t>(slot)] = true;
  };
  if (lengths == nullptr) {
    for (std::int64_t i = 0; i < table.elements(); ++i) use(id(table, i));
  } else {
    const std::int64_t width = table.size(-1);
    for (std::int64_t request = 0; request < table.size(0); ++request)
      for (std::int64_t k = 0; k < id(*lengths, request) && k / page < width; ++k)
        if (const std::int64_t number = id(table, request * width + k / page); number >= 0) use(number * page + k % page);
  }
  return used;
}
/// The first rows of each group.
std::vector<bool> used_rows(const Tensor& lengths, std::int64_t count) {
  std::vector<bool> used(static_cast<std::size_t>(count), false);
  const std::int64_t each = lengths.elements() > 0 ? count / lengths.elements() : 0;
  for (std::int64_t row = 0; row < count && each > 0; ++row)
    used[static_cast<std::size_t>(row)] = row / each < lengths.elements() && row % each < id(lengths, row / each);
  return used;
}

}  // namespace

void make_stale(const Tensor& cache, const InputPlan& input, const Arguments& arguments, std::uint64_t seed) {
  const bool in_groups = has(input, Special::stale_rows);
  if (!in_groups && !has(input, Special::stale_cache)) return;
  const Tensor* const lengths = input.slots->lengths.empty() ? nullptr : arguments.find(input.slots->lengths);
  const bool of_two = input.shape.rank() == (in_groups ? 3 : input.shape.rank()) && lengths != nullptr;
  const std::int64_t page = of_two ? input.shape[1] : 1, count = input.shape[0] * page;
  const std::vector<bool> used =
      in_groups ? used_rows(*lengths, count) : used_slots(*arguments.find(input.slots->table), lengths, page, count);
  const InputDraw draw = draw_of(in_groups ? Special::stale_rows : Special::stale_cache, input.name, seed);
  const std::int64_t width = count > 0 ? cache.elements() / count : 0;
  for (std::int64_t slot = 0; slot < count; ++slot) {
    if (used[static_cast<std::size_t>(slot)]) continue;
    const double stale = draw.below(slot, 2) == 0 ? nan : quant::max_finite(cache.dtype());
    for (std::int64_t i = slot * width; i < (slot + 1) * width; ++i) quant::set(cache, i, stale);
  }
}

Tensor with_gaps(const Tensor& tensor) {
  constexpr std::int64_t gap_bits = 512;  // the alignment of rows stays what it is
  const std::int64_t gap = gap_bits / bits(tensor.dtype());
  Dims wide = tensor.shape();
  wide[wide.rank() - 1] += gap;
  const Tensor result = make_strided(tensor.dtype(), tensor.shape(), contiguous_strides(wide), std::byte{0xFF});
  copy(tensor, result);
  return result;
}

}  // namespace dodona::oracle
