#include "ops/rows/copies/cast_row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ops/rows/copies/convert_row.h"
#include "ops/rows/quantize/quantize_row.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

bool is_fp8(DType type) {
  return type == DType::f8_e4m3 || type == DType::f8_e5m2;
}

constexpr std::uint8_t e5m2_infinity = 0x7C;

/// Patterns that sm_90 makes otherwise than the formats say.
void put_patterns_of_sm_90(DType from_type, const std::byte* from, DType to_type, std::byte* to, std::int64_t n) {
  if (to_type == DType::f32 && (from_type == DType::f16 || is_fp8(from_type))) {
    auto* const wide = reinterpret_cast<float*>(to);
    for (std::int64_t i = 0; i < n; ++i)
      if (std::isnan(wide[i])) wide[i] = quant::hopper::canonical_nan();
  }
  if (to_type == DType::bf16 && from_type == DType::f8_e5m2) {
    const auto* const codes = reinterpret_cast<const std::uint8_t*>(from);
    for (std::int64_t i = 0; i < n; ++i)
      if ((codes[i] & 0x7F) >= e5m2_infinity) quant::store_bits(to_type, to, i, e5m2_to_bf16_of_sm_90(codes[i]));
  }
}

void cast_row_as_the_formats_say(DType from_type, const std::byte* from, DType to_type, std::byte* to, std::int64_t n, Isa isa) {
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<std::size_t>(n * bits(to_type) / 8));
    return;
  }
  if (is_fp8(to_type) && (from_type == DType::bf16 || from_type == DType::f16)) {
    dispatch<QuantizeRowKernel>(isa, QuantizeRow{from, reinterpret_cast<std::uint8_t*>(to), n, nullptr, from_type, to_type, false, 1.0f});
    return;
  }
  // Which NaN comes of a NaN is what the scalar functions below say.
  if (!is_fp8(to_type) && dispatch<ConvertRowKernel>(isa, ConvertRow{from, to, n, from_type, to_type})) return;
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

}  // namespace

std::uint16_t e5m2_to_bf16_of_sm_90(std::uint8_t code) {
  constexpr int bias_apart = 127 - 15, wider_by = 5, bf16_mantissa = 7;
  return static_cast<std::uint16_t>((code & 0x80) << 8 | (((code & 0x7F) << wider_by) + (bias_apart << bf16_mantissa)));
}

void cast_row(DType from_type, const std::byte* from, DType to_type, std::byte* to, std::int64_t n, const Exec& exec) {
  cast_row_as_the_formats_say(from_type, from, to_type, to, n, exec.isa);
  if (of_a_gpu(exec.mode)) put_patterns_of_sm_90(from_type, from, to_type, to, n);
}

void open_cast_nans(const Tensor& from, std::int64_t from_linear, const Tensor& to, Reference* reference, std::string_view name,
                    std::int64_t to_linear, std::int64_t n) {
  if (reference == nullptr || from.dtype() == to.dtype()) return;
  ReferenceOutput& record = reference->output(name, to.elements());
  for (std::int64_t i = 0; i < n; ++i)
    if (std::isnan(quant::get(from, from_linear + i))) record.slack[static_cast<std::size_t>(to_linear + i)] = 1.0;
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
