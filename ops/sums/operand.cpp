#include "ops/sums/operand.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "quant/e2m1.h"
#include "quant/element.h"
#include "quant/nvfp4.h"
#include "quant/sizes.h"
#include "quant/tensor_core/decode.h"

namespace dodona::ops {
namespace {

bool counts_integers(DType type) {
  return type == DType::f4_e2m1 || !is_float(type);
}

const std::byte* byte_at(const Operand& operand, std::int64_t index) {
  return static_cast<const std::byte*>(operand.codes) + index * bits(operand.type) / 8;
}

void decode_integers(const Operand& operand, std::int64_t line, std::vector<std::int16_t>& integers) {
  integers.resize(static_cast<std::size_t>(operand.k));
  const std::int64_t begin = line * operand.stride;
  if (operand.type == DType::f4_e2m1 && operand.k_stride == 1 && begin % 2 == 0) {
    const auto* const codes = static_cast<const std::uint8_t*>(operand.codes) + begin / 2;
    for (std::size_t i = 0; i < integers.size(); ++i) integers[i] = std::int16_t{quant::e2m1_doubled[codes[i / 2] >> (i % 2 * 4) & 0xFu]};
    return;
  }
  const double units = operand.type == DType::f4_e2m1 ? 2 : 1;
  for (std::int64_t i = 0; i < operand.k; ++i) {
    const double code = quant::load(operand.type, operand.codes, begin + i * operand.k_stride) * units;
    integers[static_cast<std::size_t>(i)] = static_cast<std::int16_t>(operand.zeros ? code - operand.zeros.at(line, i) : code);
  }
}

void decode_values(const Operand& operand, std::int64_t line, std::vector<double>& values) {
  values.resize(static_cast<std::size_t>(operand.k));
  const std::int64_t begin = line * operand.stride;
  if (operand.k_stride == 1) {
    quant::to_f64(operand.type, byte_at(operand, begin), values.data(), operand.k);
  } else {
    for (std::int64_t i = 0; i < operand.k; ++i)
      values[static_cast<std::size_t>(i)] = quant::load(operand.type, byte_at(operand, begin + i * operand.k_stride), 0);
  }
}

/// Of the types that reach below fp32's smallest normal.
bool holds_denormals(DType type, std::span<const double> values) {
  if (type != DType::bf16 && type != DType::f32) return false;
  bool found = false;
  for (const double value : values) found |= (value != 0) & (std::fabs(value) < 0x1p-126);
  return found;
}

/// As the unit takes the line.
void decode_for_unit(const Operand& operand, std::int64_t line, const quant::tensor_core::MmaSpec& unit, Line& decoded) {
  const std::int64_t element_bytes = bits(operand.type) / 8;
  std::vector<std::byte> gathered;
  const std::byte* codes = byte_at(operand, line * operand.stride);
  if (operand.k_stride != 1) {
    for (std::int64_t i = 0; i < operand.k; ++i)
      gathered.insert(gathered.end(), codes + i * operand.k_stride * element_bytes, codes + (i * operand.k_stride + 1) * element_bytes);
    codes = gathered.data();
  }
  // In the order of k nothing lies between the codes: what granules add beyond k can be left away.
  const bool ascending = unit.reading == quant::tensor_core::MmaReading::as_they_are;
  decoded.values.resize(ascending ? decoded.k : static_cast<std::size_t>(quant::tensor_core::padded_k(unit, operand.k)));
  decoded.exponents.resize(decoded.values.size());
  quant::tensor_core::decode_line(unit, operand.type, codes, operand.k, decoded.values.data(), decoded.exponents.data());
  for (std::size_t k = 0; k < decoded.values.size(); ++k)
    if (decoded.values[k] == 0) decoded.exponents[k] = exponent_of_zero;
}

}  // namespace

std::int64_t BlockScales::index(std::int64_t line, std::int64_t at) const {
  const std::int64_t r = line / lines, c = at / k;
  return layout == quant::ScaleLayout::linear ? r * line_stride + c * k_stride : quant::scale_offset(layout, first + r, c, columns);
}

double BlockScales::at(std::int64_t line, std::int64_t at) const {
  return quant::load(type, data, index(line, at));
}

BlockScales linear_scales(const Tensor& scales, std::int64_t lines, std::int64_t k) {
  return {
      .type = scales.dtype(), .data = scales.data(), .lines = lines, .k = k, .line_stride = scales.stride(0), .k_stride = scales.stride(1)};
}

BlockScales nvfp4_scales(const void* data, std::int64_t k, std::int64_t first) {
  return {.type = DType::f8_e4m3,
          .data = data,
          .k = quant::nvfp4_block,
          .layout = quant::ScaleLayout::swizzled_128x4,
          .columns = k / quant::nvfp4_block,
          .first = first};
}

void decode_line(const Operand& operand, std::int64_t line, const Accumulator& accumulator, Line& decoded) {
  decoded.type = operand.type;
  decoded.k = static_cast<std::size_t>(operand.k);
  if (counts_integers(operand.type)) {
    decode_integers(operand, line, decoded.integers);
    decoded.unit = operand.type == DType::f4_e2m1 ? 0.5 : 1;
  } else if (accumulator.order == Order::steps) {
    decode_for_unit(operand, line, *accumulator.unit, decoded);
  } else {
    decode_values(operand, line, decoded.values);
    decoded.denormal = holds_denormals(operand.type, decoded.values);
  }
  if (!operand.scales) return;
  decoded.block = static_cast<std::size_t>(operand.scales.k);
  decoded.scales.clear();
  for (std::int64_t k = 0; k < operand.k; k += operand.scales.k) decoded.scales.push_back(operand.scales.at(line, k));
}

}  // namespace dodona::ops
