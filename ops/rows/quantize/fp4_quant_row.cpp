#include "ops/rows/quantize/fp4_quant_row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "quant/amax.h"
#include "quant/fp32_ops.h"
#include "quant/hopper/special.h"
#include "quant/nibble.h"
#include "quant/nvfp4.h"
#include "quant/ue8m0.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t block_size = quant::nvfp4_block;
using Block = std::vector<Bounded>;

/// Elements as they are, with what is open of them; those of e4m3 are multiplied with 6 / S and rounded to f16 first.
Block block_of(const Fp4QuantRow& row, std::int64_t c) {
  std::vector<float> x(static_cast<std::size_t>(row.size));
  quant::to_f32(row.type, row.input + c * row.size * bits(row.type) / 8, x.data(), row.size);
  const bool bytes = row.type == DType::f8_e4m3;
  const float factor = bytes ? 6.0f * quant::reciprocal_ftz(row.encode_scale) : 1.0f;
  Block block;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto value = static_cast<double>(x[i] * factor);
    // A reciprocal off by a unit in the last place, the roundings of two products.
    const double slack = std::isfinite(value) ? std::fabs(value) * (4 + row.scale_units) * f32_eps : 0.0;
    const double open = row.slack != nullptr ? row.slack[c * row.size + static_cast<std::int64_t>(i)] : 0.0;
    block.push_back(bytes && std::isfinite(value) ? rounded_to(DType::f16, {value, slack}) : Bounded{value, open});
  }
  return block;
}

/// A block's largest magnitude, NaN where there is nothing else: it lies between those of all elements at their least and at their most.
Bounded amax_of(const Block& block, bool without_magnitude) {
  std::vector<float> x;
  double least = 0, most = 0;
  bool open = false;
  for (const Bounded& element : block) {
    x.push_back(static_cast<float>(element.exact));
    const double magnitude = std::fabs(element.exact);
    if (std::isnan(magnitude)) continue;
    least = std::max(least, magnitude - element.slack);
    most = std::max(most, magnitude + element.slack);
    open = open || element.slack > 0;
  }
  const auto amax = static_cast<double>(without_magnitude ? quant::largest_value(x) : quant::amax_or_nan(x));
  return {amax, open ? std::max(std::fabs(amax - least), std::fabs(most - amax)) : 0.0};
}

/// A block's scale before its rounding: fl32(S * fl32(amax * fl32(1/6))), with S = 1 for MXFP4 of bf16 and f16. Both products are
/// normative; only denormals may be flushed.
Bounded scale_value(const Fp4QuantRow& row, const Bounded& amax) {
  const float encode_scale = row.powers && row.type != DType::f8_e4m3 ? 1.0f : row.encode_scale;
  const auto sixth = [](double x) { return static_cast<float>(x) * quant::reciprocal_ftz(6.0f); };
  const auto scale = [&](double x) { return static_cast<double>(encode_scale * sixth(x)); };
  const double value = scale(amax.exact);
  if (!std::isfinite(value)) return {value};
  if (may_flush(sixth(amax.exact)) || may_flush(encode_scale) || (row.powers && may_flush(value))) return {value, std::fabs(value)};
  double slack = std::fabs(value) * row.scale_units * f32_eps;
  if (amax.slack > 0)
    slack += std::max(std::fabs(scale(amax.exact - amax.slack) - value), std::fabs(scale(amax.exact + amax.slack) - value));
  return {value, slack};
}

float power_above(double value) {
  return quant::ue8m0_value(quant::ue8m0_round_up(static_cast<float>(value)));
}

void put_scale(const Fp4QuantRow& row, const GoldenOutput& scales, std::int64_t at, const Bounded& value) {
  if (!row.powers) return scales.put_saturating(at, value);
  const float power = power_above(value.exact);
  const bool open = value.slack > 0 && (power_above(value.exact - value.slack) != power || power_above(value.exact + value.slack) != power);
  scales.put(at, {static_cast<double>(power), 0.0, open});
}

/// Within a few units in the last place of `bound`.
bool beside(float x, double bound) {
  return std::fabs(x / bound - 1.0) < 0x1p-20;
}

struct Factor {
  float value;
  double units;  ///< of 2^-24, by which products with it differ
  bool open;     ///< honest implementations may be on either side of a step
};

/// What elements are multiplied with.
/// NVFP4: r = rcp(scale * rcp(S)). rcp is flushing: it jumps at 2^-126 and at 2^126, which an argument that is open by some units may miss
/// or meet; and whether elements are zero is open where they may be flushed. Of e4m3: r = S * rcp(scale).
/// MXFP4: the scale's inverse, zero for byte 0; of infinity's scale it is denormal, and may be flushed.
Factor element_factor(const Fp4QuantRow& row, float amax, float value, float scale) {
  if (row.type == DType::f8_e4m3)
    return value == 0 ? Factor{0.0f, 0, false}
                      : Factor{row.encode_scale * quant::reciprocal_ftz(scale), 6, may_flush(value) || may_flush(scale)};
  if (row.powers) return scale == 0x1p-127f ? Factor{0.0f, 0, false} : Factor{1.0f / scale, 0, scale == 0x1p127f};
  if ((row.zero_by_amax ? amax : scale) == 0) return {0.0f, 0, false};
  const float argument = scale * quant::reciprocal_ftz(row.encode_scale);
  const bool open = beside(row.encode_scale, 0x1p126) || beside(argument, 0x1p126) || beside(argument, 0x1p-126) ||
                    (row.zero_by_amax && amax < flush_floor);
  // Each of the two reciprocals 2 for one off by a unit in the last place and 1 for ours, each of the two products 1 for its rounding there
  // and 1 for ours.
  return {quant::reciprocal_ftz(argument), 10 + row.scale_units, open};
}

