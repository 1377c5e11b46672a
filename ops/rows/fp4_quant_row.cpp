#include "ops/rows/fp4_quant_row.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "quant/amax.h"
#include "quant/fp32_ops.h"
#include "quant/hopper/special.h"
#include "quant/nvfp4.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t block_size = quant::nvfp4_block;
using Block = std::array<float, block_size>;

Block block_of(const Fp4QuantRow& row, std::int64_t c) {
  Block x;
  quant::to_f32(row.type, row.input + c * block_size * 2, x.data(), block_size);
  return x;
}

/// A block's scale before its rounding: fl32(S * fl32(amax * fl32(1/6))). Both products are normative; only denormals may be flushed.
Bounded scale_value(float amax, float encode_scale) {
  const float sixth_of_amax = amax * quant::reciprocal_ftz(6.0f);
  const double value = encode_scale * sixth_of_amax;
  const bool open = std::isfinite(value) && (may_flush(sixth_of_amax) || may_flush(encode_scale));
  return {value, open ? std::fabs(value) : 0.0};
}

double slack_of(const Fp4QuantRow& row, std::int64_t c, std::size_t i) {
  return row.slack != nullptr ? row.slack[c * block_size + static_cast<std::int64_t>(i)] : 0.0;
}

/// The scale's value where elements are open: the largest magnitude lies between those of all elements at their least and at their most.
Bounded open_scale_value(const Fp4QuantRow& row, std::int64_t c, const Block& x, float amax) {
  Bounded scale = scale_value(amax, row.encode_scale);
  if (row.slack == nullptr) return scale;
  double least = 0, most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double magnitude = std::fabs(x[i]), open = slack_of(row, c, i);
    if (std::isnan(magnitude)) continue;
    least = std::max(least, magnitude - open);
    most = std::max(most, magnitude + open);
  }
  for (const double end : {least, most}) {
    const double other = scale_value(static_cast<float>(end), row.encode_scale).exact;
    scale.slack = std::max(scale.slack, std::fabs(other - scale.exact));
  }
  return scale;
}

/// Within a few units in the last place of `bound`.
bool beside(float x, double bound) {
  return std::fabs(x / bound - 1.0) < 0x1p-20;
}

struct Factor {
  float value;
  bool open;  ///< honest implementations may be on either side of a step
};

/// r = rcp(scale * rcp(S)), by which elements are multiplied. rcp is flushing: it jumps at 2^-126 and at 2^126, which an argument that
/// is open by some units may miss or meet; and whether elements are zero is open where they may be flushed.
Factor element_factor(float amax, float scale, float encode_scale, bool zero_by_amax) {
  if ((zero_by_amax ? amax : scale) == 0) return {0.0f, false};
  const float argument = scale * quant::reciprocal_ftz(encode_scale);
  const bool open =
      beside(encode_scale, 0x1p126) || beside(argument, 0x1p126) || beside(argument, 0x1p-126) || (zero_by_amax && amax < flush_floor);
  return {quant::reciprocal_ftz(argument), open};
}

/// Codes of block c given its scale.
void put_codes(const Fp4QuantRow& row, const GoldenOutput& codes, std::int64_t c, const Block& x, float scale) {
  const Factor factor = element_factor(quant::amax_or_nan(x), scale, row.encode_scale, row.zero_by_amax);
  for (std::int64_t i = 0; i < block_size; ++i) {
    const float element = x[static_cast<std::size_t>(i)], v = element * factor.value;
    const std::int64_t linear = row.first_code + c * block_size + i;
    // Units of 2^-24 relative: each of the two reciprocals 2 for one off by a unit in the last place and 1 for ours, each of the two
    // products 1 for its rounding there and 1 for ours. A denormal element may count as zero.
    const double magnitude = std::fabs(static_cast<double>(v));
    Bounded code{v, magnitude * 10 * f32_eps, factor.open};
    if (element != 0 && std::fabs(element) < flush_floor) code = code.widened(magnitude);
    if (row.slack != nullptr)
      code = code.widened(slack_of(row, c, static_cast<std::size_t>(i)) * std::fabs(factor.value) * (1.0 + 10 * f32_eps));
    codes.put_saturating(linear, code);
  }
}

}  // namespace

void put_fp4_row(const Fp4QuantRow& row, const GoldenOutput& codes, const GoldenOutput& scales, Fp4Rule rule) {
  for (std::int64_t c = 0; c < row.blocks; ++c) {
    const Block x = block_of(row, c);
    const float maximum = rule == Fp4Rule::maximum_without_magnitude ? quant::largest_value(x) : quant::amax_or_nan(x);
    const Bounded scale = open_scale_value(row, c, x, maximum);
    scales.put_saturating(row.scale_of(c), scale);
    const float rounded = quant::e4m3_to_f32(quant::to_e4m3_satfinite(scale.exact));
    put_codes(row, codes, c, x, rule == Fp4Rule::scale_not_rounded ? static_cast<float>(scale.exact) : rounded);
  }
}

void condition_fp4_row(const Fp4QuantRow& row, const std::uint8_t* stored_scales, const GoldenOutput& codes) {
  for (std::int64_t c = 0; c < row.blocks; ++c) {
    const Block x = block_of(row, c);
    const Bounded scale = scale_value(quant::amax_or_nan(x), row.encode_scale);
    const std::uint8_t stored = stored_scales[row.scale_of(c)];
    if (stored != quant::to_e4m3_satfinite(scale.exact)) put_codes(row, codes, c, x, quant::e4m3_to_f32(stored));
  }
}

void hopper_fp4_row(const Fp4QuantRow& row, std::uint8_t* codes, std::uint8_t* scales) {
  const quant::Nvfp4Recipe recipe{{quant::hopper::rcp, quant::divide_ieee, quant::multiply_ieee}};
  for (std::int64_t c = 0; c < row.blocks; ++c) {
    const quant::Nvfp4Block block = quant::quantize_nvfp4_block(block_of(row, c), row.encode_scale, recipe);
    scales[row.scale_of(c)] = block.scale;
    std::copy(block.codes.begin(), block.codes.end(), codes + row.first_code / 2 + c * 8);
  }
}

}  // namespace dodona::ops
