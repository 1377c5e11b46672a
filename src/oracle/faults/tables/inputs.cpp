// Faults in the tensors that a kernel works on. The op is computed anew with them.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/shape_expr.h"
#include "core/storage.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

// ---- which inputs

bool real(Site s) {
  return is_real(s.tensor.dtype());
}
/// Plain numbers, to be multiplied or added.
bool operand(Site s) {
  return real(s) && (s.spec->role == Role::values || s.spec->role == Role::weight || s.spec->role == Role::logits);
}
/// Operands, whole numbers of a byte among them.
bool stored(Site s) {
  return operand(s) || ((s.tensor.dtype() == DType::u8 || s.tensor.dtype() == DType::i8) && s.spec->role == Role::values);
}
bool packed_codes(Site s) {
  return stored(s) && s.spec->storage.code && bits(*s.spec->storage.code) == 4;
}
/// Rows of one number are the elements of a column, which a sum over it tells apart at its ends alone.
bool operand_rows(Site s) {
  return stored(s) && s.tensor.rank() >= 2 && Rows(s.tensor).width >= 2 && Rows(s.tensor).count >= 2;
}
bool operand_tile(Site s) {
  return stored(s) && Rows(s.tensor).width >= 32;
}
bool operand_halves(Site s) {
  return stored(s) && Rows(s.tensor).width >= 2 && Rows(s.tensor).width % 2 == 0;
}
/// Of packed codes it is the nibbles that are exchanged.
bool operand_pairs(Site s) {
  return operand_halves(s) && !packed_codes(s);
}
bool real_tile(Site s) {
  return operand(s) && operand_tile(s);
}
bool square(Site s) {
  return stored(s) && s.tensor.rank() >= 2 && s.tensor.size(-2) == s.tensor.size(-1) && s.tensor.size(-1) >= 2;
}
/// Heads whose halves or pairs are rotated.
bool rotated(Site s) {
  const Category category = s.call.op.info().category;
  return (category == Category::rope || category == Category::attention) && operand_halves(s);
}
/// Whether the last dimension is summed over: its symbols are in no output's shape.
bool summed(Site s) {
  const Category category = s.call.op.info().category;
  if ((category != Category::gemm && category != Category::moe) || !stored(s)) return false;
  SymbolNames names;
  const ShapeExpr shape = ShapeExpr::parse(s.spec->shape, names);
  if (shape.alternatives().front().dims.empty()) return false;
  const auto symbols = shape.alternatives().front().dims.back().symbols();
  for (const TensorSpec& other : s.call.op.schema().tensors) {
    if (other.direction == Direction::in) continue;
    for (const int symbol : symbols)
      if ((" " + other.shape + " ").find(names.name(symbol)) != std::string::npos) return false;
  }
  return !symbols.empty();
}
template <int columns>
bool summed_tile(Site s) {
  return Rows(s.tensor).width > columns && summed(s);
}
/// A dimension before the last that no output has: it is added over.
int added_dimension(Site s) {
  if (s.call.op.info().category != Category::moe || !operand(s) || s.tensor.rank() < 3) return -1;
  SymbolNames names;
  const ShapeExpr shape = ShapeExpr::parse(s.spec->shape, names);
  const ShapeAlternative* const dims = shape.for_rank(s.tensor.rank());
  for (std::size_t d = 1; dims != nullptr && d + 1 < dims->dims.size(); ++d) {
    const auto symbols = dims->dims[d].symbols();
    const bool in_output = std::any_of(s.call.op.schema().tensors.begin(), s.call.op.schema().tensors.end(), [&](const TensorSpec& other) {
      return other.direction != Direction::in && std::any_of(symbols.begin(), symbols.end(), [&](int symbol) {
               return (" " + other.shape + " ").find(" " + names.name(symbol) + " ") != std::string::npos;
             });
    });
    if (!symbols.empty() && !in_output && s.tensor.size(static_cast<int>(d)) >= 2) return static_cast<int>(d);
  }
  return -1;
}
bool added_up(Site s) {
  return added_dimension(s) > 0;
}
bool wide_operand(Site s) {
  return operand(s) && !is_code(s.tensor.dtype());
}
bool operand_above_bf16(Site s) {
  return wide_operand(s) && s.tensor.dtype() != DType::bf16;
}
bool single_operand(Site s) {
  return operand(s) && s.tensor.dtype() == DType::f32;
}
bool eight_bit_float(Site s) {
  return s.tensor.dtype() == DType::f8_e4m3 || s.tensor.dtype() == DType::f8_e5m2;
}
bool weight(Site s) {
  return s.spec->role == Role::weight;
}
/// Of a norm: a bias that is added to all choices alike changes none of them.
bool weight_of_norm(Site s) {
  return weight(s) && s.call.op.info().category == Category::normalization;
}
bool scale(Site s) {
  return s.spec->role == Role::scale && real(s);
}
bool with_gaps(Site s) {
  return s.tensor.rank() >= 2 && !s.tensor.contiguous();
}
/// Matrices one behind the other, as pages or experts.
bool matrices(Site s) {
  return s.spec->direction == Direction::in && s.tensor.rank() >= 3 && s.tensor.size(0) >= 2 && s.tensor.contiguous() &&
         bits(s.tensor.dtype()) >= 8;
}
bool scales(Site s) {
  return scale(s) && s.tensor.elements() >= 2;
}
bool scale_matrix(Site s) {
  return scale(s) && s.tensor.rank() == 2 && s.tensor.size(0) >= 2 && s.tensor.size(1) >= 2;
}
bool in_tiles_or_rows(Site s) {
  const auto matrices = scale_matrices(s);
  return scale(s) && matrices && matrices->rows >= 2 && matrices->columns >= 2;
}
bool scale_rows(Site s) {
  return scale(s) && s.tensor.rank() >= 2 && Rows(s.tensor).count >= 2;
}
bool lengths(Site s) {
  return is_whole(s.tensor.dtype()) && (s.spec->role == Role::values || s.spec->role == Role::indptr || s.spec->role == Role::lengths);
}
bool cos_sin(Site s) {
  return s.spec->role == Role::cos_sin && Rows(s.tensor).width % 2 == 0;
}
bool position(Site s) {
  return s.spec->role == Role::positions;
}
bool index(Site s) {
  return (s.spec->role == Role::indices || s.spec->role == Role::page_table) && s.tensor.elements() >= 2;
}
/// Every index once, and other than its own inverse.
bool permutation(Site s) {
  if (s.spec->role != Role::indices) return false;
  const std::int64_t count = s.tensor.elements();
  std::vector<std::int64_t> place(static_cast<std::size_t>(count), -1);
  bool own_inverse = true;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto to = static_cast<std::int64_t>(quant::get(s.tensor, i));
    if (to < 0 || to >= count || place[static_cast<std::size_t>(to)] >= 0) return false;
    place[static_cast<std::size_t>(to)] = i;
  }
  for (std::int64_t i = 0; i < count; ++i)
    own_inverse = own_inverse && place[static_cast<std::size_t>(i)] == static_cast<std::int64_t>(quant::get(s.tensor, i));
  return !own_inverse;
}
bool expert(Site s) {
  return s.spec->role == Role::expert_ids && s.tensor.elements() >= 2;
}
bool logarithm(Site s) {
  return s.spec->role == Role::lse_base_2 || s.spec->role == Role::lse_base_e;
}
/// Inputs of the same type and shape, which could be taken for this one: those behind it first.
std::vector<std::string> twins_of(Site s) {
  std::vector<std::string> before, behind;
  bool passed = false;
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* const other = s.call.inputs.find(spec.name);
    if (spec.name == s.name) {
      passed = true;
    } else if (const Tensor twin = other != nullptr ? as_codes(*other, spec.storage) : Tensor();
               spec.direction != Direction::out && twin.defined() && twin.dtype() == s.tensor.dtype() && twin.shape() == s.tensor.shape()) {
      (passed ? behind : before).emplace_back(spec.name);
    }
  }
  behind.insert(behind.end(), before.begin(), before.end());
  return behind;
}
bool has_twin(Site s) {
  return !twins_of(s).empty();
}
std::vector<AttrValue> twins_to_read(Site s) {
  std::vector<AttrValue> values;
  for (const std::string& name : twins_of(s)) values.emplace_back(name);
  return values;
}
std::string twin_in_words(Site s) {
  return s.name + ": " + std::get<std::string>(*s.taken) + " is read in its place";
}
/// A few numbers for each row: weights of its experts, scales.
bool few_a_row(Site s) {
  constexpr std::int64_t few = 16;
  return real(s) && s.spec->direction == Direction::in && s.tensor.rank() == 2 && s.tensor.size(0) >= 2 && s.tensor.size(1) >= 2 &&
         s.tensor.size(1) <= few && !s.spec->storage.code;
}
/// A whole number for each request.
bool several_lengths(Site s) {
  return s.spec->direction == Direction::in && lengths(s) && s.spec->role != Role::indptr && s.tensor.rank() == 1 &&
         s.tensor.elements() >= 2;
}
bool probabilities(Site s) {
  return s.spec->role == Role::probs && s.spec->direction == Direction::in && real(s);
}

