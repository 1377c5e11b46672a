#include "ops/rows/quantize/fp4_quantizer.h"

#include <cmath>
#include <vector>

#include "core/threads.h"
#include "ops/base/rows.h"
#include "ops/rows/quantize/fp4_row.h"
#include "ops/rows/quantize/fp8_row.h"
#include "ops/rows/quantize/mx_scales.h"
#include "quant/amax.h"
#include "quant/fp32_ops.h"

namespace dodona::ops {
namespace {

/// Within each 32 rows, row p of the output is row (p mod 8) * 4 + p / 8 of the input.
std::int64_t source_row(const Fp4Quantizer& op, std::int64_t m) {
  return op.shuffled ? m / 32 * 32 + m % 8 * 4 + m % 32 / 8 : m;
}

/// What kernels that come to a row's scale by reciprocals may differ by, in units of 2^-24.
constexpr double row_scale_units = 3.0;

/// The scale of row m of the output, and what it is encoded with.
struct RowScale {
  float stored = 1, encode = 1;
  /// Else kernels differ in what becomes of the row: it is zero, or its scale or that one's reciprocal no normal number.
  bool usual = true;
};
/// By the largest magnitude of its elements.
RowScale row_scale_of(const Fp4Quantizer& op, float largest) {
  RowScale scale{.stored = largest * op.encode_scale};
  scale.usual = scale.stored > 0x1p-125f && scale.stored < 0x1p125f;
  scale.encode = scale.usual ? quant::reciprocal_ftz(scale.stored) : 1.0f;
  return scale;
}

const std::byte* input_row(const Fp4Quantizer& op, std::int64_t m) {
  return row_begin(op.input, source_row(op, m), bits(op.input.dtype()) / 8);
}

RowScale golden_row_scale(const Fp4Quantizer& op, std::int64_t m) {
  if (!op.row_scales.defined()) return {.encode = op.encode_scale};
  std::vector<float> x(static_cast<std::size_t>(op.input.size(-1)));
  quant::to_f32(op.input.dtype(), input_row(op, m), x.data(), op.input.size(-1));
  return row_scale_of(op, quant::amax(x));
}

RowScale fast_row_scale(const Fp4Quantizer& op, std::int64_t m, const Exec& exec) {
  if (!op.row_scales.defined()) return {.encode = op.encode_scale};
  float largest = 0;
  dispatch<LargestMagnitudeKernel>(exec.isa, LargestMagnitude{input_row(op, m), op.input.size(-1), op.input.dtype(), &largest});
  return row_scale_of(op, largest);
}

Fp4QuantRow row_of(const Fp4Quantizer& op, std::int64_t m, const RowScale& scale) {
  return {.input = input_row(op, m),
          .type = op.input.dtype(),
          .blocks = op.blocks(),
          .encode_scale = scale.encode,
          .zero_by_amax = true,
          .first_code = m * op.input.size(-1),
          .scale = quant::scale_offset(op.layout, m, 0, op.blocks()),
          .tile = tile_stride(op.layout),
          .size = op.size,
          .powers = op.powers,
          .scale_units = op.row_scales.defined() ? 6.0
                         : op.inversed           ? 3.0
                                                 : 0.0};
}

/// A row of MXFP4: scales from the largest magnitudes, and codes by their inverses.
void fast_mx_row(const Fp4Quantizer& op, std::int64_t m, const Fp4QuantRow& row, const Exec& exec) {
  std::vector<float> factors(static_cast<std::size_t>(row.blocks));
  fast_mx_scales({row.input, row.blocks, row.size, row.type}, quant::reciprocal_ftz(6.0f), op.scales.as<std::uint8_t>() + row.scale,
                 row.tile, factors.data(), exec.isa);
  dispatch<Fp4CodesKernel>(exec.isa, Fp4CodesRow{row.input, op.codes.as<std::uint8_t>() + row.first_code / 2, factors.data(),
                                                 2 * row.blocks, row.type, next_row_begin(op.input, m, 2)});
}

}  // namespace

const std::string_view fp4_quantizer_contract = R"(
fl32 after every operation, amax = max |x| of a block (NaN passed over unless there is nothing else), rcp = 1/x with denormal arguments
and results as zero. NVFP4: that of scaled_fp4_quant with zero_block=amax: scale = e4m3(S * (amax * fl32(1/6))); r = rcp(scale * rcp(S)),
0 where amax is 0. MXFP4: scale = the least power of two not below amax * fl32(1/6), up to 2^-127 the byte 0 and r = 0; infinity gives
254, nothing but NaN 255; r its inverse. code = e2m1(x*r), to nearest even, saturating at 6, the sign kept on zeros, NaN +6. Elements of
e4m3 become f16(x * (6 * rcp(S))) first; scale = S * (amax * fl32(1/6)), rounded as above; r = S * rcp(scale), 0 where the scale was 0
before its rounding. Inversed: S = rcp(global_scale). With per_token_activation each row has s = fl32(amax of the row * a_global_sf), which
is given back, and S = rcp(s); kernels may divide, and come to s by reciprocals: 3 units of 2^-24, 6 of what is made with S. Rows of zeros, and
those whose s lies beyond 2^-125 or 2^125, are open.
 Scales are exact, but for denormals that may be flushed, and for what a reciprocal off by a unit in the last place makes of inversed
scales and of e4m3. Budget of codes, from the scale that was stored: NVFP4 10 units of 2^-24 of x*r (13 inversed), e4m3 6 and what
rounding to f16 leaves open; MXFP4 nothing; a denormal element is open where r is infinite, for flushed it gives NaN; a block with an
infinity is open in MXFP4, whose inverse is denormal. Padding of the scale matrix is unspecified, with padding=zeros bytes of 0.)";

