// Faults in what a kernel works on: operands and attributes. The op is computed anew with them.
#include <array>

#include "oracle/fault_tools.h"
#include "quant/swizzle.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;
using Site = const FaultSite&;
using To = const Tensor&;

// ---- which inputs

bool real(Site s) {
  return is_real(s.tensor.dtype());
}
/// Plain numbers, to be multiplied or added.
bool operand(Site s) {
  return real(s) && (s.spec->role == Role::values || s.spec->role == Role::weight || s.spec->role == Role::logits);
}
/// Operands, and bytes that hold them.
bool stored(Site s) {
  return operand(s) || ((s.tensor.dtype() == DType::u8 || s.tensor.dtype() == DType::i8) && s.spec->role == Role::values);
}
bool packed_bytes(Site s) {
  return stored(s) && (s.tensor.dtype() == DType::u8 || s.tensor.dtype() == DType::i8);
}
bool operand_rows(Site s) {
  return stored(s) && s.tensor.rank() >= 2 && Rows(s.tensor).count >= 2;
}
bool operand_tile(Site s) {
  return stored(s) && Rows(s.tensor).width >= 32;
}
bool operand_halves(Site s) {
  return stored(s) && Rows(s.tensor).width >= 2 && Rows(s.tensor).width % 2 == 0;
}
bool real_tile(Site s) {
  return operand(s) && operand_tile(s);
}
bool wide_operand(Site s) {
  return operand(s) && !is_code(s.tensor.dtype());
}
bool operand_above_bf16(Site s) {
  return wide_operand(s) && s.tensor.dtype() != DType::bf16;
}
bool eight_bit_float(Site s) {
  return s.tensor.dtype() == DType::f8_e4m3 || s.tensor.dtype() == DType::f8_e5m2;
}
bool weight(Site s) {
  return s.spec->role == Role::weight;
}
bool scale(Site s) {
  return s.spec->role == Role::scale && real(s);
}
bool scales(Site s) {
  return scale(s) && s.tensor.elements() >= 2;
}
bool scale_matrix(Site s) {
  return scale(s) && s.tensor.rank() == 2 && s.tensor.size(0) >= 2 && s.tensor.size(1) >= 2;
}
bool swizzled_scales(Site s) {
  return scale_matrix(s) && s.tensor.dtype() == DType::f8_e4m3 && s.tensor.size(0) % 128 == 0 && s.tensor.size(1) % 4 == 0;
}
bool lengths(Site s) {
  return is_whole(s.tensor.dtype()) && (s.spec->role == Role::values || s.spec->role == Role::indptr);
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
bool expert(Site s) {
  return s.spec->role == Role::expert_ids && s.tensor.elements() >= 2;
}
bool logarithm(Site s) {
  return s.spec->role == Role::lse_base_2 || s.spec->role == Role::lse_base_e;
}
/// The next input of the same type and shape.
const Tensor* twin_of(Site s) {
  bool behind = false;
  for (const TensorSpec& spec : s.call.op.schema().tensors) {
    const Tensor* other = s.call.inputs.find(spec.name);
    if (spec.name == s.name) {
      behind = true;
    } else if (behind && spec.direction != Direction::out && other != nullptr && other->dtype() == s.tensor.dtype() &&
               other->shape() == s.tensor.shape()) {
      return other;
    }
  }
  return nullptr;
}
bool has_twin(Site s) {
  return twin_of(s) != nullptr;
}

// ---- values

void ignored(Site, To t) {
  each(t, [](double, std::int64_t) { return 0.0; });
}
void ones(Site, To t) {
  each(t, [](double, std::int64_t) { return 1.0; });
}
void doubled(Site, To t) {
  each(t, [](double x, std::int64_t) { return 2 * x; });
}
void inverted(Site, To t) {
  each(t, [](double x, std::int64_t) { return x != 0 ? 1 / x : x; });
}
void power_of_two(Site, To t) {
  each(t, [](double x, std::int64_t) { return x > 0 ? std::exp2(std::ceil(std::log2(x))) : x; });
}
void narrowed(Site, To t) {
  each(t, [](double x, std::int64_t) { return through(DType::bf16, x); });
}
void through_e4m3(Site, To t) {
  each(t, [](double x, std::int64_t) { return through(DType::f8_e4m3, std::clamp(x, -448.0, 448.0)); });
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
  each(t, [](double x, std::int64_t) { return std::fabs(x); });
}

// ---- places

void rows_off_by_one(Site s, To t) {
  gather_rows(s.tensor, t, [](const Rows& r, std::int64_t row, std::int64_t c) { return r.at((row + 1) % r.count, c); });
}
void elements_off_by_one(Site s, To t) {
  gather(s.tensor, t, [&](std::int64_t i) { return (i + 1) % s.tensor.elements(); });
}
void first_row_everywhere(Site s, To t) {
  gather_rows(s.tensor, t, [](const Rows& r, std::int64_t, std::int64_t c) { return r.at(0, c); });
}
void last_tile_dropped(Site, To t) {
  clear(t, [](const Rows& r, std::int64_t, std::int64_t c) { return c >= r.width - 16; });
}
void last_element_dropped(Site, To t) {
  clear(t, [](const Rows& r, std::int64_t, std::int64_t c) { return c == r.width - 1; });
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
void interleaved(Site s, To t) {
  gather_rows(s.tensor, t, [](const Rows& r, std::int64_t row, std::int64_t c) { return r.at(row, c % 2 * (r.width / 2) + c / 2); });
}
void twin_read(Site s, To t) {
  copy(*twin_of(s), t);
}
void other_logarithm(Site s, To t) {
  const double factor = s.spec->role == Role::lse_base_2 ? 0.6931471805599453 : 1.4426950408889634;
  each(t, [&](double x, std::int64_t) { return x * factor; });
}

void transposed(Site s, To t) {
  const std::int64_t rows = s.tensor.size(0), columns = s.tensor.size(1);
  gather(s.tensor, t, [&](std::int64_t i) { return i % rows * columns + i / rows; });
}
void read_row_by_row(Site s, To t) {
  const std::int64_t columns = s.tensor.size(1);
  gather(s.tensor, t,
         [&](std::int64_t i) { return quant::scale_offset(quant::ScaleLayout::swizzled_128x4, i / columns, i % columns, columns); });
}
void nibbles_exchanged(Site, To t) {
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const std::uint64_t byte = quant::get_bits(t, i) & 0xFF;
    quant::set_bits(t, i, (byte >> 4 | byte << 4) & 0xFF);
  }
}

// ---- positions, indices, ids; nothing may leave the range that the tensor has

double largest(To t) {
  double most = 0;
  for (std::int64_t i = 0; i < t.elements(); ++i) most = std::max(most, quant::get(t, i));
  return most;
}
void one_more(Site, To t) {
  const double most = largest(t);
  each(t, [&](double x, std::int64_t) { return x < most ? x + 1 : std::max(0.0, x - 1); });
}
void length_less(Site, To t) {
  each(t, [](double x, std::int64_t) { return x > 0 ? x - 1 : x; });
}
void length_more(Site, To t) {
  each(t, [](double x, std::int64_t) { return x + 1; });
}
void all_zero(Site, To t) {
  each(t, [](double, std::int64_t) { return 0.0; });
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

constexpr Strikes in = Strikes::input;
constexpr Severity gross = Severity::gross, fine = Severity::fine;

constexpr std::array table{
    Fault{"operand-ignored", "an operand counts as zero", in, gross, stored, ignored},
    Fault{"weight-ignored", "a weight counts as one", in, gross, weight, ones},
    Fault{"scale-ignored", "a scale counts as one", in, gross, scale, ones},
    Fault{"scale-doubled", "a scale is twice what it should be", in, gross, scale, doubled},
    Fault{"scale-inverted", "a scale divides where it should multiply", in, gross, scale, inverted},
    Fault{"scale-power-of-two", "a scale is rounded up to a power of two", in, gross, scale, power_of_two},
    Fault{"scale-narrowed", "a scale is rounded to bf16", in, fine, scale, narrowed},
    Fault{"scale-off-by-one", "each scale is the next one", in, gross, scales, elements_off_by_one},
    Fault{"scales-transposed", "a matrix of scales is read column by column", in, gross, scale_matrix, transposed},
    Fault{"scales-read-row-by-row", "tiles of 128 x 4 scales are read as if they were not swizzled", in, gross, swizzled_scales,
          read_row_by_row},
    Fault{"operand-rows-off-by-one", "each row of an operand is the next one", in, gross, operand_rows, rows_off_by_one},
    Fault{"operand-row-broadcast", "every row of an operand is the first", in, gross, operand_rows, first_row_everywhere},
    Fault{"k-tile-dropped", "the last 16 columns of an operand are not added", in, gross, operand_tile, last_tile_dropped},
    Fault{"k-tile-doubled", "the last 16 columns of an operand are added twice", in, gross, real_tile, last_tile_doubled},
    Fault{"k-tail-dropped", "the last column of an operand is not added", in, fine, operand_tile, last_element_dropped},
    Fault{"operand-halves-exchanged", "the halves of an operand's rows are exchanged: gate and up, rope pairs", in, gross, operand_halves,
          halves_exchanged},
    Fault{"operand-neighbours-exchanged", "neighbouring elements of an operand are exchanged: nibbles, rope pairs", in, gross,
          operand_halves, neighbours_exchanged},
    Fault{"nibbles-exchanged", "the two codes of each byte are exchanged", in, gross, packed_bytes, nibbles_exchanged},
    Fault{"operand-through-e4m3", "an operand is quantised on its way", in, gross, wide_operand, through_e4m3},
    Fault{"operand-narrowed", "an operand is rounded to bf16", in, fine, operand_above_bf16, narrowed},
    Fault{"operand-sign-lost", "an operand's absolute values", in, gross, operand, sign_lost},
    Fault{"other-fp8-format", "codes read as the other 8-bit format", in, gross, eight_bit_float, other_format},
    Fault{"twin-read", "the next operand of the same shape is read in place of this one", in, gross, has_twin, twin_read},
    Fault{"cos-and-sin-exchanged", "cosines and sines are exchanged", in, gross, cos_sin, halves_exchanged},
    Fault{"sine-negated", "rotation the other way", in, gross, cos_sin, second_half_negated},
    Fault{"cos-sin-interleaved", "the table is read as pairs of cosine and sine", in, gross, cos_sin, interleaved},
    Fault{"position-off-by-one", "every position is the next one", in, gross, position, one_more},
    Fault{"position-ignored", "every position is the first", in, gross, position, all_zero},
    Fault{"index-off-by-one", "every index is the next one", in, gross, index, one_more},
    Fault{"one-wrong-index", "one index is off by one", in, gross, index, one_wrong},
    Fault{"index-ignored", "rows in order, not by index", in, gross, index, in_order},
    Fault{"expert-off-by-one", "every expert is the next one", in, gross, expert, one_more},
    Fault{"expert-missed", "one choice goes to a neighbouring expert", in, gross, expert, one_wrong},
    Fault{"expert-duplicated", "the first choice counts for the second too", in, gross, expert, duplicated},
    Fault{"length-one-less", "every length or offset is one too small: a mask off by one", in, gross, lengths, length_less},
    Fault{"length-one-more", "every length or offset is one too large", in, gross, lengths, length_more},
    Fault{"logarithm-misread", "a log-sum-exp taken for one in the other base", in, gross, logarithm, other_logarithm},
};

// ---- attributes

bool flag(Site s) {
  return std::holds_alternative<bool>(s.value);
}
bool choice(Site s) {
  return std::holds_alternative<std::string>(s.value) && s.attr->choices.size() >= 2;
}
bool number(Site s) {
  return std::holds_alternative<double>(s.value) && std::get<double>(s.value) != 0;
}
bool count(Site s) {
  return std::holds_alternative<std::int64_t>(s.value);
}
bool even_count(Site s) {
  return count(s) && std::get<std::int64_t>(s.value) >= 2;
}

AttrValue flipped(Site s) {
  return !std::get<bool>(s.value);
}
AttrValue other_choice(Site s) {
  const auto& choices = s.attr->choices;
  const auto at = std::find(choices.begin(), choices.end(), std::get<std::string>(s.value));
  return at + 1 < choices.end() ? *(at + 1) : choices.front();
}
AttrValue times(Site s, double factor) {
  return std::get<double>(s.value) * factor;
}
AttrValue none(Site s) {
  return times(s, 0);
}
AttrValue tenfold(Site s) {
  return times(s, 10);
}
AttrValue twice(Site s) {
  return times(s, std::get<double>(s.value));
}
AttrValue of_other_width(Site s) {
  return times(s, std::sqrt(192.0 / 576.0));
}
AttrValue plus(Site s, std::int64_t step) {
  return std::get<std::int64_t>(s.value) + step;
}
AttrValue one_less(Site s) {
  return plus(s, -1);
}
AttrValue one_greater(Site s) {
  return plus(s, 1);
}
AttrValue half(Site s) {
  return std::get<std::int64_t>(s.value) / 2;
}

constexpr Strikes attribute = Strikes::attribute;

constexpr std::array attribute_table{
    Fault{"flag-flipped", "a flag is taken for its opposite: pairing, renormalization, scaling on the output", attribute, gross, flag,
          nullptr, flipped},
    Fault{"other-recipe", "the rounding points or orders of another upstream", attribute, fine, choice, nullptr, other_choice},
    Fault{"constant-dropped", "a constant counts as zero", attribute, fine, number, nullptr, none},
    Fault{"constant-tenfold", "a constant is ten times too large", attribute, fine, number, nullptr, tenfold},
    Fault{"constant-twice", "a factor is applied twice", attribute, fine, number, nullptr, twice},
    Fault{"constant-of-other-width", "a scale made from 576 columns in place of 192", attribute, fine, number, nullptr, of_other_width},
    Fault{"count-one-less", "a count is one too small", attribute, fine, count, nullptr, one_less},
    Fault{"count-one-more", "a count is one too large", attribute, fine, count, nullptr, one_greater},
    Fault{"count-halved", "a count is half of what it should be", attribute, fine, even_count, nullptr, half},
};

}  // namespace

std::span<const Fault> input_faults() {
  return table;
}

std::span<const Fault> attribute_faults() {
  return attribute_table;
}

}  // namespace dodona::oracle
