// What the tables of faults are written with: tensors as rows of numbers. Included by the files of this folder, and by what asks as they
// do.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "oracle/cases/window.h"
#include "oracle/faults/faults.h"
#include "quant/element.h"
#include "quant/swizzle.h"

namespace dodona::oracle::fault_tools {

/// What a fault's functions take: where it is made, and a copy of the site's tensor that they change.
using Site = const FaultSite&;
using To = const Tensor&;
/// Variants of a fault.
using Values = std::vector<AttrValue>;

// The words of the tables.
using enum Strikes;
using enum Severity;

/// Of larger tensors faults that are composed, or that look at pairs of elements, are left out: they would take too long.
inline constexpr std::int64_t most_elements = std::int64_t{1} << 22;

/// A tensor as rows of its last dimension.
struct Rows {
  Tensor t;
  std::int64_t width, count;

  explicit Rows(const Tensor& tensor)
      : t(tensor), width(tensor.rank() > 0 ? tensor.size(-1) : 1), count(width > 0 ? tensor.elements() / width : 0) {}
  std::int64_t at(std::int64_t row, std::int64_t column) const { return row * width + column; }
};

inline bool is_real(DType type) {
  return is_float(type);
}
/// Four or eight bits a number: a quantised code, or a block scale.
inline bool is_code(DType type) {
  return is_float(type) && bits(type) <= 8;
}
inline bool is_whole(DType type) {
  return type == DType::i32 || type == DType::i64;
}

/// Stores a number without leaving the type's finite range.
inline void put(const Tensor& t, std::int64_t i, double value) {
  const double limit = quant::max_finite(t.dtype());
  quant::set(t, i, std::isnan(value) ? value : std::clamp(value, std::max(-limit, quant::min_finite(t.dtype())), limit));
}

/// map(bits) for the bits of every element.
template <class Map>
void map_bits(const Tensor& t, const Map& map) {
  const std::int64_t count = t.elements();
  const auto typed = [&](auto* data) {
    for (std::int64_t i = 0; i < count; ++i) data[i] = static_cast<std::remove_reference_t<decltype(*data)>>(map(data[i]));
  };
  if (t.contiguous() && bits(t.dtype()) == 8) return typed(t.as<std::uint8_t>());
  if (t.contiguous() && bits(t.dtype()) == 16) return typed(t.as<std::uint16_t>());
  for (std::int64_t i = 0; i < count; ++i) quant::set_bits(t, i, map(quant::get_bits(t, i)));
}

/// Each number for itself: of types of 16 bits and less the same one is asked for once.
template <class F>
void each_alike(const Tensor& t, const F& value_of) {
  const Tensor one(t.dtype(), {2});  // of codes of four bits two make a byte
  const auto changed = [&](std::uint64_t bits_of) {
    quant::set_bits(one, 0, bits_of);
    const double before = quant::get(one, 0), after = value_of(before);
    std::isfinite(before) ? put(one, 0, after) : quant::set(one, 0, after);
    return quant::get_bits(one, 0);
  };
  if (bits(t.dtype()) > 16) return map_bits(t, changed);
  constexpr std::uint32_t unknown = ~std::uint32_t{0};
  std::vector<std::uint32_t> known(std::size_t{1} << bits(t.dtype()), unknown);
  map_bits(t, [&](std::uint64_t bits_of) {
    std::uint32_t& to = known[bits_of];
    if (to == unknown) to = static_cast<std::uint32_t>(changed(bits_of));
    return static_cast<std::uint64_t>(to);
  });
}

template <class F>
void each_by_place(const Tensor& t, const F& value_of) {
  const std::int64_t count = t.elements();
  for (std::int64_t i = 0; i < count; ++i) {
    const double before = quant::get(t, i), after = value_of(before, i);
    std::isfinite(before) ? put(t, i, after) : quant::set(t, i, after);
  }
}

/// value_of(number), or value_of(number, index). Infinities and NaN of the original may stay what they are.
template <class F>
void each(const Tensor& t, const F& value_of) {
  if constexpr (std::is_invocable_v<const F&, double>) {
    each_alike(t, value_of);
  } else {
    each_by_place(t, value_of);
  }
}
/// Element i takes the bits of element from(i) of the original.
template <class F>
void gather(const Tensor& original, const Tensor& changed, const F& from) {
  const std::int64_t count = changed.elements();
  const auto typed = [&](const auto* source, auto* to) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = source[from(i)];
  };
  if (original.contiguous() && changed.contiguous() && original.data() != changed.data()) {
    if (bits(changed.dtype()) == 8) return typed(original.as<const std::uint8_t>(), changed.as<std::uint8_t>());
    if (bits(changed.dtype()) == 16) return typed(original.as<const std::uint16_t>(), changed.as<std::uint16_t>());
  }
  for (std::int64_t i = 0; i < count; ++i)
    if (const std::int64_t source = from(i); source != i) quant::set_bits(changed, i, quant::get_bits(original, source));
}
/// As gather, by row and column.
template <class F>
void gather_rows(const Tensor& original, const Tensor& changed, const F& from) {
  const Rows rows(original);
  gather(original, changed, [&](std::int64_t i) { return from(rows, i / rows.width, i % rows.width); });
}
template <class F>
void clear(const Tensor& changed, const F& where) {
  const Rows rows(changed);
  for (std::int64_t r = 0; r < rows.count; ++r)
    for (std::int64_t c = 0; c < rows.width; ++c)
      if (where(rows, r, c)) quant::set_bits(changed, rows.at(r, c), 0);
}

