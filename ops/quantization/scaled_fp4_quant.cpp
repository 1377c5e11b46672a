#include "ops/quantization/scaled_fp4_quant.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/threads.h"
#include "ops/golden_output.h"
#include "ops/quantization/fp4_row.h"
#include "ops/rows.h"
#include "quant/amax.h"
#include "quant/fp32_ops.h"
#include "quant/hopper/special.h"
#include "quant/nvfp4.h"
#include "quant/swizzle.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t block_size = quant::nvfp4_block;
constexpr auto layout = quant::ScaleLayout::swizzled_128x4;
using Block = std::array<float, block_size>;

std::int64_t blocks_of(const ScaledFp4Quant& op) {
  return op.input.size(-1) / block_size;
}
float encode_scale_of(const ScaledFp4Quant& op) {
  return *op.input_global_scale.as<float>();
}
/// Offset of the scale of block c of row m.
std::int64_t offset_of(const ScaledFp4Quant& op, std::int64_t m, std::int64_t c) {
  return quant::scale_offset(layout, m, c, blocks_of(op));
}

Block block_of(const ScaledFp4Quant& op, std::int64_t m, std::int64_t c) {
  const DType type = op.input.dtype();
  Block x;
  quant::to_f32(type, row_begin(op.input, m, 2) + c * block_size * 2, x.data(), block_size);
  return x;
}

struct Value {
  double exact, slack;
};

