// Element types.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dodona {

enum class DType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,  ///< e4m3fn: max 448, no infinity, NaN = 0x7F/0xFF
  f8_e5m2,  ///< IEEE-like: inf 0x7C, max finite 57344
  f8_e8m0,  ///< power-of-two scale 2^(b-127), 255 = NaN
  f4_e2m1,  ///< two elements a byte, element 2j in the low nibble
  i4,       ///< two's complement, two elements a byte, element 2j in the low nibble
  i8,
  u8,
  i16,
  i32,
  i64,
  boolean,  ///< one byte, 0 or 1
};

inline constexpr int dtype_count = 15;

/// Bits of one element: 4 for the packed types.
int bits(DType t);
/// Bytes that `count` elements take; packed types round up to whole bytes.
std::int64_t bytes_for(DType t, std::int64_t count);
/// f64 f32 f16 bf16 f8_e4m3 ... i64 bool
std::string_view name(DType t);
/// The dtype called `text`: our names and the safetensors spellings (F32, BF16, F8_E4M3, BOOL...), any case.
std::optional<DType> parse_dtype(std::string_view text);
/// The safetensors spelling. i4 has none (stored as U8): empty.
std::string_view safetensors_name(DType t);

constexpr bool is_float(DType t) {
  return t <= DType::f4_e2m1;
}
constexpr bool is_packed(DType t) {
  return t == DType::f4_e2m1 || t == DType::i4;
}

}  // namespace dodona
