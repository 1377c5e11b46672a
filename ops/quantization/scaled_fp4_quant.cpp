#include "ops/quantization/scaled_fp4_quant.h"

#include <cstring>

#include "core/threads.h"
#include "ops/base/rows.h"
#include "ops/rows/quantize/fp4_quant_row.h"
#include "ops/rows/quantize/fp4_row.h"
#include "quant/nvfp4.h"
#include "quant/swizzle.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t block_size = quant::nvfp4_block;
constexpr auto layout = quant::ScaleLayout::swizzled_128x4;

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
Fp4QuantRow row_of(const ScaledFp4Quant& op, std::int64_t m) {
  return {.input = row_begin(op.input, m, 2),
          .type = op.input.dtype(),
          .blocks = blocks_of(op),
          .encode_scale = encode_scale_of(op),
          .zero_by_amax = op.zero_block == "amax",
          .first_code = m * op.input.size(-1),
          .scale = offset_of(op, m, 0)};
}

template <Fp4Rule rule>
void golden(const ScaledFp4Quant& op, const Exec& exec, Reference* reference) {
  const GoldenOutput codes(op.output, reference, "output", f4_e2m1), scales(op.output_scale, reference, "output_scale");
  codes.make_open();
  scales.make_open();
  const std::int64_t rows = row_count(op.input), blocks = blocks_of(op);
  const quant::PaddedSize padded = quant::padded_size(layout, rows, blocks);
  parallel_for(exec.threads, padded.rows, static_cast<double>(op.input.size(-1)), [&](std::int64_t m) {
    if (m < rows) put_fp4_row(row_of(op, m), codes, scales, rule);
    for (std::int64_t c = m < rows ? blocks : 0; c < padded.columns; ++c)
      put_padding(scales, offset_of(op, m, c), op.output_scale, op.padding == "zeros");
  });
}

/// Codes follow from the scale that was stored.
void condition(const ScaledFp4Quant& actual, const Exec& exec, Reference& reference) {
  const Tensor scratch = actual.output.clone();
  const GoldenOutput codes(scratch, &reference, "output", f4_e2m1);
  codes.make_open();
  parallel_for(exec.threads, row_count(actual.input), static_cast<double>(actual.input.size(-1)),
               [&](std::int64_t m) { condition_fp4_row(row_of(actual, m), actual.output_scale.as<std::uint8_t>(), codes); });
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

std::optional<Refusal> unsupported(const ScaledFp4Quant& op, Mode mode) {
  if (mode == Mode::hopper && op.zero_block == "amax")
    return Refusal{"zero_block", "'amax' has no hopper mode: the kernel recorded on an H200 goes by the scale"};
  return {};
}

void hopper(const ScaledFp4Quant& op, const Exec& exec) {
  clear_padding(op);
  parallel_for(exec.threads, row_count(op.input), static_cast<double>(op.input.size(-1)),
               [&](std::int64_t m) { hopper_fp4_row(row_of(op, m), op.output.as<std::uint8_t>(), op.output_scale.as<std::uint8_t>()); });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_scaled_fp4_quant() {
  return define<ops::ScaledFp4Quant>({
      .contract = R"(
For each block of 16, fl32 after every operation: amax = max |x| (NaN passed over unless there is nothing else); scale = e4m3(S
* (amax * fl32(1/6))), to nearest even, saturating at 448; r = rcp(scale * rcp(S)), but 0 where the scale is 0 (zero_block=amax:
where amax is 0); code = e2m1(x*r), to nearest even, saturating at 6, the sign kept on zeros, NaN +6. rcp is 1/x with denormal
arguments and results as zero. Scales are exact but for denormals that may be flushed. Budget of codes, from the scale that was
stored: 10 units of 2^-24 of x*r (reciprocals within a unit in the last place, roundings of two products). Padding of the scale
matrix is unspecified, with padding=zeros bytes of 0.)",
      .golden = ops::golden<ops::Fp4Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .condition = ops::condition,
      .mistakes = {{"maximum-without-magnitude", "the maximum is taken of values, not of magnitudes",
                    ops::golden<ops::Fp4Rule::maximum_without_magnitude>},
                   {"scale-not-rounded", "codes are made with the scale as it was before its own rounding",
                    ops::golden<ops::Fp4Rule::scale_not_rounded>}},
      .customary = {{"*", CustomaryKind::close, 1.3e-6, 1e-5, "sgl-kernel/tests/test_fp4_quantize.py, decoded to f32"}},
      .cases = {"M=4 K=7168", "M=33 K=80 --dtype input=f16", "M=5 K=528 --dialect flashinfer", "M=3 K=64 --dist wide-exponent",
                "M=9 K=80 --attr padding=zeros"},
      .bench_cases = {"M=1 K=7168", "M=512 K=7168", "M=4096 K=7168"},
  });
}
}  // namespace dodona
