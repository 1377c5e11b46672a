#include "ops/quantization/per_token_quant_int8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "ops/rows/quantize/group_row.h"
#include "ops/rows/quantize/int8_codes.h"
#include "ops/rows/sums/row_sum.h"
#include "quant/amax.h"
#include "quant/hopper/triton.h"
#include "quant/int8.h"

namespace dodona::ops {
namespace {

constexpr float largest_code = 127.0f, least_magnitude = 1e-10f;

std::vector<float> row_of(const PerTokenQuantInt8& op, std::int64_t m) {
  const DType type = op.x.dtype();
  std::vector<float> x(static_cast<std::size_t>(op.x.size(-1)));
  quant::to_f32(type, row_begin(op.x, m, bits(type) / 8), x.data(), op.x.size(-1));
  return x;
}

double half_away(double v) {
  return static_cast<double>(std::isnan(v) ? 0.0 : std::clamp(std::round(v), -128.0, 127.0));
}

/// One rounding an addition, in any order: no partial sum exceeds that of all positive elements, or of all negative ones.
Bounded sum_of(const std::vector<float>& x) {
  double sum = 0, positive = 0, negative = 0;
  for (const float value : x) {
    sum += static_cast<double>(value);
    (value > 0 ? positive : negative) += std::fabs(static_cast<double>(value));
  }
  constexpr auto largest = static_cast<double>(std::numeric_limits<float>::max());
  // Beside an infinity the finite ones may add up to the other one.
  if (!std::isfinite(sum)) return {sum, 0.0, std::isinf(sum) && std::min(positive, negative) > largest};
  const double most = std::max(positive, negative);
  // A sum of nothing but zeros may have either sign.
  const double slack = most > 0 ? static_cast<double>(x.size()) * f32_eps * most : 0x1p-149;
  return {sum, slack, most > largest};
}

template <float (*maximum)(std::span<const float>)>
void golden_by(const PerTokenQuantInt8& op, const Exec& exec, Reference* reference) {
  const GoldenOutput codes(op.x_q, reference, "x_q"), scales(op.scales, reference, "scales"), sums(op.x_sum, reference, "x_sum");
  const std::int64_t width = op.x.size(-1);
  sums.make_open();
  parallel_for(exec.threads, row_count(op.x), static_cast<double>(width), [&](std::int64_t m) {
    const std::vector<float> x = row_of(op, m);
    const float amax = std::max(maximum(x), least_magnitude), factor = largest_code / amax;
    scales.put(m, rounded_f32({static_cast<double>(amax) * static_cast<double>(1.0f / largest_code)}));
    if (op.x_sum.defined()) sums.put(m, sum_of(x));
    for (std::int64_t k = 0; k < width; ++k) {
      const auto v = static_cast<double>(x[static_cast<std::size_t>(k)] * factor);
      // Units of 2^-24: 2 for a reciprocal off by a unit in the last place and 1 for ours, 1 for the rounding of each quotient, 1 of each
      // product.
      put_int8(codes, m * width + k, {v, std::isfinite(v) ? std::fabs(v) * 7 * f32_eps : 0.0}, half_away);
    }
  });
}

/// Mistake: the maximum of values, not of magnitudes.
float largest_value(std::span<const float> x) {
  return std::max(0.0f, quant::largest_value(x));
}

void fast(const PerTokenQuantInt8& op, const Exec& exec) {
  const DType type = op.x.dtype();
  const std::int64_t width = op.x.size(-1);
  const bool streamed = worth_streaming(op.x_q);
  parallel_for_rows(exec.threads, row_count(op.x), static_cast<double>(width), streamed, width, [&](std::int64_t m, Writing writing) {
    const GroupRow row{row_begin(op.x, m, bits(type) / 8), 1, width, type, next_row_begin(op.x, m, bits(type) / 8), writing};
    float amax = 0;
    dispatch<GroupMaximaKernel>(exec.isa, row, &amax);
    amax = std::max(amax, least_magnitude);
    const float factor = largest_code / amax;
    quant::set(op.scales, m, static_cast<double>(amax * (1.0f / largest_code)));
    dispatch<GroupCodesKernel>(exec.isa, row, &factor, GroupCode::i8_half_away, op.x_q.as<std::uint8_t>() + m * width);
    if (!op.x_sum.defined()) return;
    float sum = 0;
    dispatch<RowSumKernel>(exec.isa, RowSum{row.input, width, type, &sum});
    quant::set(op.x_sum, m, static_cast<double>(sum));
  });
}

void hopper(const PerTokenQuantInt8& op, const Exec& exec) {
  namespace tri = quant::hopper::triton;
  const std::int64_t width = op.x.size(-1);
  const auto block = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(width, 1))));
  const tri::RowLayout layout = tri::layout_of(block, width, std::clamp<std::int64_t>(block / 256, 1, 8), bits(op.x_q.dtype()));
  parallel_for(exec.threads, row_count(op.x), static_cast<double>(width), [&](std::int64_t m) {
    const std::vector<float> x = row_of(op, m);
    const float amax = std::max(quant::amax(x), least_magnitude), factor = tri::div(largest_code, amax);
    quant::set(op.scales, m, static_cast<double>(amax * (1.0f / largest_code)));  // a constant's reciprocal is rounded correctly
    for (std::int64_t k = 0; k < width; ++k)
      op.x_q.as<std::int8_t>()[m * width + k] = quant::to_int8_half_away(x[static_cast<std::size_t>(k)] * factor);
    if (!op.x_sum.defined()) return;
    if (width == 1) {
      // Nothing is added, and the conversions there and back fall away: a NaN keeps its bits.
      quant::set_bits(op.x_sum, m, quant::get_bits(op.x, m));
    } else {
      quant::set(op.x_sum, m, static_cast<double>(tri::row_sum(layout, x, tri::add_f32)));
    }
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_per_token_quant_int8() {
  return define<ops::PerTokenQuantInt8>({
      .contract = R"(
amax = max |x| of the row, NaN passed over, and at least 1e-10; scale = rn(fl32(amax * fl32(1/127))); f = fl32(127/amax); code =
fl32(x*f) to the nearest whole number, half away from zero; NaN gives 0, as do elements of a row with an infinity. x_sum = rn(sum of
the row in fp32, in any order). Budget: scales 2^-24 relative (either division), and the rounding to their type; codes 7 units of 2^-24
of x*f (reciprocals within a unit in the last place, roundings of quotient and product); sums K units of 2^-24 of the larger of two
sums, of all positive elements and of all negative ones; where that is beyond fp32, nothing is compared.
 Hopper mode: Triton's kernel for an H100, 127/amax by the approximate reciprocal; a row's sum in a block of bit_ceil(K) elements over
bit_ceil(K)/256 warps, at most 8: each thread adds its own in order, then halves of a warp and of the warps; of one element the sum is its bits, a NaN's too.)",
      .contract_version = 2,
      .golden = ops::golden_by<quant::amax>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .mistakes = {{"maximum-without-magnitude", "the maximum is taken of values, not of magnitudes", ops::golden_by<ops::largest_value>}},
      .cases = {"M=4 K=1536", "M=3 K=1001 --dtype x=f16 --attr scale_dtype=f16 --attr cal_sum=true", "M=5 K=512 --dtype x=f32 --dist ties",
                "M=3 K=64 --dist wide-exponent --attr cal_sum=true --attr scale_dtype=bf16"},
      .bench_cases = {"M=1 K=7168", "M=512 K=7168", "M=512 K=7168 --attr cal_sum=true"},
  });
}
}  // namespace dodona
