#include "quant/hopper/tensor_core.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>

#include "dodona/error.h"
#include "quant/hopper/special.h"

namespace dodona::quant::hopper {
namespace {

constexpr int smallest_normal = -126;  // exponent of fp32's smallest normal, and of its denormals

// Stand-ins for the exponents of zeros, and of infinities and NaN. The sum of any two exponents fits 16 bits, is below `absent_below` if
// one is `absent` and none `special`, and is far above all real ones if one is `special`.
constexpr std::int16_t absent = -8192;
constexpr std::int16_t special = 16000;
constexpr int absent_below = -4096;

[[noreturn]] void fail(ErrorCode code, const std::string& message) {
  throw Error(code, "hopper tensor core", "", message);
}

// --- Decoding -------------------------------------------------------------------------------------------------------------------

struct Format {
  DType type;
  int exponent_bits, mantissa_bits;
  bool has_infinity;
};
constexpr std::array<Format, 4> formats{{
    {DType::f8_e4m3, 4, 3, false},
    {DType::f8_e5m2, 5, 2, true},
    {DType::f16, 5, 10, true},
    {DType::bf16, 8, 7, true},
}};

std::size_t format_of(const MmaSpec& spec, DType type) {
  if (spec.products < 1 || spec.products > 32 || spec.addend_bits > 25 || spec.sum_bits > 23) {
    fail(ErrorCode::bad_value, "no model adds " + std::to_string(spec.products) + " products of " + std::to_string(spec.addend_bits) +
                                   " and " + std::to_string(spec.sum_bits) + " bits a step");
  }
  const auto is = [type](const Format& format) { return format.type == type; };
  const auto format = std::find_if(formats.begin(), formats.end(), is);
  if (format == formats.end() || std::find(spec.types.begin(), spec.types.end(), type) == spec.types.end()) {
    fail(ErrorCode::bad_dtype,
         "expected " + std::string(name(spec.types[0])) + " or " + std::string(name(spec.types[1])) + ", got " + std::string(name(type)));
  }
  return static_cast<std::size_t>(format - formats.begin());
}

/// Exponent and mantissa of a finite code of fewer than 32 bits, as they are: value = sign * mantissa * 2^(exponent - mantissa_bits).
Factor decode(const Format& format, MmaReading reading, std::uint32_t code) {
  const std::uint32_t largest_field = (1u << format.exponent_bits) - 1;
  const std::uint32_t mantissa = code & ((1u << format.mantissa_bits) - 1);
  const std::uint32_t field = code >> format.mantissa_bits & largest_field;
  const bool negative = (code >> (format.exponent_bits + format.mantissa_bits) & 1) != 0;
  const bool nan = field == largest_field && (format.has_infinity ? mantissa != 0 : mantissa == (1u << format.mantissa_bits) - 1);
  if (nan) return {canonical_nan(), 0};
  if (field == largest_field && format.has_infinity) {
    const float infinity = std::numeric_limits<float>::infinity();
    return {negative ? -infinity : infinity, 0};
  }
  const int bias = static_cast<int>(largest_field >> 1);
  int exponent = static_cast<int>(std::max(field, 1u)) - bias;
  const std::uint32_t significand = field == 0 ? mantissa : mantissa | 1u << format.mantissa_bits;
  const float magnitude = std::ldexp(static_cast<float>(significand), exponent - format.mantissa_bits);
  constexpr int smallest_normal_f16 = -14;
  if (reading == MmaReading::widened_to_f16 && significand != 0) exponent = std::max(std::ilogb(magnitude), smallest_normal_f16);
  return {negative ? -magnitude : magnitude, exponent};
}

/// All codes of an operand type, decoded: what the operands' constructors look up.
struct Decoder {
  std::vector<float> values;
  std::vector<std::int16_t> exponents;
};

Decoder make_decoder(const Format& format, MmaReading reading) {
  const std::uint32_t codes = 1u << bits(format.type);
  Decoder decoder{std::vector<float>(codes), std::vector<std::int16_t>(codes)};
  for (std::uint32_t code = 0; code < codes; ++code) {
    const Factor factor = decode(format, reading, code);
    decoder.values[code] = factor.value;
    decoder.exponents[code] = factor.value == 0             ? absent
                              : std::isfinite(factor.value) ? static_cast<std::int16_t>(factor.exponent)
                                                            : special;
  }
  return decoder;
}

/// Made when they are first asked for.
const Decoder& decoder_of(const MmaSpec& spec, DType type) {
  struct Entry {
    std::once_flag made;
    Decoder decoder;
  };
  static std::array<std::array<Entry, formats.size()>, 2> entries;
  const std::size_t format = format_of(spec, type);
  Entry& entry = entries[static_cast<std::size_t>(spec.reading)][format];
  std::call_once(entry.made, [&] { entry.decoder = make_decoder(formats[format], spec.reading); });
  return entry.decoder;
}

template <class Use>
void with_codes(DType type, const void* codes, Use use) {
  if (bits(type) == 8) {
    use(static_cast<const std::uint8_t*>(codes));
  } else {
    use(static_cast<const std::uint16_t*>(codes));
  }
}

/// Products that `widened_to_f16` deals to steps.
constexpr std::int64_t dealt = 32;

std::int64_t granule_of(const MmaSpec& spec) {
  return spec.reading == MmaReading::as_they_are ? spec.products : dealt;
}

/// Where element k goes, so that the products of a step lie side by side.
std::int64_t position_of(const MmaSpec& spec, std::int64_t k) {
  if (spec.reading == MmaReading::as_they_are) return k;
  return k / dealt * dealt + 16 * (k >> 1 & 1) + 2 * (k >> 2 & 7) + (k & 1);
}

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void check_extent(std::int64_t rows, std::int64_t k, std::int64_t row_stride) {
  if (rows < 0 || k < 0 || row_stride < 0) {
    fail(ErrorCode::bad_value, "expected sizes of at least 0, got [" + std::to_string(rows) + ", " + std::to_string(k) + "], row stride " +
                                   std::to_string(row_stride));
  }
}

// --- One step, 16 accumulators at once ------------------------------------------------------------------------------------------

/// The decoded factors of one step: a[products], b[products][mma_lanes].
struct Step {
  const float* a;
  const std::int16_t* a_exponents;
  const float* b;
  const std::int16_t* b_exponents;
};

void reference_step(const MmaSpec& spec, const Step& step, float* accumulators) {
  std::array<Factor, 32> a{}, b{};
  const std::size_t products = static_cast<std::size_t>(spec.products);
  for (std::size_t i = 0; i < products; ++i) a[i] = {step.a[i], step.a_exponents[i]};
  for (int lane = 0; lane < mma_lanes; ++lane) {
    for (std::size_t i = 0; i < products; ++i) {
      const std::size_t at = i * mma_lanes + static_cast<std::size_t>(lane);
      b[i] = {step.b[at], step.b_exponents[at]};
    }
    accumulators[lane] = mma_step(spec, {a.data(), products}, {b.data(), products}, accumulators[lane]);
  }
}

// Registers that every x86-64 and AArch64 CPU has. (Left to themselves, compilers vectorize these loops well at some optimization levels
// and badly at others.)
using Floats = float __attribute__((vector_size(16)));
using Ints = std::int32_t __attribute__((vector_size(16)));
using Shorts = std::int16_t __attribute__((vector_size(16)));

template <class Vector, class Element>
inline Vector load(const Element* from) {
  Vector to;
  std::memcpy(&to, from, sizeof to);
  return to;
}

/// The largest exponents of the products, 16 lanes.
template <int products>
inline void largest_exponents(const std::int16_t* a, const std::int16_t* b, std::int16_t* largest) {
  Shorts largest0 = Shorts{} + std::int16_t{2 * absent}, largest1 = largest0;
  for (int i = 0; i < products; ++i) {
    const Shorts exponent0 = load<Shorts>(b + i * mma_lanes) + a[i], exponent1 = load<Shorts>(b + i * mma_lanes + 8) + a[i];
    largest0 = exponent0 > largest0 ? exponent0 : largest0;
    largest1 = exponent1 > largest1 ? exponent1 : largest1;
  }
  std::memcpy(largest, &largest0, sizeof largest0);
  std::memcpy(largest + 8, &largest1, sizeof largest1);
}

/// sum = a * b * scale, each product cut to an integer, 8 lanes. A product is below 4 in units of the window, so `run` products of
/// addend_bits fit 32 bits if run * 2^(addend_bits + 2) is at most 2^31.
template <int products, int run>
inline void sum_products(const float* a, const float* b, const float* scale, double* sum) {
  const Floats scale0 = load<Floats>(scale), scale1 = load<Floats>(scale + 4);
  for (int begin = 0; begin < products; begin += run) {
    Ints sum0{}, sum1{};
    for (int i = begin; i < begin + run; ++i) {
      const Floats addend0 = load<Floats>(b + i * mma_lanes) * a[i] * scale0;
      const Floats addend1 = load<Floats>(b + i * mma_lanes + 4) * a[i] * scale1;
      sum0 += __builtin_convertvector(addend0, Ints);
      sum1 += __builtin_convertvector(addend1, Ints);
    }
    for (int lane = 0; lane < 4; ++lane) {
      sum[lane] = (begin == 0 ? 0.0 : sum[lane]) + static_cast<double>(sum0[lane]);
      sum[lane + 4] = (begin == 0 ? 0.0 : sum[lane + 4]) + static_cast<double>(sum1[lane]);
    }
  }
}

/// Exponents of the window within which fp32 holds products, scaled addends and results exactly (or too small to count): scales are at most
/// 2^125, products that fp32 rounds lie below the window's last bit, results lie between 2^-125 and 2^103.
constexpr int lowest_quick = -100, highest_quick = 96;

/// One step of all lanes. False, and nothing done, if a lane's window lies outside the quick range: that lane has an infinity, a NaN or
/// extreme exponents.
/// Addends are scaled so that the last bit of the window is 1; converting them to integers then cuts them toward zero.
template <int products, int run>
bool quick_step(const MmaSpec& spec, const Step& step, float* accumulators) {
  std::int16_t largest[mma_lanes];
  largest_exponents<products>(step.a_exponents, step.b_exponents, largest);

  std::int32_t window[mma_lanes], outside = 0;
  for (int lane = 0; lane < mma_lanes; ++lane) {
    const std::int32_t magnitude = std::bit_cast<std::int32_t>(accumulators[lane]) & 0x7FFFFFFF;
    const std::int32_t own = magnitude == 0 ? 2 * absent : std::max(magnitude >> 23, 1) - 127;
    const std::int32_t top = std::max<std::int32_t>(largest[lane], own);
    const std::int32_t too_high = top > highest_quick, too_low = top<lowest_quick, present = top> absent_below;
    outside |= too_high | (too_low & present);
    window[lane] = std::max(top, lowest_quick);
  }
  if (outside != 0) return false;

  float scale[mma_lanes];
  for (int lane = 0; lane < mma_lanes; ++lane) scale[lane] = std::bit_cast<float>((127 + spec.addend_bits - window[lane]) << 23);
  double sum[mma_lanes];
  for (int lane = 0; lane < mma_lanes; lane += 8) sum_products<products, run>(step.a, step.b + lane, scale + lane, sum + lane);

  // A mask cuts the total's mantissa.
  const std::uint64_t kept = ~((std::uint64_t{1} << (52 - spec.sum_bits)) - 1);
  for (int lane = 0; lane < mma_lanes; ++lane) {
    const std::int32_t carried = static_cast<std::int32_t>(accumulators[lane] * scale[lane]);
    const double total = sum[lane] + static_cast<double>(carried);
    const double cut = std::bit_cast<double>(std::bit_cast<std::uint64_t>(total) & kept);
    const float unit = std::bit_cast<float>((127 - spec.addend_bits + window[lane]) << 23);
    accumulators[lane] = static_cast<float>(cut * static_cast<double>(unit));
  }
  return true;
}

/// The quick steps that there are; of the first that fits. Other numbers of products go by the definition.
struct QuickStep {
  int products, most_bits;
  bool (*step)(const MmaSpec&, const Step&, float*);
};
constexpr QuickStep quick_steps[] = {
    {8, 25, quick_step<8, 8>}, {16, 25, quick_step<16, 16>}, {32, 24, quick_step<32, 32>}, {32, 25, quick_step<32, 16>}};

bool no_quick_step(const MmaSpec&, const Step&, float*) {
  return false;
}
auto quick_step_of(const MmaSpec& spec) {
  for (const QuickStep& quick : quick_steps)
    if (quick.products == spec.products && spec.addend_bits <= quick.most_bits) return quick.step;
  return no_quick_step;
}

}  // namespace

Factor decode_factor(const MmaSpec& spec, DType type, std::uint32_t code) {
  return decode(formats[format_of(spec, type)], spec.reading, code);
}

float mma_step(const MmaSpec& spec, std::span<const Factor> a, std::span<const Factor> b, float accumulator) {
  if (a.size() != b.size() || a.size() > 32) fail(ErrorCode::bad_value, "expected equally many factors, at most 32, on either side");
  double unusual = std::isfinite(accumulator) ? 0.0 : accumulator;  // what fp arithmetic makes of the infinities and NaN
  int largest = spec.lowest_exponent;
  if (accumulator != 0 && std::isfinite(accumulator)) largest = std::max({largest, smallest_normal, std::ilogb(accumulator)});
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double product = static_cast<double>(a[i].value) * b[i].value;
    if (!std::isfinite(product)) unusual += product;
    if (a[i].value != 0 && b[i].value != 0) largest = std::max(largest, a[i].exponent + b[i].exponent);
  }
  if (std::isnan(unusual)) return canonical_nan();
  if (std::isinf(unusual)) return static_cast<float>(unusual);

