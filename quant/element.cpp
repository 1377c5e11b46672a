#include "quant/element.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "dodona/error.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/e5m2.h"
#include "quant/half.h"
#include "quant/nibble.h"
#include "quant/ue8m0.h"

namespace dodona::quant {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
T read(const void* base, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(base) + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void write(void* base, std::int64_t index, T value) {
  std::memcpy(static_cast<std::byte*>(base) + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

/// Nearest even, saturating, NaN to 0. `low` and `high` are the type's limits; 2^63 has no double just below it, hence `>=`.
std::int64_t to_integer(double value, std::int64_t low, std::int64_t high) {
  if (is_nan(value)) return 0;
  const double rounded = std::nearbyint(value);
  if (rounded >= static_cast<double>(high)) return high;
  if (rounded <= static_cast<double>(low)) return low;
  return static_cast<std::int64_t>(rounded);
}

struct IntegerRange {
  std::int64_t low, high;
};

IntegerRange range_of(DType type) {
  switch (type) {
    case DType::i4: return {-8, 7};
    case DType::i8: return {-128, 127};
    case DType::u8: return {0, 255};
    case DType::i16: return {-32768, 32767};
    case DType::i32: return {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
    case DType::i64: return {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
    default: return {0, 1};
  }
}

/// Value of an element from its bits.
double decode(DType type, std::uint64_t code) {
  switch (type) {
    case DType::f64: return std::bit_cast<double>(code);
    case DType::f32: return std::bit_cast<float>(static_cast<std::uint32_t>(code));
    case DType::f16: return f16_to_f32(static_cast<std::uint16_t>(code));
    case DType::bf16: return bf16_to_f32(static_cast<std::uint16_t>(code));
    case DType::f8_e4m3: return e4m3_to_f32(static_cast<std::uint8_t>(code));
    case DType::f8_e5m2: return e5m2_to_f32(static_cast<std::uint8_t>(code));
    case DType::f8_e8m0: return ue8m0_value(static_cast<std::uint8_t>(code));
    case DType::f4_e2m1: return e2m1_to_f32(static_cast<unsigned>(code));
    case DType::i4: return signed_nibble(static_cast<unsigned>(code));
    case DType::i8: return static_cast<std::int8_t>(code);
    case DType::u8: return static_cast<std::uint8_t>(code);
    case DType::i16: return static_cast<std::int16_t>(code);
    case DType::i32: return static_cast<std::int32_t>(code);
    case DType::i64: return static_cast<double>(static_cast<std::int64_t>(code));
    case DType::boolean: return (code & 0xFF) != 0 ? 1.0 : 0.0;
  }
  throw Error(ErrorCode::bad_dtype, "", "", "no such element type");
}

/// Bits of the element nearest to `value`.
std::uint64_t encode(DType type, double value) {
  switch (type) {
    case DType::f64: return std::bit_cast<std::uint64_t>(value);
    case DType::f32: return std::bit_cast<std::uint32_t>(f64_to_f32(value));
    case DType::f16: return f64_to_f16(value);
    case DType::bf16: return f64_to_bf16(value);
    case DType::f8_e4m3: return to_e4m3_framework(value);
    case DType::f8_e5m2: return to_e5m2_framework(value);
    case DType::f8_e8m0: return ue8m0_nearest(value);
    case DType::f4_e2m1: return to_e2m1(value);
    case DType::boolean: return value != 0 ? 1 : 0;
    case DType::i4:
    case DType::i8:
    case DType::u8:
    case DType::i16:
    case DType::i32:
    case DType::i64: {
      const IntegerRange range = range_of(type);
      return static_cast<std::uint64_t>(to_integer(value, range.low, range.high));
    }
  }
  throw Error(ErrorCode::bad_dtype, "", "", "no such element type");
}

/// Shape of a binary float format with a sign, and the code of its largest finite value. `shape.mantissa_bits` is 0 for other types.
struct FloatFormat {
  MinifloatShape shape;
  std::uint64_t largest;
};

FloatFormat float_format(DType type) {
  switch (type) {
    case DType::f32: return {f32_shape, 0x7F7FFFFF};
    case DType::f16: return {f16_shape, 0x7BFF};
    case DType::bf16: return {bf16_shape, 0x7F7F};
    case DType::f8_e4m3: return {e4m3_shape, 0x7E};
    case DType::f8_e5m2: return {e5m2_shape, 0x7B};
    case DType::f4_e2m1: return {e2m1_shape, 7};
    default: return {{0, 0}, 0};
  }
}

double next_up_small_float(const FloatFormat& format, double x) {
  const std::uint64_t nearest = is_infinite(x) ? format.largest + 1 : round_magnitude(x, format.shape);
  const double largest = magnitude_value(format.largest, format.shape);
  if (!sign_of(x) || x == 0) {
    if (x >= largest) return infinity;
    const double value = magnitude_value(nearest, format.shape);
    return value > x ? value : magnitude_value(nearest + 1, format.shape);
  }
  if (x < -largest) return -largest;
  const double value = -magnitude_value(nearest, format.shape);
  // Adding zero turns the negative zero above the smallest negative value into a positive one.
  return (value > x ? value : -magnitude_value(nearest - 1, format.shape)) + 0.0;
}

double next_up_power_of_two(double x) {
  if (x < 0x1p-127) return 0x1p-127;
  if (x >= 0x1p127) return infinity;
  return exp2_int(std::ilogb(x) + 1);
}

double next_down_power_of_two(double x) {
  if (x <= 0x1p-127) return -infinity;
  if (x > 0x1p127) return 0x1p127;
  const double power = exp2_int(std::ilogb(x));
  return power < x ? power : power / 2;
}

double next_up_integer(DType type, double x) {
  const IntegerRange range = range_of(type);
  if (x < static_cast<double>(range.low)) return static_cast<double>(range.low);
  if (x >= static_cast<double>(range.high)) return infinity;
  return std::floor(x) + 1;
}

}  // namespace

std::uint64_t load_bits(DType type, const void* base, std::int64_t index) {
  switch (bits(type)) {
    case 4: return nibble(static_cast<const std::uint8_t*>(base), index);
    case 8: return read<std::uint8_t>(base, index);
    case 16: return read<std::uint16_t>(base, index);
    case 32: return read<std::uint32_t>(base, index);
    default: return read<std::uint64_t>(base, index);
  }
}

void store_bits(DType type, void* base, std::int64_t index, std::uint64_t value) {
  switch (bits(type)) {
    case 4: return set_nibble(static_cast<std::uint8_t*>(base), index, static_cast<unsigned>(value & 0xF));
    case 8: return write(base, index, static_cast<std::uint8_t>(value));
    case 16: return write(base, index, static_cast<std::uint16_t>(value));
    case 32: return write(base, index, static_cast<std::uint32_t>(value));
    default: return write(base, index, value);
  }
}

double load(DType type, const void* base, std::int64_t index) {
  return decode(type, load_bits(type, base, index));
}

void store(DType type, void* base, std::int64_t index, double value) {
  store_bits(type, base, index, encode(type, value));
}

double get(const Tensor& tensor, std::int64_t linear) {
  return load(tensor.dtype(), tensor.data(), tensor.offset(linear));
}

void set(const Tensor& tensor, std::int64_t linear, double value) {
  store(tensor.dtype(), tensor.data(), tensor.offset(linear), value);
}

std::uint64_t get_bits(const Tensor& tensor, std::int64_t linear) {
  return load_bits(tensor.dtype(), tensor.data(), tensor.offset(linear));
}

void set_bits(const Tensor& tensor, std::int64_t linear, std::uint64_t value) {
  store_bits(tensor.dtype(), tensor.data(), tensor.offset(linear), value);
}

void to_f32(DType type, const void* source, float* destination, std::int64_t n) {
  const auto* bytes = static_cast<const std::uint8_t*>(source);
  switch (type) {
    case DType::f32:
      if (n > 0) std::memcpy(destination, source, static_cast<std::size_t>(n) * sizeof(float));
      return;
    case DType::bf16:
      for (std::int64_t i = 0; i < n; ++i) destination[i] = bf16_to_f32(read<std::uint16_t>(source, i));
      return;
    case DType::f16:
      for (std::int64_t i = 0; i < n; ++i) destination[i] = f16_to_f32(read<std::uint16_t>(source, i));
      return;
    case DType::f8_e4m3:
      for (std::int64_t i = 0; i < n; ++i) destination[i] = e4m3_table[bytes[i]];
      return;
    case DType::f8_e5m2:
      for (std::int64_t i = 0; i < n; ++i) destination[i] = e5m2_table[bytes[i]];
      return;
    case DType::f4_e2m1:
      for (std::int64_t i = 0; i < n; ++i) destination[i] = e2m1_table[nibble(bytes, i)];
      return;
    case DType::i32:
      for (std::int64_t i = 0; i < n; ++i) destination[i] = static_cast<float>(read<std::int32_t>(source, i));
      return;
    case DType::i64:
      // Not through double, which would round twice.
      for (std::int64_t i = 0; i < n; ++i) destination[i] = static_cast<float>(read<std::int64_t>(source, i));
      return;
    default:
      for (std::int64_t i = 0; i < n; ++i) destination[i] = static_cast<float>(load(type, source, i));
      return;
  }
}

void to_f64(DType type, const void* source, double* destination, std::int64_t n) {
  switch (type) {
    case DType::f64:
      if (n > 0) std::memcpy(destination, source, static_cast<std::size_t>(n) * sizeof(double));
      return;
    case DType::f32:
      for (std::int64_t i = 0; i < n; ++i) destination[i] = read<float>(source, i);
      return;
    case DType::bf16:
      for (std::int64_t i = 0; i < n; ++i) destination[i] = bf16_to_f32(read<std::uint16_t>(source, i));
      return;
    case DType::f16:
      for (std::int64_t i = 0; i < n; ++i) destination[i] = f16_to_f32(read<std::uint16_t>(source, i));
      return;
    case DType::f8_e4m3:
      for (std::int64_t i = 0; i < n; ++i) destination[i] = e4m3_table[static_cast<const std::uint8_t*>(source)[i]];
      return;
    default:
      for (std::int64_t i = 0; i < n; ++i) destination[i] = load(type, source, i);
      return;
  }
}

void from_f32(DType type, const float* source, void* destination, std::int64_t n) {
  switch (type) {
    case DType::f32:
      if (n > 0) std::memcpy(destination, source, static_cast<std::size_t>(n) * sizeof(float));
      return;
    case DType::bf16:
      for (std::int64_t i = 0; i < n; ++i) write(destination, i, f32_to_bf16(source[i]));
      return;
    case DType::f16:
      for (std::int64_t i = 0; i < n; ++i) write(destination, i, f32_to_f16(source[i]));
      return;
    default:
      for (std::int64_t i = 0; i < n; ++i) store(type, destination, i, source[i]);
      return;
  }
}

void from_f64(DType type, const double* source, void* destination, std::int64_t n) {
  switch (type) {
    case DType::f64:
      if (n > 0) std::memcpy(destination, source, static_cast<std::size_t>(n) * sizeof(double));
      return;
    case DType::f32:
      for (std::int64_t i = 0; i < n; ++i) write(destination, i, f64_to_f32(source[i]));
      return;
    case DType::bf16:
      for (std::int64_t i = 0; i < n; ++i) write(destination, i, f64_to_bf16(source[i]));
      return;
    case DType::f16:
      for (std::int64_t i = 0; i < n; ++i) write(destination, i, f64_to_f16(source[i]));
      return;
    default:
      for (std::int64_t i = 0; i < n; ++i) store(type, destination, i, source[i]);
      return;
  }
}

double round_to(DType type, double value) {
  if (type == DType::f64) return value;
  return decode(type, encode(type, value));
}

double ulp(DType type, double x) {
  if (is_nan(x)) return x;
  const double magnitude = std::fabs(x);
  if (type == DType::f64) {
    if (magnitude < 0x1p-1022) return 0x1p-1074;
    const int exponent = is_infinite(x) ? 1023 : std::ilogb(magnitude);
    return std::ldexp(1.0, exponent - 52);
  }
  if (type == DType::f8_e8m0) return magnitude < 0x1p-126 ? 0x1p-127 : exp2_int(magnitude >= 0x1p127 ? 127 : std::ilogb(magnitude));
  const FloatFormat format = float_format(type);
  if (format.largest == 0) return 1;
  const double largest = magnitude_value(format.largest, format.shape);
  const int smallest_normal = 1 - format.shape.bias;
  const int top = std::ilogb(largest);
  int exponent = magnitude == 0 ? smallest_normal : (magnitude > largest ? top : std::ilogb(magnitude));
  if (exponent < smallest_normal) exponent = smallest_normal;
  return exp2_int(exponent - format.shape.mantissa_bits);
}

double max_finite(DType type) {
  if (type == DType::f64) return std::numeric_limits<double>::max();
  if (type == DType::f8_e8m0) return 0x1p127;
  const FloatFormat format = float_format(type);
  if (format.largest != 0) return magnitude_value(format.largest, format.shape);
  return static_cast<double>(range_of(type).high);
}

double min_finite(DType type) {
  if (type == DType::f8_e8m0) return 0x1p-127;
  if (is_float(type)) return -max_finite(type);
  return static_cast<double>(range_of(type).low);
}

double min_subnormal(DType type) {
  if (type == DType::f64) return std::numeric_limits<double>::denorm_min();
  if (type == DType::f8_e8m0) return 0x1p-127;
  const FloatFormat format = float_format(type);
  return format.largest == 0 ? 1 : magnitude_value(1, format.shape);
}

double next_up(DType type, double x) {
  if (is_nan(x)) return x;
  if (type == DType::f64) return std::nextafter(x, infinity);
  if (type == DType::f8_e8m0) return next_up_power_of_two(x);
  const FloatFormat format = float_format(type);
  return format.largest != 0 ? next_up_small_float(format, x) : next_up_integer(type, x);
}

double next_down(DType type, double x) {
  if (is_nan(x)) return x;
  if (type == DType::f64) return std::nextafter(x, -infinity);
  if (type == DType::f8_e8m0) return next_down_power_of_two(x);
  const FloatFormat format = float_format(type);
  if (format.largest != 0) return 0.0 - next_up_small_float(format, -x);
  const IntegerRange range = range_of(type);
  if (x > static_cast<double>(range.high)) return static_cast<double>(range.high);
  if (x <= static_cast<double>(range.low)) return -infinity;
  return std::ceil(x) - 1;
}

}  // namespace dodona::quant
