#include "quant/tensor_core/decode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <string>

#include "dodona/error.h"
#include "quant/hopper/special.h"

namespace dodona::quant::tensor_core {
namespace {

[[noreturn]] void fail(ErrorCode code, const std::string& message) {
  throw Error(code, "tensor core", "", message);
}

/// What the codes of the largest exponent are.
enum class Top { numbers, numbers_and_nan, infinity_and_nan };
struct Format {
  int exponent_bits, mantissa_bits;
  Top top;
};
constexpr Format e4m3{4, 3, Top::numbers_and_nan}, e5m2{5, 2, Top::infinity_and_nan}, f16{5, 10, Top::infinity_and_nan},
    bf16{8, 7, Top::infinity_and_nan}, tf32{8, 10, Top::infinity_and_nan}, e3m2{3, 2, Top::numbers}, e2m3{2, 3, Top::numbers},
    e2m1{2, 1, Top::numbers};
/// By SmallFloat.
constexpr std::array<Format, 5> small_floats{e4m3, e5m2, e3m2, e2m3, e2m1};

struct TypeFormat {
  DType type;
  Format format;
  int dropped_bits = 0;  ///< low ones of the type's codes that are not read
};
constexpr std::array<TypeFormat, 5> formats{
    {{DType::f8_e4m3, e4m3}, {DType::f8_e5m2, e5m2}, {DType::f16, f16}, {DType::bf16, bf16}, {DType::f32, tf32, 13}}};

std::size_t format_of(const MmaSpec& spec, DType type) {
  if (spec.products < 1 || spec.products > 32 || spec.addend_bits > 25 || spec.sum_bits > 23) {
    fail(ErrorCode::bad_value, "no model adds " + std::to_string(spec.products) + " products of " + std::to_string(spec.addend_bits) +
                                   " and " + std::to_string(spec.sum_bits) + " bits a step");
  }
  const auto is = [type](const TypeFormat& format) { return format.type == type; };
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
  if (field == largest_field && format.top == Top::infinity_and_nan) {
    const float infinity = std::numeric_limits<float>::infinity();
    return {mantissa != 0 ? hopper::canonical_nan() : negative ? -infinity : infinity, 0};
  }
  if (field == largest_field && format.top == Top::numbers_and_nan && mantissa == (1u << format.mantissa_bits) - 1)
    return {hopper::canonical_nan(), 0};
  const int bias = static_cast<int>(largest_field >> 1);
  int exponent = static_cast<int>(std::max(field, 1u)) - bias;
  const std::uint32_t significand = field == 0 ? mantissa : mantissa | 1u << format.mantissa_bits;
  const float magnitude = std::ldexp(static_cast<float>(significand), exponent - format.mantissa_bits);
  constexpr int smallest_normal_f16 = -14;
  if (reading == MmaReading::widened_to_f16 && significand != 0) exponent = std::max(std::ilogb(magnitude), smallest_normal_f16);
  return {negative ? -magnitude : magnitude, exponent};
}

Decoder make_decoder(const Format& format, MmaReading reading) {
  const std::uint32_t codes = 1u << (1 + format.exponent_bits + format.mantissa_bits);
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

/// Products that `widened_to_f16` and `dealt` deal to steps.
constexpr std::int64_t dealt = 32;

}  // namespace

const Decoder& decoder_of(const MmaSpec& spec, DType type) {
  struct Entry {
    std::once_flag made;
    Decoder decoder;
  };
  static std::array<std::array<Entry, formats.size()>, 3> entries;  // by MmaReading
  const std::size_t format = format_of(spec, type);
  Entry& entry = entries[static_cast<std::size_t>(spec.reading)][format];
  std::call_once(entry.made, [&] { entry.decoder = make_decoder(formats[format].format, spec.reading); });
  return entry.decoder;
}

std::int64_t granule_of(const MmaSpec& spec) {
  return spec.reading == MmaReading::as_they_are ? spec.products : dealt;
}

std::int64_t position_of(const MmaSpec& spec, std::int64_t k) {
  if (spec.reading == MmaReading::as_they_are) return k;
  return k / dealt * dealt + 16 * (k >> 1 & 1) + 2 * (k >> 2 & 7) + (k & 1);
}

Factor decode_factor(const MmaSpec& spec, DType type, std::uint32_t code) {
  const TypeFormat& format = formats[format_of(spec, type)];
  return decode(format.format, spec.reading, code >> format.dropped_bits);
}

Factor decode_factor(SmallFloat type, std::uint32_t code) {
  return decode(small_floats[static_cast<std::size_t>(type)], MmaReading::as_they_are, code);
}

ScaleFactor decode_scale(DType type, std::uint8_t code) {
  if (type == DType::f8_e8m0) return {1.0f, code - 127, code == 0xFF};
  const Factor factor = decode(e4m3, MmaReading::as_they_are, code & 0x7Fu);
  return {std::ldexp(factor.value, -factor.exponent), factor.exponent, std::isnan(factor.value)};
}

std::int64_t padded_k(const MmaSpec& spec, std::int64_t k) {
  const std::int64_t granule = granule_of(spec);
  return (k + granule - 1) / granule * granule;
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
template void decode_line(const MmaSpec&, DType, const void*, std::int64_t, float*, std::int16_t*);
template void decode_line(const MmaSpec&, DType, const void*, std::int64_t, double*, std::int16_t*);

}  // namespace dodona::quant::tensor_core
