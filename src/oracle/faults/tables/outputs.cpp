// Faults in what a kernel wrote.
#include <array>

#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

// ---- which outputs

bool real(Site s) {
  return is_real(s.tensor.dtype());
}
bool wide_real(Site s) {
  return real(s) && !is_code(s.tensor.dtype());
}
bool code(Site s) {
  return is_code(s.tensor.dtype());
}
bool whole(Site s) {
  return is_whole(s.tensor.dtype());
}
bool any(Site) {
  return true;
}
bool has_rows(Site s) {
  return s.tensor.rank() >= 2 && Rows(s.tensor).count >= 2;
}
bool has_matrix(Site s) {
  return has_rows(s) && Rows(s.tensor).width >= 2;
}
bool has_row_tile(Site s) {
  return Rows(s.tensor).count > 16;
}
bool has_columns(Site s) {
  return Rows(s.tensor).width >= 2;
}
bool has_column_tile(Site s) {
  return Rows(s.tensor).width > 128;
}
bool has_tail(Site s) {
  return Rows(s.tensor).width * bits(s.tensor.dtype()) > 128;
}
bool even_columns(Site s) {
  return has_columns(s) && Rows(s.tensor).width % 2 == 0;
}
bool interleavable(Site s) {
  return even_columns(s) && Rows(s.tensor).width >= 4;
}
bool has_heads(Site s) {
  return s.tensor.rank() >= 3 && s.tensor.size(-2) >= 2;
}
bool has_heads_and_rows(Site s) {
  return has_heads(s) && s.tensor.size(-3) >= 2;
}
bool has_tile(Site s) {
  return Rows(s.tensor).width >= 16;
}
bool computed(Site s) {
  return real(s) && s.reference != nullptr && s.reference->exact.size() == static_cast<std::size_t>(s.tensor.elements());
}
bool wider_than_bf16(Site s) {
  return s.tensor.dtype() == DType::f32 || s.tensor.dtype() == DType::f16;
}
bool logarithm(Site s) {
  return s.spec->role == Role::lse_base_2 || s.spec->role == Role::lse_base_e;
}
bool scales_in_128x4(Site s) {
  return scales_in_tiles(s) && scale_order(s) == ScaleOrder::swizzled_128x4;
}
bool distinct_in_rows(Site s) {
  return whole(s) && has_columns(s) && s.spec->judge != Judge::exact;
}
bool product(Site s) {
  return s.call.op.info().category == Category::gemm && wide_real(s);
}

// ---- values