/// The matrices of scales in a tensor: its last two dimensions, one behind the other.
struct ScaleMatrices {
  std::int64_t rows, columns;
  ScaleOrder order;

  std::int64_t size() const { return rows * columns; }
  /// Offset in its matrix of the scale of row i / columns, group i % columns, lying in tiles.
  std::int64_t in_tiles(std::int64_t i) const {
    const auto layout = order == ScaleOrder::swizzled_8x4 ? quant::ScaleLayout::swizzled_8x4 : quant::ScaleLayout::swizzled_128x4;
    return quant::scale_offset(layout, i / columns, i % columns, columns);
  }
  /// As `in_tiles`, of an element of the whole tensor.
  std::int64_t tile_place(std::int64_t linear) const { return linear / size() * size() + in_tiles(linear % size()); }
};

/// The order of a matrix of scales: the schema's, or, where attributes of the call choose it (describe_scale_layout), theirs.
inline std::optional<ScaleOrder> scale_order(const FaultSite& s) {
  if (s.spec->storage.scales) return s.spec->storage.scales->order;
  if (s.spec->shape.find("is_sf_swizzled_layout") == std::string::npos) return std::nullopt;
  const auto chosen = [&](std::string_view name) {
    const AttrSpec* const spec = s.call.op.schema().find_attr(name);
    const AttrValue* const given = s.call.inputs.find_attr(name);
    return spec != nullptr && std::get<bool>(given != nullptr ? *given : spec->default_value);
  };
  if (!chosen("is_sf_swizzled_layout")) return ScaleOrder::linear;
  return chosen("is_sf_8x4_layout") ? ScaleOrder::swizzled_8x4 : ScaleOrder::swizzled_128x4;
}

inline bool in_tiles(ScaleOrder order) {
  return order == ScaleOrder::swizzled_128x4 || order == ScaleOrder::swizzled_8x4;
}
/// The tensor's scales in tiles, or row by row: what one may be taken for is the other.
inline std::optional<ScaleMatrices> scale_matrices(const FaultSite& s) {
  const auto order = scale_order(s);
  if (!order || s.tensor.rank() < 2 || (!in_tiles(*order) && *order != ScaleOrder::linear)) return std::nullopt;
  return ScaleMatrices{s.tensor.size(-2), s.tensor.size(-1), *order};
}
inline bool scales_in_tiles(const FaultSite& s) {
  const auto order = scale_order(s);
  return order && in_tiles(*order) && s.tensor.rank() >= 2;
}