  const int unit = largest - spec.addend_bits;  // addends count in 2^unit
  double sum = std::trunc(std::ldexp(static_cast<double>(accumulator), -unit));
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::trunc(std::ldexp(static_cast<double>(a[i].value) * b[i].value, -unit));
  if (sum == 0) return 0.0f;
  constexpr int denormal_unit = -149;
  const int last_bit = std::max(std::ilogb(sum) + unit - spec.sum_bits, denormal_unit);  // the sum is cut to multiples of 2^last_bit
  const double cut = std::ldexp(std::trunc(std::ldexp(sum, unit - last_bit)), last_bit);
  const float infinity = std::numeric_limits<float>::infinity();
  if (std::fabs(cut) >= 0x1p128) return cut > 0 ? infinity : -infinity;
  return cut == 0 ? 0.0f : static_cast<float>(cut);
}

std::int64_t padded_k(const MmaSpec& spec, std::int64_t k) {
  return round_up(k, granule_of(spec));
}

template <class Number>
void decode_line(const MmaSpec& spec, DType type, const void* codes, std::int64_t k, Number* values, std::int16_t* exponents) {
  const Decoder& decoder = decoder_of(spec, type);
  with_codes(type, codes, [&](const auto* typed) {
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t at = position_of(spec, i);
      values[at] = decoder.values[typed[i]];
      exponents[at] = decoder.exponents[typed[i]];
    }
  });
}
template void decode_line(const MmaSpec&, DType, const void*, std::int64_t, double*, std::int16_t*);