float encode_scale_of(const Tensor& global_scale, bool inversed) {
  const float scale = global_scale.defined() ? *global_scale.as<float>() : 1.0f;
  return inversed ? quant::reciprocal_ftz(scale) : scale;
}

void golden_fp4_quantize(const Fp4Quantizer& op, Fp4Rule rule, const Exec& exec, Reference* reference) {
  const GoldenOutput codes(op.codes, reference, op.codes_name, DType::f4_e2m1), scales(op.scales, reference, op.scales_name);
  codes.make_open();
  scales.make_open();
  const GoldenOutput row_scales(op.row_scales, reference, op.row_scales_name);
  const auto put_row = [&](std::int64_t m) {
    const RowScale scale = golden_row_scale(op, rule == Fp4Rule::one_scale_for_all_rows ? 0 : m);
    const Fp4QuantRow row = row_of(op, m, scale);
    if (op.row_scales.defined()) {
      const auto value = static_cast<double>(scale.stored);
      row_scales.put(m, {value, scale.usual ? row_scale_units * f32_eps * value : 0.0, !scale.usual});
    }
    if (scale.usual) return put_fp4_row(row, codes, scales, rule);
    for (std::int64_t i = 0; i < op.input.size(-1); ++i) codes.put_open(row.first_code + i, 0.0);
    for (std::int64_t c = 0; c < op.blocks(); ++c) scales.put_open(row.scale_of(c), 1.0);
  };
  if (op.row_scales.defined()) row_scales.make_open();
  const std::int64_t rows = row_count(op.input), padded = quant::padded_size(op.layout, rows, op.blocks()).rows;
  parallel_for(exec.threads, padded, static_cast<double>(op.input.size(-1)), [&](std::int64_t m) {
    if (m < rows) put_row(m);
    for_padding(op.layout, m, rows, op.blocks(), [&](std::int64_t at) { put_padding(scales, at, op.scales, op.zero_padding); });
  });
}

void condition_fp4_quantize(const Fp4Quantizer& actual, const Exec& exec, Reference& reference) {
  const Tensor scratch = actual.codes.clone();
  const GoldenOutput codes(scratch, &reference, actual.codes_name, DType::f4_e2m1);
  codes.make_open();
  parallel_for(exec.threads, row_count(actual.input), static_cast<double>(actual.input.size(-1)), [&](std::int64_t m) {
    const RowScale scale = golden_row_scale(actual, m);
    if (!scale.usual) return;
    // Behind another scale than the row's nothing follows from it.
    if (actual.row_scales.defined() &&
        !(std::fabs(actual.row_scales.as<float>()[m] - scale.stored) <= row_scale_units * f32_eps * scale.stored))
      return;
    condition_fp4_row(row_of(actual, m, scale), actual.scales.as<std::uint8_t>(), codes);
  });
}

void fast_fp4_quantize(const Fp4Quantizer& op, const Exec& exec) {
  clear_padding(op.scales, row_count(op.input) * op.blocks());
  parallel_for(exec.threads, row_count(op.input), static_cast<double>(op.input.size(-1)), [&](std::int64_t m) {
    const RowScale scale = fast_row_scale(op, m, exec);
    const Fp4QuantRow row = row_of(op, m, scale);
    if (op.row_scales.defined()) op.row_scales.as<float>()[m] = scale.stored;
    if (row.type == DType::f8_e4m3) return plain_fp4_row(row, op.codes.as<std::uint8_t>(), op.scales.as<std::uint8_t>());
    if (row.powers) return fast_mx_row(op, m, row, exec);
    dispatch<Fp4RowKernel>(exec.isa, Fp4Row{.input = row.input,
                                            .codes = op.codes.as<std::uint8_t>() + row.first_code / 2,
                                            .scales = op.scales.as<std::uint8_t>() + row.scale,
                                            .tile = row.tile,
                                            .blocks = row.blocks,
                                            .type = row.type,
                                            .encode_scale = row.encode_scale,
                                            .zero_by_amax = true});
  });
}

}  // namespace dodona::ops
