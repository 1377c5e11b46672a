#include "ops/quantization/mxfp8_quantize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/threads.h"
#include "ops/base/block_scales.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "ops/rows/quantize/group_row.h"
#include "ops/rows/quantize/mx_scales.h"
#include "quant/amax.h"
#include "quant/fp32_ops.h"
#include "quant/ue8m0.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t block_size = 32;

quant::ScaleLayout layout_of(const Mxfp8Quantize& op) {
  return scale_layout(op.is_sf_swizzled_layout, op.is_sf_8x4_layout);
}
/// Blocks of a row of x_q.
std::int64_t columns_of(const Mxfp8Quantize& op) {
  return op.x_q.size(-1) / block_size;
}
std::int64_t offset_of(const Mxfp8Quantize& op, std::int64_t m, std::int64_t c) {
  return quant::scale_offset(layout_of(op), m, c, columns_of(op));
}

std::uint8_t scale_byte(float amax) {
  return quant::ue8m0_round_up(amax * quant::reciprocal_ftz(quant::e4m3_max));
}
/// What elements are multiplied with.
float factor_of(std::uint8_t byte) {
  return byte == 0 ? 0.0f : quant::ue8m0_inverse(byte);
}

/// The nearest one, as some libraries have it.
std::uint8_t nearest_scale_byte(float amax) {
  const float scale = amax * quant::reciprocal_ftz(quant::e4m3_max);
  const std::uint8_t up = scale_byte(amax);
  return up > 1 && up < 254 && static_cast<double>(scale) * 1.4142135623730951 < static_cast<double>(quant::ue8m0_value(up)) ? up - 1 : up;
}

/// On the host a NaN is the maximum until the next element is, whatever came before.
bool begins_anew(const Mxfp8Quantize& op, std::span<const float> block) {
  return op.input.dtype() == f32 && std::any_of(block.begin(), block.end(), [](float x) { return std::isnan(x); });
}

/// `unrounded`: codes are made with the scale as it was before it became a power of two.
template <float (*maximum)(std::span<const float>), std::uint8_t (*scale_byte_of)(float), bool unrounded>
void golden_row(const Mxfp8Quantize& op, std::int64_t m, const GoldenOutput& codes, const GoldenOutput& scales) {
  const std::int64_t width = op.input.size(-1), out_width = op.x_q.size(-1);
  std::vector<float> x(static_cast<std::size_t>(width));
  quant::to_f32(op.input.dtype(), row_begin(op.input, m, bits(op.input.dtype()) / 8), x.data(), width);
  for (std::int64_t c = 0; c < columns_of(op); ++c) {
    const std::int64_t begin = c * block_size;
    if (begin >= width) {
      scales.put(offset_of(op, m, c), {0x1p-127});
      for (std::int64_t k = begin; k < begin + block_size; ++k) codes.put(m * out_width + k, {0.0});
      continue;
    }
    const auto block = std::span(x).subspan(static_cast<std::size_t>(begin), block_size);
    const float amax = maximum(block);
    const std::uint8_t byte = scale_byte_of(amax);
    // A denormal amax / 448 may be flushed, which changes nothing where the byte is 0 without; the inverse of infinity's scale is denormal,
    // and may be.
    const bool denormal = byte != 0 && may_flush(static_cast<double>(amax) / quant::e4m3_max), nan = begins_anew(op, block),
               open = denormal || byte == 254 || nan;
    scales.put(offset_of(op, m, c), {static_cast<double>(quant::ue8m0_value(byte)), 0.0, denormal || nan});
    for (std::int64_t i = 0; i < block_size; ++i) {
      const float v = block[static_cast<std::size_t>(i)] * (unrounded && amax > 0 ? quant::e4m3_max / amax : factor_of(byte));
      codes.put_saturating(m * out_width + begin + i, {v, unrounded ? std::fabs(v) * 0x1p-22 : 0.0, open || std::isnan(v)});
    }
  }
}