MmaRows::MmaRows(const MmaSpec& spec, DType type, const void* codes, std::int64_t rows, std::int64_t k, std::int64_t row_stride)
    : spec_(spec), rows_(rows), k_(k), granule_(granule_of(spec)), padded_k_(0) {
  format_of(spec, type);  // refuses what the unit does not take
  check_extent(rows, k, row_stride);
  padded_k_ = padded_k(spec, k);
  values_.assign(static_cast<std::size_t>(rows * padded_k_), 0.0f);
  exponents_.assign(values_.size(), absent);
  for (std::int64_t row = 0; row < rows; ++row)
    decode_line(spec, type, static_cast<const std::byte*>(codes) + row * row_stride * bits(type) / 8, k, values_.data() + row * padded_k_,
                exponents_.data() + row * padded_k_);
}

MmaColumns::MmaColumns(const MmaSpec& spec, DType type, const void* codes, std::int64_t columns, std::int64_t k, std::int64_t row_stride)
    : spec_(spec), columns_(columns), k_(k), granule_(0), padded_k_(0) {
  const Decoder& decoder = decoder_of(spec, type);
  check_extent(columns, k, row_stride);
  granule_ = granule_of(spec);
  padded_k_ = padded_k(spec, k);
  values_.assign(static_cast<std::size_t>(panels() * padded_k_ * mma_lanes), 0.0f);
  exponents_.assign(values_.size(), absent);
  with_codes(type, codes, [&](const auto* typed) {
    for (std::int64_t panel = 0; panel < panels(); ++panel) {
      const std::int64_t first = panel * mma_lanes, count = std::min<std::int64_t>(mma_lanes, columns - first);
      for (std::int64_t i = 0; i < k; ++i) {
        const std::size_t at = static_cast<std::size_t>((panel * padded_k_ + position_of(spec, i)) * mma_lanes);
        for (std::int64_t lane = 0; lane < count; ++lane) {
          const std::size_t code = typed[(first + lane) * row_stride + i];
          values_[at + static_cast<std::size_t>(lane)] = decoder.values[code];
          exponents_[at + static_cast<std::size_t>(lane)] = decoder.exponents[code];
        }
      }
    }
  });
}