void zeros(Site, To t) {
  each(t, [](double) { return 0.0; });
}
void halved(Site, To t) {
  each(t, [](double x) { return x / 2; });
}
void doubled(Site, To t) {
  each(t, [](double x) { return x * 2; });
}
void negated(Site, To t) {
  each(t, [](double x) { return -x; });
}
void two_percent_more(Site, To t) {
  each(t, [](double x) { return x * (1 + 0x1p-6); });
}
void rows_of_other_scale(Site, To t) {
  const Rows rows(t);
  each(t, [&](double x, std::int64_t i) { return x * (1.0 + static_cast<double>(1 + i / rows.width % 7) / 8.0); });
}
/// Golden before its rounding, rounded another way. What is exact already stays.
void rounded_by(Site s, To t, bool away) {
  const DType type = t.dtype();
  const double limit = quant::max_finite(type);
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const double exact = s.reference->exact[static_cast<std::size_t>(i)];
    if (!std::isfinite(exact) || std::fabs(exact) > limit) continue;
    const double nearest = quant::round_to(type, exact);
    const bool too_far = std::fabs(nearest) > std::fabs(exact), too_near = std::fabs(nearest) < std::fabs(exact);
    if (!away && too_far) put(t, i, exact > 0 ? quant::next_down(type, nearest) : quant::next_up(type, nearest));
    if (away && too_near) put(t, i, exact > 0 ? quant::next_up(type, nearest) : quant::next_down(type, nearest));
  }
}
void truncated(Site s, To t) {
  rounded_by(s, t, false);
}
void rounded_away(Site s, To t) {
  rounded_by(s, t, true);
}
void through_bf16(Site, To t) {
  each(t, [](double x) { return through(DType::bf16, x); });
}
void through_f16(Site, To t) {
  for (std::int64_t i = 0; i < t.elements(); ++i) quant::set(t, i, through(DType::f16, quant::get(t, i)));
}
void through_e4m3(Site, To t) {
  each(t, [](double x) { return through(DType::f8_e4m3, std::clamp(x, -448.0, 448.0)); });
}
void one_unit_up(Site, To t) {
  each(t, [&](double x) { return std::isfinite(x) ? quant::next_up(t.dtype(), x) : x; });
}
/// Ties away from zero, which only numbers exactly between two others tell.
void ties_away(Site s, To t) {
  const DType type = t.dtype();
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const double exact = s.reference->exact[static_cast<std::size_t>(i)];
    if (!std::isfinite(exact) || std::fabs(exact) >= quant::max_finite(type)) continue;
    const double nearest = quant::round_to(type, exact);
    const double away = exact > 0 ? quant::next_up(type, nearest) : quant::next_down(type, nearest);
    if (std::fabs(nearest) < std::fabs(exact) && std::fabs(away - exact) == std::fabs(nearest - exact)) put(t, i, away);
  }
}
/// Rounded to 16 bits first, and then to the type.
bool narrower_than_16_bits(Site s) {
  return computed(s) && bits(s.tensor.dtype()) < 16 && s.tensor.dtype() != DType::f8_e8m0;
}
std::vector<AttrValue> types_of_16_bits(Site) {
  return {AttrValue(DType::bf16), AttrValue(DType::f16)};
}
void rounded_twice(Site s, To t) {
  const DType first = std::get<DType>(*s.taken), type = t.dtype();
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const double exact = s.reference->exact[static_cast<std::size_t>(i)];
    if (std::isfinite(exact) && std::fabs(exact) < quant::max_finite(type)) put(t, i, quant::round_to(type, quant::round_to(first, exact)));
  }
}
std::string twice_in_words(Site s) {
  return s.name + ": numbers are rounded twice, to " + to_string(*s.taken) + " before they are rounded to " +
         std::string(dodona::name(s.tensor.dtype()));
}
std::vector<AttrValue> parts_of_k(Site) {
  return {std::int64_t{2}, std::int64_t{4}, std::int64_t{8}};
}
std::string parts_in_words(Site s) {
  return s.name + ": K in " + to_string(*s.taken) + " parts, each sum rounded to the output's type before the next is added";
}
void partials_rounded(Site s, To t) {
  // Parts of K, each rounded to the output's type, then added one after the other: what an accumulator of that type makes of them.
  const std::int64_t count = s.taken ? std::get<std::int64_t>(*s.taken) : 2;
  std::vector<NamedTensors> parts;
  for (std::int64_t index = 0; index < count; ++index) {
    Arguments inputs = runnable(s.call.op, s.call.inputs);
    for (const TensorSpec& spec : s.call.op.schema().tensors) {
      const Tensor* first = inputs.find(spec.name);
      if (spec.direction != Direction::in || first == nullptr || first->rank() < 2) continue;
      const Tensor part = first->clone();
      const Rows rows(part);
      clear(part,
            [&](const Rows& r, std::int64_t, std::int64_t c) { return c < r.width * index / count || c >= r.width * (index + 1) / count; });
      inputs.set(spec.name, part);
      break;
    }
    Exec exec = s.call.exec;
    exec.mode = Mode::golden;
    s.call.op.run(inputs, exec);
    parts.push_back(outputs_of(s.call.op, inputs));
  }
  each(t, [&](double, std::int64_t i) {
    double sum = 0;
    for (const NamedTensors& part : parts) sum = through(t.dtype(), sum + quant::get(*find(part, s.name), i));
    return sum;
  });
}

// ---- special values