// ---- values

void ignored(Site, To t) {
  each(t, [](double) { return 0.0; });
}
void ones(Site, To t) {
  each(t, [](double) { return 1.0; });
}
void doubled(Site, To t) {
  each(t, [](double x) { return 2 * x; });
}
void inverted(Site, To t) {
  each(t, [](double x) { return x != 0 ? 1 / x : x; });
}
void power_of_two(Site, To t) {
  each(t, [](double x) { return x > 0 ? std::exp2(std::ceil(std::log2(x))) : x; });
}
void cut_to_power_of_two(Site, To t) {
  each(t, [](double x) { return x > 0 ? std::exp2(std::floor(std::log2(x))) : x; });
}
void squared(Site, To t) {
  each(t, [](double x) { return x * x; });
}
void plus_one(Site, To t) {
  each(t, [](double x) { return x + 1; });
}
void narrowed(Site, To t) {
  each(t, [](double x) { return through(DType::bf16, x); });
}
void cut_to_tf32(Site, To t) {
  each(t, [](double x) {
    const auto single = static_cast<float>(x);
    std::uint32_t bits_of = 0;
    std::memcpy(&bits_of, &single, sizeof bits_of);
    bits_of &= 0xFFFFE000;
    float cut = 0;
    std::memcpy(&cut, &bits_of, sizeof cut);
    return static_cast<double>(cut);
  });
}
void through_e4m3(Site, To t) {
  each(t, [](double x) { return through(DType::f8_e4m3, std::clamp(x, -448.0, 448.0)); });
}
void other_format(Site s, To t) {
  const DType other = t.dtype() == DType::f8_e4m3 ? DType::f8_e5m2 : DType::f8_e4m3;
  const Tensor read = s.tensor.clone().bitcast(other);
  each(t, [&](double, std::int64_t i) {
    const double x = quant::get(read, i);
    return std::isfinite(x) ? x : 0.0;
  });
}
void sign_lost(Site, To t) {
  each(t, [](double x) { return std::fabs(x); });
}