template <float (*maximum)(std::span<const float>), std::uint8_t (*scale_byte_of)(float) = scale_byte, bool unrounded = false>
void golden(const Mxfp8Quantize& op, const Exec& exec, Reference* reference) {
  const GoldenOutput codes(op.x_q, reference, "x_q"), scales(op.sf, reference, "sf");
  codes.make_open();
  scales.make_open();
  const std::int64_t rows = row_count(op.input), columns = columns_of(op);
  const quant::ScaleLayout layout = layout_of(op);
  parallel_for(exec.threads, quant::padded_size(layout, rows, columns).rows, static_cast<double>(op.input.size(-1)), [&](std::int64_t m) {
    if (m < rows) golden_row<maximum, scale_byte_of, unrounded>(op, m, codes, scales);
    for_padding(layout, m, rows, columns, [&](std::int64_t at) { put_padding(scales, at, op.sf, op.padding == "zeros"); });
  });
}

void fast(const Mxfp8Quantize& op, const Exec& exec) {
  const std::int64_t rows = row_count(op.input), width = op.input.size(-1), out_width = op.x_q.size(-1), blocks = width / block_size;
  const int element_bytes = bits(op.input.dtype()) / 8;
  clear_padding(op.sf, rows * blocks);
  const bool streamed = worth_streaming(op.x_q);
  parallel_for_rows(exec.threads, rows, static_cast<double>(width), streamed, out_width, [&](std::int64_t m, Writing writing) {
    const GroupRow row{row_begin(op.input, m, element_bytes),      blocks, block_size, op.input.dtype(),
                       next_row_begin(op.input, m, element_bytes), writing};
    std::vector<float> factors(static_cast<std::size_t>(blocks));
    fast_mx_scales(row, quant::reciprocal_ftz(quant::e4m3_max), op.sf.as<std::uint8_t>() + offset_of(op, m, 0), tile_stride(layout_of(op)),
                   factors.data(), exec.isa);
    std::uint8_t* const codes = op.x_q.as<std::uint8_t>() + m * out_width;
    dispatch<GroupCodesKernel>(exec.isa, row, factors.data(), GroupCode::e4m3, codes);
    std::fill(codes + width, codes + out_width, std::uint8_t{0});
  });
}

void check(const Mxfp8Quantize& op) {
  if (op.alignment % block_size != 0)
    throw Error(ErrorCode::bad_value, "", "alignment", "is " + std::to_string(op.alignment) + ", expected a multiple of 32");
}

float largest_value(std::span<const float> x) {
  return std::max(0.0f, quant::largest_value(x));
}

float largest_in_bf16(std::span<const float> x) {
  return static_cast<float>(quant::round_to(bf16, static_cast<double>(quant::amax_or_nan(x))));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_mxfp8_quantize() {
  return define<ops::Mxfp8Quantize>({
      .contract = R"(
For each block of 32: amax = max |x| (NaN passed over unless there is nothing else); scale = the least power of two not below amax *
fl32(1/448), up to 2^-127 the byte 0, infinity 254, nothing but NaN 255; code = e4m3(x / scale), to nearest even, saturating at 448, the
sign kept on zeros; zeros where the byte is 0. All is exact, so nothing is open but what builds that flush denormals make of amax/448 and of
the inverse of infinity's scale, and the codes of NaN, which versions of the kernel clamp or do not. Padding of the scale matrix is
unspecified. Elements of f32 are those of upstream's host path, which quantizes them by the same rule; blocks with NaN are open there, for it
loses the maximum before one.)",
      .contract_version = 2,
      .golden = ops::golden<quant::amax_or_nan>,
      .fast = ops::fast,
      .check = ops::check,
      .mistakes = {{"maximum-without-magnitude", "the maximum is taken of values, not of magnitudes", ops::golden<ops::largest_value>},
                   {"nearest-power", "scales are rounded to the nearest power of two, not up: the largest elements saturate",
                    ops::golden<quant::amax_or_nan, ops::nearest_scale_byte>},
                   {"scale-not-rounded", "codes are made with the scale as it was before its own rounding",
                    ops::golden<quant::amax_or_nan, ops::scale_byte, true>},
                   {"maximum-in-bf16", "the maximum is rounded to bf16 before its scale is made", ops::golden<ops::largest_in_bf16>, true}},
      .cases = {"M=4 K=1536", "M=33 K=96 --dtype input=f16 --attr is_sf_swizzled_layout=false",
                "M=9 K=160 --attr is_sf_8x4_layout=true --dist wide-exponent", "M=3 K=288 --attr alignment=128",
                "M=5 K=64 --dtype input=f32 --dist wide-exponent"},
      .bench_cases = {"M=512 K=7168", "M=512 K=7168 --attr is_sf_swizzled_layout=false"},
  });
}
}  // namespace dodona
