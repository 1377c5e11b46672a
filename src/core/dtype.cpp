#include "dodona/dtype.h"

#include <array>
#include <cctype>
#include <string>

namespace dodona {
namespace {

struct Row {
  int bits;
  std::string_view name, safetensors;
};

constexpr std::array<Row, dtype_count> rows{{
    {64, "f64", "F64"},
    {32, "f32", "F32"},
    {16, "f16", "F16"},
    {16, "bf16", "BF16"},
    {8, "f8_e4m3", "F8_E4M3"},
    {8, "f8_e5m2", "F8_E5M2"},
    {8, "f8_e8m0", "F8_E8M0"},
    {4, "f4_e2m1", "F4"},
    {4, "i4", ""},
    {8, "i8", "I8"},
    {8, "u8", "U8"},
    {16, "i16", "I16"},
    {32, "i32", "I32"},
    {64, "i64", "I64"},
    {8, "bool", "BOOL"},
}};

const Row& row(DType t) {
  return rows[static_cast<std::size_t>(t)];
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::tolower(static_cast<unsigned char>(a[i])) != std::tolower(static_cast<unsigned char>(b[i]))) return false;
  return true;
}

}  // namespace

int bits(DType t) {
  return row(t).bits;
}
std::int64_t bytes_for(DType t, std::int64_t count) {
  const int b = bits(t);
  return b >= 8 ? count * (b / 8) : (count * b + 7) / 8;
}
std::string_view name(DType t) {
  return row(t).name;
}
std::string_view safetensors_name(DType t) {
  return row(t).safetensors;
}

std::optional<DType> parse_dtype(std::string_view text) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (equal_ignoring_case(text, rows[i].name) || (!rows[i].safetensors.empty() && equal_ignoring_case(text, rows[i].safetensors)))
      return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace dodona
