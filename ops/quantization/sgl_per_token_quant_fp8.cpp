#include "ops/quantization/sgl_per_token_quant_fp8.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "ops/rows/quantize/fp8_codes.h"
#include "ops/rows/quantize/fp8_row.h"
#include "quant/amax.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

constexpr float largest_code = quant::e4m3_max;
constexpr std::uint8_t largest_code_bits = 0x7E;
/// From 16 tokens per multiprocessor on (132 of them on an H200) a warp takes a whole token, and minds a scale of zero.
constexpr std::int64_t warp_kernel_rows = 16 * 132;

std::vector<float> row_of(const SglPerTokenQuantFp8& op, std::int64_t m) {
  const DType type = op.input.dtype();
  std::vector<float> x(static_cast<std::size_t>(op.input.size(1)));
  quant::to_f32(type, row_begin(op.input, m, bits(type) / 8), x.data(), op.input.size(1));
  return x;
}

/// The row's scale before its rounding.
Bounded scale_of(const SglPerTokenQuantFp8& op, float amax, double largest = quant::e4m3_max) {
  return fp8_scale(amax, op.divide == "ieee", largest);
}

/// Codes of row m given its scale. One that may be flushed makes 1/scale infinite or, in the kernel for many tokens, zero.
void put_codes(const GoldenOutput& codes, std::int64_t m, const std::vector<float>& x, float scale) {
  put_fp8_codes(codes, m * static_cast<std::int64_t>(x.size()), x, scale, may_flush(scale));
}

/// Mistake: the maximum of values, not of magnitudes.
float largest_value(std::span<const float> x) {
  return std::max(0.0f, quant::largest_value(x));
}

template <float (*maximum)(std::span<const float>), bool to_240 = false>
void golden_by(const SglPerTokenQuantFp8& op, const Exec& exec, Reference* reference) {
  const GoldenOutput codes(op.output_q, reference, "output_q"), scales(op.output_s, reference, "output_s");
  codes.make_open();
  parallel_for(exec.threads, op.input.size(0), static_cast<double>(op.input.size(1)), [&](std::int64_t m) {
    const std::vector<float> x = row_of(op, m);
    const Bounded scale = scale_of(op, maximum(x), to_240 ? largest_code_elsewhere : quant::e4m3_max);
    scales.put(m, scale);
    put_codes(codes, m, x, static_cast<float>(scale.exact));
  });
}

/// Codes follow from the scale that was stored, if that is a legitimate one.
void condition(const SglPerTokenQuantFp8& actual, const Exec& exec, Reference& reference) {
  const Tensor scratch = actual.output_q.clone();
  const GoldenOutput codes(scratch, &reference, "output_q");
  codes.make_open();
  parallel_for(exec.threads, actual.input.size(0), static_cast<double>(actual.input.size(1)), [&](std::int64_t m) {
    const std::vector<float> x = row_of(actual, m);
    const Bounded scale = scale_of(actual, quant::amax(x));
    const float stored = actual.output_s.as<float>()[m];
    if (stored == static_cast<float>(scale.exact) || may_flush(scale.exact)) return;
    if (stored < static_cast<float>(scale.exact - scale.slack) || stored > static_cast<float>(scale.exact + scale.slack)) return;
    put_codes(codes, m, x, stored);
  });
}

void fast(const SglPerTokenQuantFp8& op, const Exec& exec) {
  const std::int64_t rows = op.input.size(0), width = op.input.size(1);
  const bool streamed = worth_streaming(op.output_q);
  parallel_for_rows(exec.threads, rows, static_cast<double>(width), streamed, width, [&](std::int64_t m, Writing writing) {
    const DType type = op.input.dtype();
    dispatch<Fp8RowKernel>(exec.isa, Fp8Row{.input = row_begin(op.input, m, bits(type) / 8),
                                            .codes = op.output_q.as<std::uint8_t>() + m * width,
                                            .scale = op.output_s.as<float>() + m,
                                            .n = width,
                                            .type = type,
                                            .true_division = op.divide == "ieee",
                                            .next = next_row_begin(op.input, m, bits(type) / 8),
                                            .writing = writing});
  });
}