void nan_in_the_middle(Site, To t) {
  quant::set(t, t.elements() / 2, std::nan(""));
}
void nan_for_zero(Site, To t) {
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (quant::get(t, i) == 0) quant::set(t, i, std::nan(""));
}
void largest_for_infinity(Site, To t) {
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (const double x = quant::get(t, i); std::isinf(x)) quant::set(t, i, std::copysign(quant::max_finite(t.dtype()), x));
}
void largest_for_nan(Site, To t) {
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (std::isnan(quant::get(t, i))) quant::set(t, i, quant::max_finite(t.dtype()));
}
void infinity_for_largest(Site, To t) {
  std::int64_t largest = 0;
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (std::fabs(quant::get(t, i)) > std::fabs(quant::get(t, largest))) largest = i;
  quant::set(t, largest, std::copysign(INFINITY, quant::get(t, largest)));
}
void nan_for_saturated(Site, To t) {
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (std::fabs(quant::get(t, i)) == quant::max_finite(t.dtype())) quant::set(t, i, std::nan(""));
}
void zero_without_sign(Site, To t) {
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (quant::get(t, i) == 0) quant::set_bits(t, i, 0);
}
void sign_lost(Site, To t) {
  each(t, [](double x) { return std::fabs(x); });
}
void smallest_flushed(Site, To t) {
  // Denormals of e2m1 and e4m3 lie where real data are.
  const double smallest_normal = t.dtype() == DType::f4_e2m1 ? 1.0 : 0x1p-6;
  each(t, [&](double x) { return std::fabs(x) < smallest_normal ? 0.0 : x; });
}
void one_code_more_in_a_row(Site, To t) {
  const Rows rows(t);
  const std::uint64_t mask = (std::uint64_t{1} << (bits(t.dtype()) - 1)) - 1;
  for (std::int64_t c = 0; c < rows.width; ++c) {
    const std::int64_t i = rows.at(rows.count / 2, c);
    const std::uint64_t was = quant::get_bits(t, i);
    if ((was & mask) < mask - 1) quant::set_bits(t, i, was + 1);
  }
}

// ---- places