// ---- places

template <int step>
void rows_moved(Site s, To t) {
  gather_rows(s.tensor, t, [](const Rows& r, std::int64_t row, std::int64_t c) { return r.at((row + step + r.count) % r.count, c); });
}
void elements_off_by_one(Site s, To t) {
  gather(s.tensor, t, [&](std::int64_t i) { return (i + 1) % s.tensor.elements(); });
}
void first_row_everywhere(Site s, To t) {
  gather_rows(s.tensor, t, [](const Rows& r, std::int64_t, std::int64_t c) { return r.at(0, c); });
}
void first_everywhere(Site s, To t) {
  gather(s.tensor, t, [](std::int64_t) { return 0; });
}
template <int columns>
void last_columns_dropped(Site, To t) {
  clear(t, [](const Rows& r, std::int64_t, std::int64_t c) { return c >= r.width - columns; });
}
template <int columns>
void first_columns_dropped(Site, To t) {
  clear(t, [](const Rows&, std::int64_t, std::int64_t c) { return c < columns; });
}
void last_tile_doubled(Site, To t) {
  const Rows rows(t);
  each(t, [&](double x, std::int64_t i) { return i % rows.width >= rows.width - 16 ? 2 * x : x; });
}
void halves_exchanged(Site s, To t) {
  gather_rows(s.tensor, t, [](const Rows& r, std::int64_t row, std::int64_t c) { return r.at(row, (c + r.width / 2) % r.width); });
}
void neighbours_exchanged(Site s, To t) {
  gather_rows(s.tensor, t, [](const Rows& r, std::int64_t row, std::int64_t c) { return r.at(row, c ^ 1); });
}
void second_half_negated(Site, To t) {
  const Rows rows(t);
  each(t, [&](double x, std::int64_t i) { return i % rows.width >= rows.width / 2 ? -x : x; });
}
/// The width of a head where a row holds several, from an attribute that names it; else the row's.
std::int64_t head_width(Site s) {
  const std::int64_t width = Rows(s.tensor).width;
  for (const char* attr : {"head_size", "head_dim"}) {
    const AttrValue* value = s.call.inputs.find_attr(attr);
    const auto* whole = value != nullptr ? std::get_if<std::int64_t>(value) : nullptr;
    if (whole != nullptr && *whole > 1 && *whole % 2 == 0 && width % *whole == 0) return *whole;
  }
  return width;
}
void pairs_for_halves(Site s, To t) {
  const std::int64_t head = head_width(s);
  gather(s.tensor, t, [&](std::int64_t i) {
    const std::int64_t c = i % head;
    return i - c + (c < head / 2 ? 2 * c : 2 * (c - head / 2) + 1);
  });
}
void halves_for_pairs(Site s, To t) {
  const std::int64_t head = head_width(s);
  gather(s.tensor, t, [&](std::int64_t i) {
    const std::int64_t c = i % head;
    return i - c + c / 2 + c % 2 * (head / 2);
  });
}
void columns_for_rows(Site s, To t) {
  const std::int64_t width = s.tensor.size(-1);
  gather(s.tensor, t, [&](std::int64_t i) {
    const std::int64_t at = i % (width * width);
    return i - at + at % width * width + at / width;
  });
}
void not_rotated(Site, To t) {
  const Rows rows(t);
  each(t, [&](double, std::int64_t i) { return i % rows.width < rows.width / 2 ? 1.0 : 0.0; });
}
void cos_sin_in_turn(Site s, To t) {
  gather_rows(s.tensor, t, [](const Rows& r, std::int64_t row, std::int64_t c) {
    return r.at(row, c < r.width / 2 ? 2 * c : 2 * (c - r.width / 2) + 1);
  });
}
void twin_read(Site s, To t) {
  const std::string& name = std::get<std::string>(*s.taken);
  copy(as_codes(*s.call.inputs.find(name), s.call.op.schema().find_tensor(name)->storage), t);
}
void first_of_each_row(Site s, To t) {
  gather_rows(s.tensor, t, [](const Rows& r, std::int64_t row, std::int64_t) { return r.at(row, 0); });
}
std::vector<AttrValue> least_probabilities(Site) {
  return {1e-8, 1e-6, 1e-5, 1e-4};
}
void small_ones_dropped(Site s, To t) {
  const double least = std::get<double>(*s.taken);
  each(t, [&](double x) { return x > least ? x : 0.0; });
}
std::string small_ones_in_words(Site s) {
  return s.name + ": what is not above " + to_string(*s.taken) + " counts as zero: a search for a threshold ends there";
}
void logarithm_misread(Site s, To t) {
  each(t, [&](double x) { return x * other_base(s.spec->role); });
}
void logarithm_converted(Site s, To t) {
  each(t, [&](double x) { return x / other_base(s.spec->role); });
}