void accumulate(const MmaRows& a, std::int64_t row, const MmaColumns& b, std::int64_t panel, std::int64_t k_begin, std::int64_t k_end,
                std::span<float, mma_lanes> accumulators) {
  if (a.spec_ != b.spec_ || a.k_ != b.k_ || a.granule_ != b.granule_) fail(ErrorCode::bad_value, "the operands do not fit together");
  if (row < 0 || row >= a.rows_ || panel < 0 || panel >= b.panels()) {
    fail(ErrorCode::bad_value, "no row " + std::to_string(row) + " or panel " + std::to_string(panel));
  }
  if (k_begin < 0 || k_begin > k_end || k_end > a.k_ || k_begin % a.granule_ != 0 || (k_end % a.granule_ != 0 && k_end != a.k_)) {
    fail(ErrorCode::bad_value, "expected a range of K at multiples of " + std::to_string(a.granule_) + " up to " + std::to_string(a.k_) +
                                   ", got " + std::to_string(k_begin) + " to " + std::to_string(k_end));
  }
  const std::int64_t products = a.spec_.products, last = round_up(k_end, a.granule_);
  const auto quick_step = quick_step_of(a.spec_);
  for (std::int64_t i = k_begin; i < last; i += products) {
    const std::int64_t at_a = row * a.padded_k_ + i, at_b = (panel * a.padded_k_ + i) * mma_lanes;
    const Step step{a.values_.data() + at_a, a.exponents_.data() + at_a, b.values_.data() + at_b, b.exponents_.data() + at_b};
    if (!quick_step(a.spec_, step, accumulators.data())) reference_step(a.spec_, step, accumulators.data());
  }
}

void accumulate(const MmaRows& a, const MmaColumns& b, std::int64_t k_begin, std::int64_t k_end, float* c, std::int64_t c_stride) {
  for (std::int64_t panel = 0; panel < b.panels(); ++panel) {
    const std::int64_t first = panel * mma_lanes, count = std::min<std::int64_t>(mma_lanes, b.columns() - first);
    for (std::int64_t row = 0; row < a.rows(); ++row) {
      float* out = c + row * c_stride + first;
      std::array<float, mma_lanes> lanes{};
      std::copy_n(out, count, lanes.begin());
      accumulate(a, row, b, panel, k_begin, k_end, lanes);
      std::copy_n(lanes.begin(), count, out);
    }
  }
}

void accumulate_i8(const std::int8_t* a, const std::int8_t* b, std::int64_t k, std::int64_t n, std::int64_t b_stride, std::int32_t* c) {
  for (std::int64_t j = 0; j < n; ++j) {
    std::uint32_t sum = static_cast<std::uint32_t>(c[j]);
    for (std::int64_t i = 0; i < k; ++i) sum += static_cast<std::uint32_t>(a[i] * b[j * b_stride + i]);
    c[j] = static_cast<std::int32_t>(sum);
  }
}

}  // namespace dodona::quant::hopper