void rows_off_by_one(Site s, To t) {
  gather_rows(s.tensor, t, [](const Rows& r, std::int64_t row, std::int64_t c) { return r.at((row + r.count - 1) % r.count, c); });
}
void one_row_of_the_next(Site s, To t) {
  gather_rows(s.tensor, t,
              [](const Rows& r, std::int64_t row, std::int64_t c) { return r.at(row == r.count / 2 ? (row + 1) % r.count : row, c); });
}
void first_row_everywhere(Site s, To t) {
  gather_rows(s.tensor, t, [](const Rows& r, std::int64_t, std::int64_t c) { return r.at(0, c); });
}
void last_row_unwritten(Site, To t) {
  clear(t, [](const Rows& r, std::int64_t row, std::int64_t) { return row == r.count - 1; });
}
void last_row_tile_skipped(Site, To t) {
  clear(t, [](const Rows& r, std::int64_t row, std::int64_t) { return row >= (r.count - 1) / 16 * 16; });
}
void columns_off_by_one(Site s, To t) {
  gather_rows(s.tensor, t, [](const Rows& r, std::int64_t row, std::int64_t c) { return r.at(row, (c + 1) % r.width); });
}
void last_column_unwritten(Site, To t) {
  clear(t, [](const Rows& r, std::int64_t, std::int64_t c) { return c == r.width - 1; });
}
void tail_unwritten(Site, To t) {
  clear(t, [&](const Rows& r, std::int64_t, std::int64_t c) { return c >= r.width - 128 / bits(t.dtype()); });
}
void last_column_tile_skipped(Site, To t) {
  clear(t, [](const Rows& r, std::int64_t, std::int64_t c) { return c >= (r.width - 1) / 128 * 128; });
}
void half_columns_unwritten(Site, To t) {
  clear(t, [](const Rows& r, std::int64_t, std::int64_t c) { return 2 * c >= r.width; });
}
void one_tile_unwritten(Site, To t) {
  clear(t, [](const Rows&, std::int64_t row, std::int64_t c) { return row < 16 && c < 16; });
}
/// Tiles of rows of which there is a second half.
std::vector<AttrValue> tiles_of_rows(Site s) {
  std::vector<AttrValue> values;
  for (const std::int64_t tile : {128, 64, 32, 16})
    if (Rows(s.tensor).count > tile / 2) values.emplace_back(tile);
  return values;
}
void half_tile_unwritten(Site s, To t) {
  const std::int64_t tile = std::get<std::int64_t>(*s.taken);
  clear(t, [&](const Rows&, std::int64_t row, std::int64_t) { return row % tile >= tile / 2; });
}
void half_tile_of_first(Site s, To t) {
  const std::int64_t tile = std::get<std::int64_t>(*s.taken);
  gather_rows(s.tensor, t,
              [&](const Rows& r, std::int64_t row, std::int64_t c) { return r.at(row % tile >= tile / 2 ? row - tile / 2 : row, c); });
}
/// Tiles of columns of which there are several.
std::vector<AttrValue> tiles_of_columns(Site s) {
  std::vector<AttrValue> values;
  for (const std::int64_t tile : {256, 128, 64, 32})
    if (Rows(s.tensor).width > tile) values.emplace_back(tile);
  return values;
}
void half_columns_of_tiles_unwritten(Site s, To t) {
  const std::int64_t tile = std::get<std::int64_t>(*s.taken);
  clear(t, [&](const Rows&, std::int64_t, std::int64_t c) { return c % tile >= tile / 2; });
}
std::string half_columns_in_words(Site s) {
  const std::int64_t tile = std::get<std::int64_t>(*s.taken);
  return s.name + ": columns " + std::to_string(tile / 2) + " to " + std::to_string(tile - 1) + " of every " + std::to_string(tile) +
         " are not written: half of each tile";
}
std::string half_tile_in_words(Site s) {
  const std::int64_t tile = std::get<std::int64_t>(*s.taken);
  return s.name + ": rows " + std::to_string(tile / 2) + " to " + std::to_string(tile - 1) + " of every " + std::to_string(tile) +
         " are not written: half of each tile";
}
std::string half_again_in_words(Site s) {
  const std::int64_t tile = std::get<std::int64_t>(*s.taken);
  return s.name + ": rows " + std::to_string(tile / 2) + " to " + std::to_string(tile - 1) + " of every " + std::to_string(tile) +
         " hold the first half of the tile once more";
}
/// Rows that are made of two inputs' rows: the columns of the first.
std::int64_t first_part(Site s) {
  const std::int64_t width = Rows(s.tensor).width;
  for (const TensorSpec& a : s.call.op.schema().tensors)
    for (const TensorSpec& b : s.call.op.schema().tensors) {
      const Tensor *const x = s.call.inputs.find(a.name), *const y = s.call.inputs.find(b.name);
      if (&a < &b && a.direction == Direction::in && b.direction == Direction::in && a.role == Role::values && b.role == Role::values &&
          x != nullptr && y != nullptr && x->rank() >= 2 && y->rank() >= 2 && is_real(x->dtype()) && x->dtype() == y->dtype() &&
          x->size(-1) + y->size(-1) == width)
        return x->size(-1);
    }
  return 0;
}
bool has_parts(Site s) {
  return any(s) && s.tensor.rank() >= 2 && first_part(s) > 0;
}
std::vector<AttrValue> first_and_second(Site) {
  return {std::string("second"), std::string("first")};
}
/// What is there before the call, or nothing.
void part_unwritten(Site s, To t) {
  const bool second = std::get<std::string>(*s.taken) == "second";
  const std::int64_t border = first_part(s);
  const Tensor* const before = s.spec->direction == Direction::out ? nullptr : s.call.inputs.find(s.name);
  const Rows rows(t);
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if ((i % rows.width >= border) == second) quant::set_bits(t, i, before != nullptr ? quant::get_bits(*before, i) : 0);
}
const Tensor* before_the_call(Site s) {
  return s.spec->direction == Direction::out ? nullptr : s.call.inputs.find(s.name);
}
bool updated(Site s) {
  const Tensor* const before = before_the_call(s);
  return before != nullptr && before->defined() && before->dtype() == s.tensor.dtype() && before->elements() == s.tensor.elements();
}
void not_updated(Site s, To t) {
  const Tensor& before = *before_the_call(s);
  for (std::int64_t i = 0; i < t.elements(); ++i) quant::set_bits(t, i, quant::get_bits(before, i));
}
std::string part_in_words(Site s) {
  const std::int64_t width = Rows(s.tensor).width, border = first_part(s);
  return s.name + ": columns " +
         (std::get<std::string>(*s.taken) == "second" ? std::to_string(border) + " to " + std::to_string(width - 1)
                                                      : "0 to " + std::to_string(border - 1)) +
         ", one of the two parts of a row, are not stored";
}
void halves_exchanged(Site s, To t) {
  gather_rows(s.tensor, t, [](const Rows& r, std::int64_t row, std::int64_t c) { return r.at(row, (c + r.width / 2) % r.width); });
}
void neighbours_exchanged(Site s, To t) {
  gather_rows(s.tensor, t, [](const Rows& r, std::int64_t row, std::int64_t c) { return r.at(row, c ^ 1); });
}
void interleaved(Site s, To t) {
  gather_rows(s.tensor, t, [](const Rows& r, std::int64_t row, std::int64_t c) { return r.at(row, c % 2 * (r.width / 2) + c / 2); });
}
void not_interleaved(Site s, To t) {
  gather_rows(s.tensor, t, [](const Rows& r, std::int64_t row, std::int64_t c) {
    return r.at(row, c < r.width / 2 ? 2 * c : 2 * (c - r.width / 2) + 1);
  });
}
/// Element (r, c) where (c, r) of the matrix with as many columns as this has rows belongs.
void columns_before_rows(Site s, To t) {
  const Rows rows(s.tensor);
  gather(s.tensor, t, [&](std::int64_t i) { return rows.at(i % rows.count, i / rows.count); });
}
void rows_before_columns(Site s, To t) {
  const Rows rows(s.tensor);
  gather(s.tensor, t, [&](std::int64_t i) { return i % rows.width * rows.count + i / rows.width; });
}
void one_head_of_the_first(Site s, To t) {
  const std::int64_t heads = s.tensor.size(-2);
  gather_rows(s.tensor, t,
              [&](const Rows& r, std::int64_t row, std::int64_t c) { return r.at(row % heads == heads / 2 ? row - heads / 2 : row, c); });
}
/// In each block of rows and heads, or of heads and rows if `back`.
void heads_and_rows(Site s, To t, bool back) {
  const std::int64_t heads = s.tensor.size(-2), rows = s.tensor.size(-3), first = back ? heads : rows, second = back ? rows : heads;
  gather_rows(s.tensor, t, [&](const Rows& r, std::int64_t row, std::int64_t c) {
    const std::int64_t block = row / (heads * rows), inner = row % (heads * rows);
    return r.at(block * heads * rows + inner % first * second + inner / first, c);
  });
}
void heads_before_rows(Site s, To t) {
  heads_and_rows(s, t, false);
}
void rows_before_heads(Site s, To t) {
  heads_and_rows(s, t, true);
}
void sporadically_stale(Site s, To t) {
  const std::int64_t count = s.tensor.elements();
  gather(s.tensor, t, [&](std::int64_t i) { return i * 2654435761 % 97 == 13 ? (i + count / 2) % count : i; });
}
void one_element_wrong(Site, To t) {
  const std::int64_t i = t.elements() / 2;
  const double x = quant::get(t, i);
  put(t, i, is_whole(t.dtype()) || x == 0 ? x + 1 : x * 1.5);
}
void other_logarithm(Site s, To t) {
  each(t, [&](double x) { return x / other_base(s.spec->role); });
}
void right_logarithm(Site s, To t) {
  each(t, [&](double x) { return x * other_base(s.spec->role); });
}
void scales_not_swizzled(Site s, To t) {
  const ScaleMatrices matrices = *scale_matrices(s);
  gather(s.tensor, t, [&](std::int64_t i) { return matrices.tile_place(i); });
}
void scales_swizzled(Site s, To t) {
  const ScaleMatrices matrices = *scale_matrices(s);
  for (std::int64_t i = 0; i < t.elements(); ++i) quant::set_bits(t, matrices.tile_place(i), quant::get_bits(s.tensor, i));
}
/// Columns of a matrix of scales that the contract says something of; the rest is padding.
std::int64_t logical_columns(Site s, const ScaleMatrices& matrices) {
  if (s.reference == nullptr || s.reference->unspecified.empty()) return matrices.columns;
  for (std::int64_t c = matrices.columns; c > 0; --c)
    for (std::int64_t r = 0; r < matrices.rows; ++r)
      if (s.reference->unspecified[static_cast<std::size_t>(matrices.in_tiles(r * matrices.columns + c - 1))] == 0) return c;
  return matrices.columns;
}
bool has_padded_columns(Site s) {
  const auto matrices = scale_matrices(s);
  return scales_in_tiles(s) && matrices && s.tensor.elements() == matrices->size() && logical_columns(s, *matrices) < matrices->columns;
}
/// Where a kernel writes the scale of (row, column) that counts rows by their logical columns.
std::int64_t place_at_logical_stride(const ScaleMatrices& matrices, std::int64_t logical, std::int64_t i) {
  return matrices.in_tiles(i / matrices.columns * logical + i % matrices.columns);
}
void scales_at_logical_stride(Site s, To t) {
  const ScaleMatrices matrices = *scale_matrices(s);
  const std::int64_t logical = logical_columns(s, matrices);
  clear(t, [](const Rows&, std::int64_t, std::int64_t) { return true; });
  for (std::int64_t i = 0; i < matrices.size(); ++i)
    if (i % matrices.columns < logical)
      quant::set_bits(t, place_at_logical_stride(matrices, logical, i), quant::get_bits(s.tensor, matrices.in_tiles(i)));
}
void scales_from_logical_stride(Site s, To t) {
  const ScaleMatrices matrices = *scale_matrices(s);
  const std::int64_t logical = logical_columns(s, matrices);
  for (std::int64_t i = 0; i < matrices.size(); ++i)
    if (i % matrices.columns < logical)
      quant::set_bits(t, matrices.in_tiles(i), quant::get_bits(s.tensor, place_at_logical_stride(matrices, logical, i)));
}
void scale_rows_interleaved(Site s, To t) {
  // In a tile of 128 x 4, rows in the order 0, 4, 8... where 0, 32, 64... belongs.
  gather(s.tensor, t, [](std::int64_t i) {
    const std::int64_t row = i % 512 / 4, swapped = row % 4 * 32 + row / 4;
    return i / 512 * 512 + swapped * 4 + i % 4;
  });
}
void scale_rows_in_order(Site s, To t) {
  gather(s.tensor, t, [](std::int64_t i) {
    const std::int64_t row = i % 512 / 4, swapped = row % 32 * 4 + row / 32;
    return i / 512 * 512 + swapped * 4 + i % 4;
  });
}