/// Element i is what lies i places behind the first in memory.
void read_as_packed(Site s, To t) {
  const std::int64_t last = s.tensor.extent_bytes() * 8 / bits(s.tensor.dtype());
  for (std::int64_t i = 0; i < t.elements() && i < last; ++i) quant::set_bits(t, i, quant::load_bits(s.tensor.dtype(), s.tensor.data(), i));
}
std::string packed_in_words(Site s) {
  if (s.tensor.strides()[s.tensor.rank() - 1] == 1) return s.name + ": rows that are a slice of wider ones are read as if they were packed";
  return s.name + ": strides are not looked at: columns that lie one behind the other are read as rows";
}
/// Dimensions within a matrix of matrices, as heads of each query.
bool matrices_of_matrices(Site s) {
  return matrices(s) && s.tensor.rank() >= 4;
}
std::vector<AttrValue> inner_dimensions(Site s) {
  std::vector<AttrValue> values;
  for (std::int64_t d = 1; d + 2 < s.tensor.rank(); ++d)
    if (s.tensor.size(static_cast<int>(d)) >= 2) values.emplace_back(d);
  return values;
}
std::int64_t inner_stride(Site s) {
  std::int64_t stride = 1;
  for (int d = static_cast<int>(std::get<std::int64_t>(*s.taken)) + 1; d < s.tensor.rank(); ++d) stride *= s.tensor.size(d);
  return stride;
}
void matrix_stride_of_inner_matrix(Site s, To t) {
  const std::int64_t step = inner_stride(s), matrix = s.tensor.elements() / s.tensor.size(0);
  gather(s.tensor, t, [&](std::int64_t i) { return i / matrix * step + i % matrix; });
}
std::string inner_matrix_in_words(Site s) {
  return s.name + ": the outermost index (request, page) steps on by one of dimension " + to_string(*s.taken) + ", whose stride is " +
         std::to_string(inner_stride(s)) + " elements, not by a whole matrix of " + std::to_string(s.tensor.elements() / s.tensor.size(0));
}
/// The outermost index steps on by one row of the last dimension where it should by a whole matrix.
void matrix_stride_of_one_row(Site s, To t) {
  const std::int64_t width = s.tensor.size(-1), matrix = s.tensor.elements() / s.tensor.size(0);
  gather(s.tensor, t, [&](std::int64_t i) { return i / matrix * width + i % matrix; });
}
void transposed(Site s, To t) {
  const std::int64_t rows = s.tensor.size(0), columns = s.tensor.size(1);
  gather(s.tensor, t, [&](std::int64_t i) { return i % rows * columns + i / rows; });
}
void transposed_back(Site s, To t) {
  const std::int64_t rows = s.tensor.size(0), columns = s.tensor.size(1);
  gather(s.tensor, t, [&](std::int64_t i) { return i % columns * rows + i / columns; });
}
/// Where a right kernel looks, in tiles, lies what a wrong one finds there row by row.
void read_row_by_row(Site s, To t) {
  const ScaleMatrices matrices = *scale_matrices(s);
  for (std::int64_t i = 0; i < t.elements(); ++i) quant::set_bits(t, matrices.tile_place(i), quant::get_bits(s.tensor, i));
}
/// Scales row by row where tiles are looked for, or the other way round. What lies beyond a matrix without padding stays.
void read_as_tiles(Site s, To t) {
  const ScaleMatrices matrices = *scale_matrices(s);
  gather(s.tensor, t, [&](std::int64_t i) {
    const std::int64_t from = matrices.tile_place(i);
    return from / matrices.size() == i / matrices.size() && from < t.elements() ? from : i;
  });
}