/// A block's scale before its rounding: fl32(S * fl32(amax * fl32(1/6))). Both products are normative; only denormals may be flushed.
Value scale_value(float amax, float encode_scale) {
  const float sixth_of_amax = amax * quant::reciprocal_ftz(6.0f);
  const double value = encode_scale * sixth_of_amax;
  const bool open = std::isfinite(value) && (may_flush(sixth_of_amax) || may_flush(encode_scale));
  return {value, open ? std::fabs(value) : 0.0};
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

/// Codes of block c of row m given its scale.
void put_codes(const ScaledFp4Quant& op, const GoldenOutput& codes, std::int64_t m, std::int64_t c, const Block& x, float scale) {
  const Factor factor = element_factor(quant::amax_or_nan(x), scale, encode_scale_of(op), op.zero_block == "amax");
  for (std::int64_t i = 0; i < block_size; ++i) {
    const float element = x[static_cast<std::size_t>(i)], v = element * factor.value;
    const std::int64_t linear = (m * blocks_of(op) + c) * block_size + i;
    if (factor.open) {
      codes.put_saturating_open(linear, v);
      continue;
    }
    // Units of 2^-24 relative: each of the two reciprocals 2 for one off by a unit in the last place and 1 for ours, each of the two
    // products 1 for its rounding there and 1 for ours. A denormal element may count as zero.
    double slack = std::isfinite(v) ? std::fabs(static_cast<double>(v)) * 10 * f32_eps : 0.0;
    if (std::isfinite(v) && element != 0 && std::fabs(element) < flush_floor) slack += std::fabs(static_cast<double>(v));
    codes.put_saturating(linear, v, slack);
  }
}

void golden(const ScaledFp4Quant& op, const Exec& exec, Reference* reference) {
  const GoldenOutput codes(op.output, reference, "output", f4_e2m1), scales(op.output_scale, reference, "output_scale");
  codes.make_open();
  scales.make_open();
  const std::int64_t rows = row_count(op.input), blocks = blocks_of(op);
  const quant::PaddedSize padded = quant::padded_size(layout, rows, blocks);
  parallel_for(exec.threads, padded.rows, static_cast<double>(op.input.size(-1)), [&](std::int64_t m) {
    for (std::int64_t c = 0; c < padded.columns; ++c) {
      if (m >= rows || c >= blocks) {
        scales.leave_open(offset_of(op, m, c));
        continue;
      }
      const Block x = block_of(op, m, c);
      const Value scale = scale_value(quant::amax_or_nan(x), encode_scale_of(op));
      scales.put_saturating(offset_of(op, m, c), scale.exact, scale.slack);
      put_codes(op, codes, m, c, x, quant::e4m3_to_f32(quant::to_e4m3_satfinite(scale.exact)));
    }
  });
}

/// Codes follow from the scale that was stored.
void condition(const ScaledFp4Quant& actual, const Exec& exec, Reference& reference) {
  const Tensor scratch = actual.output.clone();
  const GoldenOutput codes(scratch, &reference, "output", f4_e2m1);
  codes.make_open();
  parallel_for(exec.threads, row_count(actual.input), static_cast<double>(actual.input.size(-1)), [&](std::int64_t m) {
    for (std::int64_t c = 0; c < blocks_of(actual); ++c) {
      const Block x = block_of(actual, m, c);
      const Value scale = scale_value(quant::amax_or_nan(x), encode_scale_of(actual));
      const std::uint8_t stored = actual.output_scale.as<std::uint8_t>()[offset_of(actual, m, c)];
      if (stored == quant::to_e4m3_satfinite(scale.exact)) continue;
      put_codes(actual, codes, m, c, x, quant::e4m3_to_f32(stored));
    }
  });
}

void clear_padding(const ScaledFp4Quant& op) {
  if (row_count(op.input) * blocks_of(op) != op.output_scale.elements())
    std::memset(op.output_scale.data(), 0, static_cast<std::size_t>(op.output_scale.elements()));
}

void fast(const ScaledFp4Quant& op, const Exec& exec) {
  clear_padding(op);
  parallel_for(exec.threads, row_count(op.input), static_cast<double>(op.input.size(-1)), [&](std::int64_t m) {
    dispatch<Fp4RowKernel>(exec.isa, Fp4Row{.input = row_begin(op.input, m, 2),
                                            .codes = op.output.as<std::uint8_t>() + m * op.output.size(1),
                                            .scales = op.output_scale.as<std::uint8_t>() + offset_of(op, m, 0),
                                            .blocks = blocks_of(op),
                                            .type = op.input.dtype(),
                                            .encode_scale = encode_scale_of(op),
                                            .zero_by_amax = op.zero_block == "amax"});
  });
}

void hopper(const ScaledFp4Quant& op, const Exec& exec) {
  if (op.zero_block == "amax")
    throw Error(ErrorCode::unsupported, "", "zero_block", "'amax' has no hopper mode: the kernel recorded on an H200 goes by the scale");
  clear_padding(op);
  const quant::Nvfp4Recipe recipe{{quant::hopper::rcp, quant::divide_ieee, quant::multiply_ieee}};
  parallel_for(exec.threads, row_count(op.input), static_cast<double>(op.input.size(-1)), [&](std::int64_t m) {
    for (std::int64_t c = 0; c < blocks_of(op); ++c) {
      const quant::Nvfp4Block block = quant::quantize_nvfp4_block(block_of(op, m, c), encode_scale_of(op), recipe);
      op.output_scale.as<std::uint8_t>()[offset_of(op, m, c)] = block.scale;
      std::copy(block.codes.begin(), block.codes.end(), op.output.as<std::uint8_t>() + m * op.output.size(1) + c * 8);
    }
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_scaled_fp4_quant() {
  return define<ops::ScaledFp4Quant>({
      .contract =
          "For each block of 16, fl32 after every operation: amax = max |x| (NaN passed over unless there is nothing else); "
          "scale = e4m3(S * (amax * fl32(1/6))), to nearest even, saturating at 448; r = rcp(scale * rcp(S)), but 0 where the scale is 0 "
          "(zero_block=amax: where amax is 0); code = e2m1(x*r), to nearest even, saturating at 6, the sign kept on zeros, NaN +6. rcp is "
          "1/x with denormal arguments and results as zero. Scales are exact but for denormals that may be flushed. Budget of codes, from "
          "the scale that was stored: 10 units of 2^-24 of x*r (reciprocals within a unit in the last place, roundings of two products). "
          "Padding of the scale matrix is unspecified.",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .condition = ops::condition,
      .cases = {"M=4 K=7168", "M=33 K=80 --dtype input=f16", "M=5 K=528 --dialect flashinfer", "M=3 K=64 --dist wide-exponent"},
      .bench_cases = {"M=1 K=7168", "M=512 K=7168", "M=4096 K=7168"},
  });
}
}  // namespace dodona
