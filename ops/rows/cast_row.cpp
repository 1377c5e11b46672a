#include "ops/rows/cast_row.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ops/rows/quantize_row.h"

namespace dodona::ops {
namespace {

bool is_fp8(DType type) {
  return type == DType::f8_e4m3 || type == DType::f8_e5m2;
}

}  // namespace

void cast_row(DType from_type, const std::byte* from, DType to_type, std::byte* to, std::int64_t n, Isa isa) {
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<std::size_t>(n * bits(to_type) / 8));
    return;
  }
  if (is_fp8(to_type) && (from_type == DType::bf16 || from_type == DType::f16)) {
    dispatch<QuantizeRowKernel>(isa, QuantizeRow{from, reinterpret_cast<std::uint8_t*>(to), n, nullptr, from_type, to_type, false, 1.0f});
    return;
  }
  std::array<float, 256> wide;
  const std::int64_t from_bytes = bits(from_type) / 8, to_bytes = bits(to_type) / 8;
  for (std::int64_t i = 0; i < n; i += 256) {
    const std::int64_t count = std::min<std::int64_t>(256, n - i);
    quant::to_f32(from_type, from + i * from_bytes, wide.data(), count);
    if (!is_fp8(to_type)) {
      quant::from_f32(to_type, wide.data(), to + i * to_bytes, count);
      continue;
    }
    for (std::int64_t k = 0; k < count; ++k)
      to[i + k] = static_cast<std::byte>(GoldenOutput::saturating_code(to_type, static_cast<double>(wide[static_cast<std::size_t>(k)])));
  }
}

void cast_element(const Tensor& from, std::int64_t from_linear, const Tensor& to, const GoldenOutput& out, std::int64_t to_linear) {
  if (from.dtype() == to.dtype()) {
    quant::set_bits(to, to_linear, quant::get_bits(from, from_linear));
  } else if (is_fp8(to.dtype())) {
    out.put_saturating(to_linear, {quant::get(from, from_linear)});
  } else {
    out.put(to_linear, {quant::get(from, from_linear)});
  }
}

}  // namespace dodona::ops