/// Codes of block c given its scale.
void put_codes(const Fp4QuantRow& row, const GoldenOutput& codes, std::int64_t c, const Block& x, double value, float scale) {
  const Factor factor = element_factor(row, static_cast<float>(amax_of(x, false).exact), static_cast<float>(value), scale);
  for (std::int64_t i = 0; i < row.size; ++i) {
    const Bounded& element = x[static_cast<std::size_t>(i)];
    const float v = static_cast<float>(element.exact) * factor.value;
    const double magnitude = std::fabs(static_cast<double>(v)),
                 reach = element.slack * std::fabs(static_cast<double>(factor.value)) * (1.0 + factor.units * f32_eps);
    // There is no NaN in e2m1: conversions give 6, and rows that a kernel puts elsewhere are held to that.
    Bounded code{std::isnan(v) ? 6.0 : static_cast<double>(v), std::isfinite(v) ? magnitude * factor.units * f32_eps + reach : 0.0,
                 factor.open};
    // A denormal element may count as zero, and zero times infinity is NaN.
    if (element.exact != 0 && std::fabs(element.exact) < flush_floor) {
      code = code.widened(magnitude);
      code.open = code.open || std::isinf(factor.value);
    }
    codes.put_saturating(row.first_code + c * row.size + i, code);
  }
}

/// The scale that a stored byte is.
float stored_scale(const Fp4QuantRow& row, std::uint8_t byte) {
  return row.powers ? quant::ue8m0_value(byte) : quant::e4m3_to_f32(byte);
}
std::uint8_t scale_byte(const Fp4QuantRow& row, double value) {
  return row.powers ? quant::ue8m0_round_up(static_cast<float>(value)) : quant::to_e4m3_satfinite(value);
}

}  // namespace

void put_fp4_row(const Fp4QuantRow& row, const GoldenOutput& codes, const GoldenOutput& scales, Fp4Rule rule) {
  for (std::int64_t c = 0; c < row.blocks; ++c) {
    const Block x = block_of(row, c);
    const Bounded value = scale_value(row, amax_of(x, rule == Fp4Rule::maximum_without_magnitude));
    put_scale(row, scales, row.scale_of(c), value);
    const float rounded = stored_scale(row, scale_byte(row, value.exact));
    put_codes(row, codes, c, x, value.exact, rule == Fp4Rule::scale_not_rounded ? static_cast<float>(value.exact) : rounded);
  }
}

void condition_fp4_row(const Fp4QuantRow& row, const std::uint8_t* stored_scales, const GoldenOutput& codes) {
  for (std::int64_t c = 0; c < row.blocks; ++c) {
    const Block x = block_of(row, c);
    const Bounded value = scale_value(row, amax_of(x, false));
    const std::uint8_t stored = stored_scales[row.scale_of(c)];
    if (stored != scale_byte(row, value.exact)) put_codes(row, codes, c, x, value.exact, stored_scale(row, stored));
  }
}

void plain_fp4_row(const Fp4QuantRow& row, std::uint8_t* codes, std::uint8_t* scales) {
  for (std::int64_t c = 0; c < row.blocks; ++c) {
    const Block x = block_of(row, c);
    const float amax = static_cast<float>(amax_of(x, false).exact);
    const double value = scale_value(row, {static_cast<double>(amax)}).exact;
    const std::uint8_t byte = scales[row.scale_of(c)] = scale_byte(row, value);
    const float factor = element_factor(row, amax, static_cast<float>(value), stored_scale(row, byte)).value;
    for (std::int64_t i = 0; i < row.size; i += 2) {
      const auto code = [&](std::int64_t at) {
        return quant::to_e2m1(static_cast<double>(static_cast<float>(x[static_cast<std::size_t>(at)].exact) * factor));
      };
      codes[(row.first_code + c * row.size + i) / 2] = quant::pack_nibbles(code(i), code(i + 1));
    }
  }
}

void hopper_fp4_row(const Fp4QuantRow& row, std::uint8_t* codes, std::uint8_t* scales) {
  const quant::Nvfp4Recipe recipe{{quant::hopper::rcp, quant::divide_ieee, quant::multiply_ieee}};
  for (std::int64_t c = 0; c < row.blocks; ++c) {
    std::array<float, block_size> x;
    quant::to_f32(row.type, row.input + c * block_size * 2, x.data(), block_size);
    const quant::Nvfp4Block block = quant::quantize_nvfp4_block(x, row.encode_scale, recipe);
    scales[row.scale_of(c)] = block.scale;
    std::copy(block.codes.begin(), block.codes.end(), codes + row.first_code / 2 + c * 8);
  }
}

}  // namespace dodona::ops