/// The numbers that a scale belongs to, where as many lie side by side for each.
inline std::optional<Tensor> scaled_input(const FaultCase& call, const TensorSpec& its, const Tensor& scale) {
  if ((its.role != Role::scale && !its.storage.scales) || !is_real(scale.dtype()) ||
      (its.storage.scales && in_tiles(its.storage.scales->order)))
    return std::nullopt;
  const std::int64_t scales = scale.elements();
  for (const TensorSpec& spec : call.op.schema().tensors) {
    const Tensor* const input = call.inputs.find(spec.name);
    if (spec.direction != Direction::in || spec.role != Role::values || input == nullptr || !input->defined() || input->rank() < 2 ||
        !is_float(input->dtype()) || bits(input->dtype()) < 16 || scales == 0 || input->elements() % scales != 0)
      continue;
    const std::int64_t group = input->elements() / scales;
    if (group >= 16 && input->size(-1) % group == 0) return *input;
  }
  return std::nullopt;
}

/// What a logarithm in the base of this role is multiplied with to be read as one in the other base by a kernel that takes it for one in
/// its own: 2^x = e^(x ln 2).
inline double other_base(Role role) {
  constexpr double ln_2 = 0.6931471805599453;
  return role == Role::lse_base_2 ? 1 / ln_2 : ln_2;
}

inline double through(DType type, double x) {
  return std::isfinite(x) ? quant::round_to(type, x) : x;
}

/// What the schema calls a dimension of the operand.
inline std::string symbol_of(const FaultSite& s, int dim) {
  const auto dims = dims_of(s.spec->shape, s.tensor.rank());
  const auto at = static_cast<std::size_t>(dim);
  return at < dims.size() ? dims[at] : "dimension " + std::to_string(dim);
}

/// Numbers of the call that a kernel may count by in the place of another: sizes of its operands, whole attributes, how often one goes into
/// another. From 2 on, powers of two but those left out: faults try these anyway.
inline std::vector<std::int64_t> numbers_of(const FaultCase& call) {
  constexpr std::int64_t most = 4096;
  std::set<std::int64_t> sizes, found;
  for (const TensorSpec& spec : call.op.schema().tensors)
    if (const Tensor* const tensor = call.inputs.find(spec.name); tensor != nullptr && tensor->defined())
      for (int d = 0; d < tensor->rank(); ++d) sizes.insert(tensor->size(d));
  for (const AttrSpec& spec : call.op.schema().attrs)
    if (const AttrValue* const given = call.inputs.find_attr(spec.name); given != nullptr && std::holds_alternative<std::int64_t>(*given))
      sizes.insert(std::get<std::int64_t>(*given));
  for (const std::int64_t a : sizes) {
    found.insert(a);
    for (const std::int64_t b : sizes)
      if (b > 1 && a > b && a % b == 0 && a / b <= 16) found.insert(a / b);
  }
  std::vector<std::int64_t> numbers;
  for (const std::int64_t n : found)
    if (n > 1 && n <= most && (n & (n - 1)) != 0) numbers.push_back(n);
  constexpr std::size_t few = 8;
  if (numbers.size() > few) numbers.resize(few);
  return numbers;
}

// ---- variants that are words: `name rest`

inline bool always(const FaultSite&) {
  return true;
}
inline const std::string& word(const FaultSite& s) {
  return std::get<std::string>(*s.taken);
}
inline std::string first_of(const std::string& text) {
  return text.substr(0, text.find(' '));
}
inline std::string rest_of(const std::string& text) {
  return text.substr(text.find(' ') + 1);
}

}  // namespace dodona::oracle::fault_tools