// ---- whole numbers

void one_more(Site, To t) {
  each(t, [](double x) { return x + 1; });
}
void member_doubled(Site s, To t) {
  gather(s.tensor, t, [](std::int64_t i) { return i == 1 ? 0 : i; });
}
void member_missed(Site, To t) {
  quant::set(t, t.elements() - 1, -1);
}
void rows_reversed(Site s, To t) {
  gather_rows(s.tensor, t, [](const Rows& r, std::int64_t row, std::int64_t c) { return r.at(row, r.width - 1 - c); });
}

constexpr Fault permuting(Fault fault) {
  fault.permutes = true;
  return fault;
}
constexpr Fault cutting(Fault fault, int cuts) {
  fault.cuts = cuts;
  return fault;
}
constexpr Fault variant(Fault fault) {
  fault.variant = true;
  return fault;
}

constexpr std::array table{
    Fault{"zeros", "nothing but zeros", output, gross, any, zeros},
    Fault{"not-updated", "what an argument held before the call: it is not updated", output, gross, updated, not_updated},
    Fault{"half-scale", "every value half of what it should be", output, gross, real, halved},
    Fault{"double-scale", "a factor applied twice: every value doubled", output, gross, real, doubled},
    Fault{"negated", "every value negated", output, gross, real, negated},
    Fault{"scale-off-by-1.6-percent", "a constant that is off by 1/64", output, fine, real, two_percent_more},
    Fault{"rows-not-normalized", "each row off by a factor of its own", output, gross, real, rows_of_other_scale},
    cutting(Fault{"truncated", "the last conversion cuts toward zero", output, fine, computed, truncated}, -1),
    cutting(Fault{"rounded-away", "the last conversion rounds away from zero", output, fine, computed, rounded_away}, 1),
    Fault{"through-bf16", "an extra rounding to bf16", output, fine, wider_than_bf16, through_bf16},
    Fault{"through-f16", "an extra rounding to f16, which overflows beyond 65504", output, fine, wide_real, through_f16},
    Fault{"through-e4m3", "an extra rounding to e4m3", output, gross, wide_real, through_e4m3},
    Fault{"one-unit-up", "every value one unit in the last place too large", output, fine, wide_real, one_unit_up},
    variant(Fault{"ties-away", "the last conversion takes ties away from zero", output, fine, computed, ties_away}),
    Fault{"rounded-twice", "numbers are rounded to 16 bits before they are rounded to the output's fewer ones", output, fine,
          narrower_than_16_bits, rounded_twice, nullptr, types_of_16_bits, nullptr, nullptr, twice_in_words},
    Fault{"partials-rounded", "K in parts, each sum rounded to the output's type before the next is added", output, fine, product,
          partials_rounded, nullptr, parts_of_k, nullptr, nullptr, parts_in_words},
    Fault{"one-nan", "one NaN", output, gross, wide_real, nan_in_the_middle},
    Fault{"nan-for-zero", "NaN where zero belongs: 0/0", output, gross, wide_real, nan_for_zero},
    Fault{"saturated-infinity", "the largest finite number where infinity belongs", output, gross, wide_real, largest_for_infinity},
    Fault{"saturated-nan", "the largest finite number where NaN belongs", output, gross, wide_real, largest_for_nan},
    Fault{"overflow-to-infinity", "infinity for the largest element", output, gross, wide_real, infinity_for_largest},
    Fault{"nan-for-saturated", "NaN codes where values saturate", output, gross, code, nan_for_saturated},
    Fault{"zero-without-sign", "negative zeros lose their sign", output, fine, real, zero_without_sign},
    Fault{"sign-lost", "absolute values", output, gross, real, sign_lost},
    Fault{"denormal-codes-flushed", "codes below the smallest normal become zero", output, fine, code, smallest_flushed},
    Fault{"one-code-more", "one row of codes, each the next larger one", output, fine, code, one_code_more_in_a_row},
    Fault{"rows-off-by-one", "each row holds the row before it", output, gross, has_rows, rows_off_by_one},
    Fault{"one-wrong-row", "one row holds the next one", output, gross, has_rows, one_row_of_the_next},
    Fault{"first-row-everywhere", "every row is the first", output, gross, has_rows, first_row_everywhere},
    Fault{"last-row-unwritten", "the last row is not written", output, gross, has_rows, last_row_unwritten},
    Fault{"last-row-tile-skipped", "the last partial tile of 16 rows is skipped", output, gross, has_row_tile, last_row_tile_skipped},
    Fault{"half-tile-unwritten", "the second half of each tile of rows is not written", output, gross, has_rows, half_tile_unwritten,
          nullptr, tiles_of_rows, nullptr, nullptr, half_tile_in_words},
    Fault{"half-columns-of-tiles-unwritten", "the second half of each tile of columns is not written", output, gross, has_columns,
          half_columns_of_tiles_unwritten, nullptr, tiles_of_columns, nullptr, nullptr, half_columns_in_words},
    Fault{"half-tile-again", "the second half of each tile of rows is its first half once more", output, gross, has_rows,
          half_tile_of_first, nullptr, tiles_of_rows, nullptr, nullptr, half_again_in_words},
    Fault{"part-unwritten", "of rows that are put together from two inputs one part is not stored", output, gross, has_parts,
          part_unwritten, nullptr, first_and_second, nullptr, nullptr, part_in_words},
    permuting(Fault{"columns-off-by-one", "each column holds the next one", output, gross, has_columns, columns_off_by_one}),
    Fault{"last-column-unwritten", "the last column is not written", output, gross, has_columns, last_column_unwritten},
    Fault{"tail-unwritten", "the last 16 bytes of each row are not written", output, gross, has_tail, tail_unwritten},
    Fault{"half-columns-unwritten", "the second half of the columns is not written: tiles are launched as if they were twice as wide",
          output, gross, has_column_tile, half_columns_unwritten},
    Fault{"last-column-tile-skipped", "the last partial tile of 128 columns is skipped", output, gross, has_column_tile,
          last_column_tile_skipped},
    Fault{"one-tile-unwritten", "the first tile of 16 x 16 is not written", output, gross, has_tile, one_tile_unwritten},
    permuting(
        Fault{"halves-exchanged", "the halves of each row are exchanged", output, gross, even_columns, halves_exchanged, halves_exchanged}),
    permuting(Fault{"neighbours-exchanged", "neighbouring elements are exchanged: pairs, nibbles", output, gross, even_columns,
                    neighbours_exchanged, neighbours_exchanged}),
    permuting(Fault{"interleaved", "the halves of each row are interleaved", output, gross, interleavable, interleaved, not_interleaved}),
    Fault{"columns-before-rows", "written by columns where rows belong", output, gross, has_matrix, columns_before_rows,
          rows_before_columns},
    Fault{"one-wrong-head", "one head holds the first one", output, gross, has_heads, one_head_of_the_first},
    Fault{"heads-before-rows", "rows and heads in the other order", output, gross, has_heads_and_rows, heads_before_rows,
          rows_before_heads},
    Fault{"sporadically-stale", "one element in a hundred, here and there, is another one: a race", output, gross, has_columns,
          sporadically_stale},
    Fault{"one-wrong-element", "a single element is wrong", output, gross, any, one_element_wrong},
    Fault{"other-logarithm", "a log-sum-exp in the other base", output, gross, logarithm, other_logarithm, right_logarithm},
    Fault{"scales-at-logical-stride", "scales are written at the stride of the logical matrix, though the padded one is wider", output,
          gross, has_padded_columns, scales_at_logical_stride, scales_from_logical_stride},
    Fault{"scales-not-swizzled", "block scales row by row where tiles belong", output, gross, scales_in_tiles, scales_not_swizzled,
          scales_swizzled},
    Fault{"scale-rows-interleaved", "the rows in each tile of scales in another order", output, gross, scales_in_128x4,
          scale_rows_interleaved, scale_rows_in_order},
    Fault{"ids-off-by-one", "every whole number one too large", output, gross, whole, one_more},
    Fault{"member-doubled", "the second member is the first once more", output, gross, distinct_in_rows, member_doubled},
    Fault{"member-missed", "the last member is -1", output, gross, whole, member_missed},
    permuting(Fault{"order-reversed", "each row in reverse order", output, gross, distinct_in_rows, rows_reversed, rows_reversed}),
};

}  // namespace

std::span<const Fault> output_faults() {
  return table;
}

}  // namespace dodona::oracle