// ---- positions, indices, ids; nothing may leave the range that the tensor has

double largest(To t) {
  double most = 0;
  for (std::int64_t i = 0; i < t.elements(); ++i) most = std::max(most, quant::get(t, i));
  return most;
}
/// The largest becomes 0 and the other way round; negative ids mark padding.
template <int step>
void ids_moved(Site, To t) {
  const auto count = static_cast<std::int64_t>(largest(t)) + 1;
  each(t, [&](double x) { return x < 0 ? x : static_cast<double>((static_cast<std::int64_t>(x) + step + count) % count); });
}
void inverted_permutation(Site s, To t) {
  for (std::int64_t i = 0; i < t.elements(); ++i)
    quant::set_bits(t, static_cast<std::int64_t>(quant::get(s.tensor, i)), static_cast<std::uint64_t>(i));
}
void reversed(Site s, To t) {
  gather(s.tensor, t, [&](std::int64_t i) { return s.tensor.elements() - 1 - i; });
}
/// Tiles of K that the summed columns are no multiple of.
std::vector<AttrValue> tiles_with_rest(Site s) {
  std::vector<AttrValue> values;
  const std::int64_t width = Rows(s.tensor).width;
  for (const std::int64_t tile : {32, 64, 128, 256, 512})
    if (width > tile && width % tile != 0) values.emplace_back(tile);
  return values;
}
void cut_to_multiple(Site s, To t) {
  const std::int64_t tile = std::get<std::int64_t>(*s.taken);
  clear(t, [&](const Rows& r, std::int64_t, std::int64_t c) { return c >= r.width / tile * tile; });
}
std::string cut_in_words(Site s) {
  const std::int64_t width = Rows(s.tensor).width, tile = std::get<std::int64_t>(*s.taken);
  return s.name + ": of " + std::to_string(width) + " summed columns the last " + std::to_string(width % tile) +
         " are not added: K is cut to a multiple of " + std::to_string(tile);
}
std::vector<AttrValue> last_and_first(Site) {
  return {std::string("last"), std::string("first")};
}
void one_not_added(Site s, To t) {
  const int d = added_dimension(s);
  const std::int64_t left_out = std::get<std::string>(*s.taken) == "last" ? s.tensor.size(d) - 1 : 0;
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (index_of(i, s.tensor.shape())[d] == left_out) quant::set_bits(t, i, 0);
}
std::string not_added_in_words(Site s) {
  return s.name + ": of the " + std::to_string(s.tensor.size(added_dimension(s))) + " rows that are added up the " +
         std::get<std::string>(*s.taken) + " one is left out";
}
std::vector<AttrValue> usual_tiles(Site) {
  std::vector<AttrValue> values;
  for (const std::int64_t tile : {16, 32, 64, 128}) values.emplace_back(tile);
  return values;
}
void rounded_up_to_tiles(Site s, To t) {
  const auto tile = static_cast<double>(std::get<std::int64_t>(*s.taken));
  each(t, [&](double x) { return std::ceil(x / tile) * tile; });
}
std::string tiles_in_words(Site s) {
  return s.name + ": every length is rounded up to a multiple of " + to_string(*s.taken) +
         ", whole tiles or pages: what is stale behind the end counts";
}
void length_less(Site, To t) {
  each(t, [](double x) { return x > 0 ? x - 1 : x; });
}
/// The longest may fill what it lies in, and an op refuses what goes beyond.
void length_more(Site, To t) {
  const double most = largest(t);
  each(t, [&](double x) { return x < most ? x + 1 : x; });
}
void all_zero(Site, To t) {
  each(t, [](double) { return 0.0; });
}
void one_wrong(Site, To t) {
  const std::int64_t i = t.elements() / 2;
  const double x = quant::get(t, i);
  quant::set(t, i, x > 0 ? x - 1 : largest(t));
}
void in_order(Site, To t) {
  const auto most = static_cast<std::int64_t>(largest(t));
  each(t, [&](double, std::int64_t i) { return static_cast<double>(i % (most + 1)); });
}
void duplicated(Site s, To t) {
  gather(s.tensor, t, [](std::int64_t i) { return i == 1 ? 0 : i; });
}

