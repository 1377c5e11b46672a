#include "ops/tiles/mma/mma.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>

#include "dodona/error.h"
#include "quant/hopper/special.h"
#include "quant/tensor_core/decode.h"
#include "quant/tensor_core/step.h"

namespace dodona::ops {
namespace {

namespace tc = quant::tensor_core;
using tc::MmaSpec;

[[noreturn]] void fail(ErrorCode code, const std::string& message) {
  throw Error(code, "tensor core", "", message);
}

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// ---- decoding

/// How lines of a type are read; `lines` is 0, and nothing is said of memory.
MmaDecode reading_of(const MmaSpec& spec, DType type, std::int64_t k) {
  static const auto dealt = [] {
    std::array<std::uint8_t, mma_room> places{};
    for (std::size_t i = 0; i < places.size(); ++i)
      places[i] = static_cast<std::uint8_t>(tc::position_of(tc::fp8_mma_sync, static_cast<std::int64_t>(i)));
    return places;
  }();
  constexpr std::uint32_t smallest = 1;
  return {.type = type,
          .k = k,
          .room = round_up(tc::padded_k(spec, k), mma_room),
          .lowest_exponent = tc::decode_factor(spec, type, smallest).exponent,  // refuses what the unit does not take
          .places = spec.reading == tc::MmaReading::as_they_are ? nullptr : dealt.data()};
}

void make_room(MmaFactors& factors, std::int64_t numbers) {
  const auto size = static_cast<std::size_t>(numbers);
  if (size <= factors.room) return;
  factors.values = std::make_unique_for_overwrite<float[]>(size);
  factors.exponents = std::make_unique_for_overwrite<std::int16_t[]>(size);
  factors.room = size;
}

constexpr std::uint8_t ue8m0_nan = 0xFF;

/// Exponents of scales, [lines, room / products]; of panels of `width` lines, [room / products][width] each.
std::vector<std::int32_t> exponents_of(const MmaSpec& spec, const MmaScales& scales, std::int64_t lines, std::int64_t k, std::int64_t room,
                                       std::int64_t width) {
  if (scales.codes == nullptr) return {};
  if (mma_room % spec.products != 0 || spec.reading != tc::MmaReading::as_they_are)
    fail(ErrorCode::bad_value, "no model has scales for steps of " + std::to_string(spec.products) + " products");
  const std::int64_t steps = room / spec.products, used = round_up(k, spec.products) / spec.products;
  std::vector<std::int32_t> exponents(static_cast<std::size_t>(round_up(lines, width) * steps));
  for (std::int64_t line = 0; line < lines; ++line)
    for (std::int64_t step = 0; step < used; ++step) {
      const std::uint8_t code = scales.codes[line * scales.stride + step];
      const std::int64_t at = (line / width * steps + step) * width + line % width;
      exponents[static_cast<std::size_t>(at)] = code == ue8m0_nan ? mma_nan_exponent : code - tc::ue8m0_one;
    }
  return exponents;
}

void check_extent(std::int64_t lines, std::int64_t k, std::int64_t stride) {
  if (lines < 0 || k < 0 || stride < 0) {
    fail(ErrorCode::bad_value, "expected sizes of at least 0, got [" + std::to_string(lines) + ", " + std::to_string(k) + "], row stride " +
                                   std::to_string(stride));
  }
}

/// A small float has no vector code of its own: its few codes are looked up. Lines `stride` apart, numbers of panels of `width` lines.
MmaFactors small_factors(const MmaSpec& spec, tc::SmallFloat type, const std::uint8_t* codes, std::int64_t stride, std::int64_t lines,
                         std::int64_t k, std::int64_t room, std::int64_t width) {
  if (spec.products % 2 != 0 || spec.products > mma_room || spec.reading != tc::MmaReading::as_they_are)
    fail(ErrorCode::bad_value, "no model takes small floats in steps of " + std::to_string(spec.products) + " products");
  constexpr int bias = 127;
  std::array<float, 256> values{};
  std::array<std::int16_t, 256> exponents{};
  for (std::uint32_t code = 0; code < values.size(); ++code) {
    const tc::Factor factor = tc::decode_factor(type, code);
    values[code] = factor.value;
    exponents[code] = factor.value == 0              ? tc::absent
                      : !std::isfinite(factor.value) ? tc::special
                                                     : static_cast<std::int16_t>(factor.exponent + bias);
  }
  const std::int64_t numbers = round_up(lines, width) * room;
  MmaFactors factors;
  make_room(factors, numbers);
  std::fill_n(factors.values.get(), numbers, 0.0f);
  std::fill_n(factors.exponents.get(), numbers, tc::absent);
  for (std::int64_t line = 0; line < lines; ++line)
    for (std::int64_t i = 0; i < k; ++i) {
      const std::uint8_t code = codes[line * stride + i];
      const std::int64_t panel = line / width * width * room, lane = line % width;
      factors.values[static_cast<std::size_t>(panel + i * width + lane)] = values[code];
      // Of a panel two neighbours along K lie side by side; so they do in a row.
      const std::int64_t pair = width == 1 ? i : (i / 2 * width + lane) * 2 + i % 2;
      factors.exponents[static_cast<std::size_t>(panel + pair)] = exponents[code];
    }
  return factors;
}

// ---- steps

const MmaSpec& spec_of(const MmaSums& sums) {
  return *static_cast<const MmaSpec*>(sums.spec);
}

/// The ue8m0 code of a scale.
std::uint8_t scale_code(const std::int32_t* exponents, std::int64_t at) {
  return exponents[at] == mma_nan_exponent ? ue8m0_nan : static_cast<std::uint8_t>(exponents[at] + tc::ue8m0_one);
}

/// What a sum is after a step without which the vectors were right; nothing where they were.
std::optional<float> without_step(float sum, int largest) {
  constexpr int beyond_finite = 1024;
  if (!std::isfinite(sum) && largest < beyond_finite) return std::isnan(sum) ? quant::hopper::canonical_nan() : sum;
  if (sum == 0 && largest < tc::absent_below) return 0.0f;
  return std::nullopt;
}

void mend(const MmaSums& sums, std::int64_t row, std::int64_t panel, std::int64_t k, const float* before, float* after, bool all) {
  constexpr int bias = 127;
  const auto products = static_cast<std::size_t>(sums.products);
  std::array<tc::Factor, 32> a{}, b{};
  for (std::size_t i = 0; i < products; ++i) {
    const std::int64_t at = row * sums.a_room + k + static_cast<std::int64_t>(i);
    a[i] = {sums.a[at], sums.a_exponents[at] - bias};
  }
  const bool scaled = sums.a_scales != nullptr;
  const std::int64_t step = k / sums.products, a_step = row * (sums.a_room / sums.products) + step,
                     b_step = panel * (sums.b_room / sums.products) + step;
  for (int lane = 0; lane < mma_lanes; ++lane) {
    int largest = 2 * tc::absent;
    for (std::size_t i = 0; i < products; ++i) {
      const std::int64_t line = panel * sums.b_room + k + static_cast<std::int64_t>(i);
      b[i] = {sums.b[line * mma_lanes + lane], sums.b_exponents[(line / 2 * mma_lanes + lane) * 2 + line % 2] - bias};
      largest = std::max(largest, a[i].exponent + b[i].exponent);
    }
    const std::int64_t b_scale = b_step * mma_lanes + lane;
    if (scaled) largest += sums.a_scales[a_step] + sums.b_scales[b_scale];
    if (const auto known = without_step(before[lane], largest)) {
      after[lane] = *known;
      continue;
    }
    constexpr int smallest_normal = -126;
    const int own = before[lane] == 0             ? tc::absent
                    : std::isfinite(before[lane]) ? std::max(std::ilogb(before[lane]), smallest_normal)
                                                  : tc::special;
    const int window = std::max(largest, own);
    if (!all && window >= lowest_quick && window <= highest_quick) continue;
    after[lane] = tc::mma_step(spec_of(sums), {a.data(), products}, {b.data(), products}, before[lane],
                               scaled ? scale_code(sums.a_scales, a_step) : tc::ue8m0_one,
                               scaled ? scale_code(sums.b_scales, b_scale) : tc::ue8m0_one);
  }
}

/// For units whose steps vectors do not take.
void add_by_definition(const MmaSums& sums) {
  for (std::int64_t row = 0; row < sums.rows; ++row)
    for (std::int64_t first = 0; first < sums.columns; first += mma_lanes) {
      std::array<float, mma_lanes> before{}, after{};
      float* const c = sums.c + row * sums.c_stride + first;
      const std::int64_t count = std::min<std::int64_t>(mma_lanes, sums.columns - first);
      std::copy_n(c, count, after.begin());
      for (std::int64_t k = 0; k < sums.k; k += sums.products) {
        before = after;
        mend(sums, row, first / mma_lanes, k, before.data(), after.data(), true);
      }
      std::copy_n(after.begin(), count, c);
    }
}

}  // namespace

MmaRows::MmaRows(const MmaSpec& spec, DType type, const void* codes, std::int64_t rows, std::int64_t k, std::int64_t row_stride, Isa isa,
                 const MmaScales& scales)
    : MmaRows(isa) {
  decode(spec, type, codes, rows, k, row_stride);
  factors_.scales = exponents_of(spec, scales, rows, k, room_, 1);
}

void MmaRows::decode(const MmaSpec& spec, DType type, const void* codes, std::int64_t rows, std::int64_t k, std::int64_t row_stride) {
  MmaDecode decode = reading_of(spec, type, k);
  check_extent(rows, k, row_stride);
  spec_ = spec;
  rows_ = rows;
  k_ = k;
  granule_ = tc::granule_of(spec);
  room_ = decode.room;
  make_room(factors_, rows * room_);
  factors_.scales.clear();
  decode.codes = static_cast<const std::byte*>(codes);
  decode.stride = row_stride * bits(type) / 8;
  decode.lines = rows;
  decode.values = factors_.values.get();
  decode.exponents = factors_.exponents.get();
  dispatch<MmaRowsKernel>(isa_, decode);
}

MmaRows::MmaRows(const MmaSpec& spec, tc::SmallFloat type, const std::uint8_t* codes, std::int64_t rows, std::int64_t k,
                 std::int64_t row_stride, Isa isa, const MmaScales& scales)
    : spec_(spec), rows_(rows), k_(k), granule_(tc::granule_of(spec)), room_(round_up(tc::padded_k(spec, k), mma_room)), isa_(isa) {
  check_extent(rows, k, row_stride);
  factors_ = small_factors(spec, type, codes, row_stride, rows, k, room_, 1);
  factors_.scales = exponents_of(spec, scales, rows, k, room_, 1);
}

MmaColumns::MmaColumns(const MmaSpec& spec, DType type, const void* codes, std::int64_t columns, std::int64_t k, std::int64_t row_stride,
                       Isa isa, const MmaScales& scales)
    : MmaColumns(isa) {
  decode(spec, type, codes, columns, k, row_stride);
  factors_.scales = exponents_of(spec, scales, columns, k, room_, mma_lanes);
}

void MmaColumns::decode(const MmaSpec& spec, DType type, const void* codes, std::int64_t columns, std::int64_t k, std::int64_t row_stride) {
  MmaDecode decode = reading_of(spec, type, k);
  check_extent(columns, k, row_stride);
  spec_ = spec;
  columns_ = columns;
  k_ = k;
  room_ = decode.room;
  make_room(factors_, round_up(columns, mma_lanes) * room_);
  factors_.scales.clear();
  decode.stride = row_stride * bits(type) / 8;
  for (std::int64_t first = 0; first < columns; first += mma_lanes) {
    decode.codes = static_cast<const std::byte*>(codes) + first * decode.stride;
    decode.lines = std::min<std::int64_t>(mma_lanes, columns - first);
    decode.values = factors_.values.get() + first * room_;
    decode.exponents = factors_.exponents.get() + first * room_;
    dispatch<MmaPanelKernel>(isa_, decode);
  }
}

MmaColumns::MmaColumns(const MmaSpec& spec, tc::SmallFloat type, const std::uint8_t* codes, std::int64_t columns, std::int64_t k,
                       std::int64_t row_stride, Isa isa, const MmaScales& scales)
    : spec_(spec), columns_(columns), k_(k), room_(round_up(tc::padded_k(spec, k), mma_room)), isa_(isa) {
  check_extent(columns, k, row_stride);
  factors_ = small_factors(spec, type, codes, row_stride, columns, k, room_, mma_lanes);
  factors_.scales = exponents_of(spec, scales, columns, k, room_, mma_lanes);
}

void accumulate(const MmaRows& a, const MmaColumns& b, std::int64_t k_begin, std::int64_t k_end, float* c, std::int64_t c_stride) {
  const bool scaled = !a.factors_.scales.empty(), some = a.rows_ > 0 && b.columns_ > 0 && a.k_ > 0;
  if (a.spec_ != b.spec_ || a.k_ != b.k_ || (some && scaled == b.factors_.scales.empty()))
    fail(ErrorCode::bad_value, "the operands do not fit together");
  if (k_begin < 0 || k_begin > k_end || k_end > a.k_ || k_begin % a.granule_ != 0 || (k_end % a.granule_ != 0 && k_end != a.k_)) {
    fail(ErrorCode::bad_value, "expected a range of K at multiples of " + std::to_string(a.granule_) + " up to " + std::to_string(a.k_) +
                                   ", got " + std::to_string(k_begin) + " to " + std::to_string(k_end));
  }
  const MmaSpec& spec = a.spec_;
  constexpr int bits_of_a_run = 29;  // a product is below 4 in units of the window
  const MmaSums sums{.products = spec.products,
                     .run = std::min(spec.products, 1 << (bits_of_a_run - spec.addend_bits)),
                     .addend_bits = spec.addend_bits,
                     .kept = -(1 << (23 - spec.sum_bits)),
                     .a = a.factors_.values.get() + k_begin,
                     .a_exponents = a.factors_.exponents.get() + k_begin,
                     .b = b.factors_.values.get() + k_begin * mma_lanes,
                     .b_exponents = b.factors_.exponents.get() + k_begin * mma_lanes,
                     .a_scales = scaled ? a.factors_.scales.data() + k_begin / spec.products : nullptr,
                     .b_scales = scaled ? b.factors_.scales.data() + k_begin / spec.products * mma_lanes : nullptr,
                     .a_room = a.room_,
                     .b_room = b.room_,
                     .rows = a.rows_,
                     .columns = b.columns_,
                     .k = round_up(k_end - k_begin, a.granule_),
                     .c = c,
                     .c_stride = c_stride,
                     .mend = mend,
                     .spec = &spec};
  if (spec.products % 2 != 0 || spec.lowest_exponent > lowest_quick) return add_by_definition(sums);
  dispatch<MmaSumsKernel>(a.isa_, sums);
}

void accumulate_i8(const std::int8_t* a, const std::int8_t* b, std::int64_t k, std::int64_t n, std::int64_t b_stride, std::int32_t* c) {
  for (std::int64_t j = 0; j < n; ++j) {
    std::uint32_t sum = static_cast<std::uint32_t>(c[j]);
    for (std::int64_t i = 0; i < k; ++i) sum += static_cast<std::uint32_t>(a[i] * b[j * b_stride + i]);
    c[j] = static_cast<std::int32_t>(sum);
  }
}

}  // namespace dodona::ops