std::optional<Refusal> unsupported(const SglPerTokenQuantFp8& op, Mode mode) {
  if (mode == Mode::hopper && op.divide == "ieee") return Refusal{"divide", "'ieee' has no hopper mode: builds for the H200 use fast math"};
  return {};
}

void hopper(const SglPerTokenQuantFp8& op, const Exec& exec) {
  namespace hw = quant::hopper;
  const std::int64_t rows = op.input.size(0), width = op.input.size(1);
  parallel_for(exec.threads, rows, static_cast<double>(width), [&](std::int64_t m) {
    const std::vector<float> x = row_of(op, m);
    const float scale = hw::mul(quant::amax(x), hw::rcp(largest_code));
    const float factor = rows >= warp_kernel_rows && scale == 0 ? 0.0f : hw::rcp(scale);
    op.output_s.as<float>()[m] = scale;
    for (std::int64_t k = 0; k < width; ++k) {
      const float v = quant::clamp_high_first(hw::mul(x[static_cast<std::size_t>(k)], factor), -largest_code, largest_code);
      op.output_q.as<std::uint8_t>()[m * width + k] = quant::to_e4m3_satfinite(v);
    }
  });
}

/// The scale of what is less is flushed to zero.
constexpr double flushed_amax = 448 * flush_floor;

bool explains_zero_row(const SglPerTokenQuantFp8& actual, std::string_view output, std::int64_t linear) {
  if (output != "output_q") return false;
  const std::int64_t m = linear / actual.input.size(1);
  return actual.input.size(0) < warp_kernel_rows && actual.output_q.as<std::uint8_t>()[linear] == largest_code_bits &&
         actual.output_s.as<float>()[m] == 0 && static_cast<double>(quant::amax(row_of(actual, m))) < flushed_amax;
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_sgl_per_token_quant_fp8() {
  return define<ops::SglPerTokenQuantFp8>({
      .contract = R"(
amax = max |x| of the row, NaN passed over; scale = fl32(amax * fl32(1/448)), or fl32(amax/448) with divide=ieee; r =
fl32(1/scale), 0 where the scale is 0; code = e4m3(fl32(x*r)), to nearest even, saturating at 448. NaN products, and so NaN
elements and infinite ones, give +448; a zero row gives zeros of its elements' signs. Budget: scales 2^-24 relative (either
division) and all of a denormal; codes 5 units of 2^-24 of x*r (reciprocals within a unit in the last place, two roundings of
the product), from the scale that was stored; rows whose scale is denormal are open.)",
      .golden = ops::golden_by<quant::amax>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .condition = ops::condition,
      .defects = {{"zero-row-448", "output_q",
                   "an all-zero row, or one whose scale is flushed, gets scale 0 and the code 0x7E (448) everywhere below 16 tokens per "
                   "SM: 0 * inf = NaN, which the clamp "
                   "turns into +448",
                   ops::explains_zero_row}},
      .mistakes = {{"maximum-without-magnitude", "the maximum is taken of values, not of magnitudes", ops::golden_by<ops::largest_value>},
                   {"largest-code-240", "the largest code is taken for 240, as on another vendor's e4m3",
                    ops::golden_by<quant::amax, true>}},
      .customary = {{"*", CustomaryKind::close, 1e-3, 1e-3, "sgl-kernel/tests/test_per_token_quant_fp8.py (f16), decoded to f32"}},
      .cases = {"M=4 K=7168", "M=3 K=1076 --dtype input=f16", "M=5 K=512 --dtype input=f32 --attr divide=ieee",
                "M=3 K=64 --dist wide-exponent"},
      .bench_cases = {"M=1 K=7168", "M=512 K=7168", "M=4096 K=7168"},
  });
}
}  // namespace dodona