// ---- tiles that were not waited for

/// `64,2`: of tiles of 64 summed columns number 2 holds what the one before held; `64,all`: each does.
std::vector<AttrValue> stale_tiles(Site s) {
  std::vector<AttrValue> values;
  constexpr std::int64_t most_tiles = 8;
  for (const std::int64_t tile : {64, 128, 32}) {
    const std::int64_t count = Rows(s.tensor).width / tile;
    if (count < 2) continue;
    values.emplace_back(std::to_string(tile) + ",all");
    for (std::int64_t t = 1; t < count && count <= most_tiles; ++t) values.emplace_back(std::to_string(tile) + "," + std::to_string(t));
  }
  return values;
}
void tile_of_the_one_before(Site s, To t) {
  const auto& text = std::get<std::string>(*s.taken);
  const std::int64_t tile = std::stoll(text);
  const std::string which = text.substr(text.find(',') + 1);
  gather_rows(s.tensor, t, [&](const Rows& r, std::int64_t row, std::int64_t c) {
    const bool stale = c >= tile && (which == "all" || c / tile == std::stoll(which));
    return r.at(row, stale ? c - tile : c);
  });
}
std::string stale_in_words(Site s) {
  const auto& text = std::get<std::string>(*s.taken);
  const std::int64_t tile = std::stoll(text);
  const std::string which = text.substr(text.find(',') + 1);
  if (which == "all") return s.name + ": each tile of " + std::to_string(tile) + " summed columns is the one before: stages are off by one";
  const std::int64_t first = tile * std::stoll(which);
  return s.name + ": of the summed columns " + std::to_string(first) + " to " + std::to_string(first + tile - 1) +
         " are still those of the tile before: it was not waited for";
}

constexpr Fault unlikely(Fault fault) {
  fault.unlikely = true;
  return fault;
}
/// Takes what a row needs from rows far away.
constexpr Fault far(Fault fault) {
  fault.far = true;
  return fault;
}

// The likeliest first: in this order an explanation is looked for.
constexpr std::array table{
    Fault{"weight-ignored", "a weight counts as one", input, gross, weight, ones},
    Fault{"weight-plus-one", "1 is added to a weight, as models with zero-centred norms do", input, gross, weight_of_norm, plus_one},
    Fault{"cos-and-sin-exchanged", "cosines and sines are exchanged", input, gross, cos_sin, halves_exchanged},
    Fault{"sine-negated", "rotation the other way", input, gross, cos_sin, second_half_negated},
    Fault{"cos-sin-interleaved", "the table is read as pairs of cosine and sine", input, gross, cos_sin, cos_sin_in_turn},
    Fault{"not-rotated", "rotation is left out", input, gross, cos_sin, not_rotated},
    Fault{"pairs-for-halves", "interleaved pairs are taken for halves", input, gross, rotated, pairs_for_halves},
    Fault{"halves-for-pairs", "halves are taken for interleaved pairs", input, gross, rotated, halves_for_pairs},
    Fault{"operand-halves-exchanged", "the halves of an operand's rows are exchanged: gate and up, rope pairs", input, gross,
          operand_halves, halves_exchanged},
    Fault{"nibbles-exchanged", "the two codes of each byte are exchanged", input, gross, packed_codes, neighbours_exchanged},
    Fault{"logarithm-misread", "a log-sum-exp taken for one in the other base", input, gross, logarithm, logarithm_misread},
    Fault{"logarithm-converted", "a log-sum-exp converted to the other base, though it is in the right one", input, gross, logarithm,
          logarithm_converted},
    Fault{"scale-ignored", "a scale counts as one", input, gross, scale, ones},
    Fault{"scale-inverted", "a scale divides where it should multiply", input, gross, scale, inverted},
    Fault{"scale-applied-twice", "a scale is applied twice", input, gross, scale, squared},
    Fault{"scale-power-of-two", "a scale is rounded up to a power of two", input, gross, scale, power_of_two},
    Fault{"scale-cut-to-power-of-two", "a scale is cut to the power of two below it", input, gross, scale, cut_to_power_of_two},
    far(Fault{"scales-read-row-by-row", "scales in tiles are read as if they lay row by row", input, gross, scales_in_tiles,
              read_row_by_row}),
    far(Fault{"scales-read-as-swizzled", "scales that lie row by row are read as tiles of 128 x 4", input, gross, in_tiles_or_rows,
              read_as_tiles}),
    far(Fault{"scales-transposed", "a matrix of scales is read column by column", input, gross, scale_matrix, transposed}),
    far(Fault{"scales-transposed-back", "a matrix of scales is read row by row though it lies by columns", input, gross, scale_matrix,
              transposed_back}),
    Fault{"scale-off-by-one", "each scale is the next one", input, gross, scales, elements_off_by_one},
    Fault{"scale-rows-off-by-one", "each row of scales is the next one", input, gross, scale_rows, rows_moved<1>},
    Fault{"scale-rows-one-behind", "each row of scales is the one before", input, gross, scale_rows, rows_moved<-1>},
    Fault{"scale-of-the-first", "the first scale is used for all", input, gross, scales, first_everywhere},
    Fault{"scale-doubled", "a scale is twice what it should be", input, gross, scale, doubled},
    Fault{"position-off-by-one", "every position is the next one", input, gross, position, ids_moved<1>},
    Fault{"position-one-behind", "every position is the one before", input, gross, position, ids_moved<-1>},
    Fault{"position-ignored", "every position is the first", input, gross, position, all_zero},
    Fault{"index-off-by-one", "every index, or page, is the next one", input, gross, index, ids_moved<1>},
    Fault{"index-one-behind", "every index, or page, is the one before", input, gross, index, ids_moved<-1>},
    Fault{"index-ignored", "rows in order, not by index", input, gross, index, in_order},
    Fault{"index-of-the-first", "the first index is used for all", input, gross, index, first_everywhere},
    Fault{"indices-reversed", "indices in reverse order", input, gross, index, reversed},
    Fault{"permutation-inverted", "the inverse of the permutation is applied", input, gross, permutation, inverted_permutation},
    Fault{"one-wrong-index", "one index is off by one", input, gross, index, one_wrong},
    Fault{"expert-off-by-one", "every expert is the next one", input, gross, expert, ids_moved<1>},
    Fault{"expert-one-behind", "every expert is the one before", input, gross, expert, ids_moved<-1>},
    Fault{"expert-missed", "one choice goes to a neighbouring expert", input, gross, expert, one_wrong},
    Fault{"expert-duplicated", "the first choice counts for the second too", input, gross, expert, duplicated},
    Fault{"length-one-less", "every length or offset is one too small: a mask off by one", input, gross, lengths, length_less},
    Fault{"length-one-more", "every length or offset but the largest is one too large: what is stale behind the end counts", input, gross,
          lengths, length_more},
    Fault{"length-of-whole-tiles", "every length is rounded up to whole tiles or pages: what is stale behind the end counts", input, fine,
          lengths, rounded_up_to_tiles, nullptr, usual_tiles, nullptr, nullptr, tiles_in_words},
    Fault{"read-as-packed", "its memory is read as if rows were packed", input, gross, with_gaps, read_as_packed, nullptr, nullptr, nullptr,
          nullptr, packed_in_words},
    far(Fault{"matrix-stride-of-one-row", "the outermost index (page, expert, batch) steps on by one row, not by a whole matrix", input,
              gross, matrices, matrix_stride_of_one_row}),
    Fault{"operand-ignored", "an operand counts as zero", input, gross, stored, ignored},
    far(Fault{"matrix-stride-of-inner-matrix", "the outermost index steps on by one of an inner dimension, not by a whole matrix", input,
              gross, matrices_of_matrices, matrix_stride_of_inner_matrix, nullptr, inner_dimensions, nullptr, nullptr,
              inner_matrix_in_words}),
    Fault{"first-of-each-row", "the first number of each row is used for all of it", input, gross, few_a_row, first_of_each_row},
    Fault{"length-of-the-first", "the first one is used for all", input, gross, several_lengths, first_everywhere},
    Fault{"small-probabilities-dropped", "probabilities below a small number count as zero", input, fine, probabilities, small_ones_dropped,
          nullptr, least_probabilities, nullptr, nullptr, small_ones_in_words},
    unlikely(Fault{"twin-read", "another operand of the same shape is read in place of this one", input, gross, has_twin, twin_read,
                   nullptr, twins_to_read, nullptr, nullptr, twin_in_words}),
    Fault{"one-not-added", "of the rows that are added up one is left out", input, gross, added_up, one_not_added, nullptr, last_and_first,
          nullptr, nullptr, not_added_in_words},
    Fault{"k-cut-to-multiple", "K is cut to a multiple of a tile: the last summed columns are not added", input, gross, summed_tile<32>,
          cut_to_multiple, nullptr, tiles_with_rest, nullptr, nullptr, cut_in_words},
    Fault{.id = "stale-k-tile",
          .summary = "a tile of the summed columns holds what the tile before held: it was not waited for",
          .strikes = input,
          .severity = gross,
          .applies = summed_tile<32>,
          .spoil = tile_of_the_one_before,
          .variants = stale_tiles,
          .words = stale_in_words},
    Fault{"k-tile-dropped", "the last 16 columns of an operand are not added", input, gross, operand_tile, last_columns_dropped<16>},
    Fault{"k-tile-of-32-dropped", "the last 32 of the summed columns are not added", input, gross, summed_tile<32>,
          last_columns_dropped<32>},
    Fault{"k-tile-of-64-dropped", "the last 64 of the summed columns are not added", input, gross, summed_tile<64>,
          last_columns_dropped<64>},
    Fault{"k-tile-of-128-dropped", "the last 128 of the summed columns are not added", input, gross, summed_tile<128>,
          last_columns_dropped<128>},
    Fault{"k-tile-of-256-dropped", "the last 256 of the summed columns are not added", input, gross, summed_tile<256>,
          last_columns_dropped<256>},
    Fault{"k-tile-of-512-dropped", "the last 512 of the summed columns are not added", input, gross, summed_tile<512>,
          last_columns_dropped<512>},
    Fault{"first-k-tile-of-32-dropped", "the first 32 of the summed columns are not added", input, gross, summed_tile<32>,
          first_columns_dropped<32>},
    Fault{"first-k-tile-of-64-dropped", "the first 64 of the summed columns are not added", input, gross, summed_tile<64>,
          first_columns_dropped<64>},
    Fault{"first-k-tile-of-128-dropped", "the first 128 of the summed columns are not added", input, gross, summed_tile<128>,
          first_columns_dropped<128>},
    Fault{"k-tail-dropped", "the last column of an operand is not added", input, fine, operand_tile, last_columns_dropped<1>},
    Fault{"k-tile-doubled", "the last 16 columns of an operand are added twice", input, gross, real_tile, last_tile_doubled},
    Fault{"operand-rows-off-by-one", "each row of an operand is the next one", input, gross, operand_rows, rows_moved<1>},
    Fault{"operand-rows-one-behind", "each row of an operand is the one before", input, gross, operand_rows, rows_moved<-1>},
    Fault{"operand-row-broadcast", "every row of an operand is the first", input, gross, operand_rows, first_row_everywhere},
    far(Fault{"operand-transposed", "an operand's rows are taken for its columns", input, gross, square, columns_for_rows}),
    Fault{"operand-neighbours-exchanged", "neighbouring elements of an operand are exchanged: rope pairs", input, gross, operand_pairs,
          neighbours_exchanged},
    Fault{"other-fp8-format", "codes read as the other 8-bit format", input, gross, eight_bit_float, other_format},
    Fault{"operand-sign-lost", "an operand's absolute values", input, gross, operand, sign_lost},
    Fault{"operand-narrowed", "an operand is rounded to bf16", input, fine, operand_above_bf16, narrowed},
    Fault{"operand-cut-to-tf32", "an operand is cut to the 10 bits of TF32", input, fine, single_operand, cut_to_tf32},
    Fault{"operand-through-e4m3", "an operand is quantised on its way", input, gross, wide_operand, through_e4m3},
    Fault{"scale-narrowed", "a scale is rounded to bf16", input, fine, scale, narrowed},
};

}  // namespace

std::span<const Fault> input_faults() {
  return table;
}

}  // namespace dodona::oracle
