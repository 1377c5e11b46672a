#include "ops/normalization/log_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/fixed_math.h"
#include "core/flaw.h"
#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "ops/rows/norms/log_softmax_row.h"
#include "quant/amax.h"
#include "quant/hopper/triton.h"

namespace dodona::ops {
namespace {

std::vector<float> row_of(const LogSoftmax& op, std::int64_t t) {
  const DType type = op.input.dtype();
  std::vector<float> x(static_cast<std::size_t>(op.input.size(-1)));
  quant::to_f32(type, row_begin(op.input, t, bits(type) / 8), x.data(), op.input.size(-1));
  return x;
}

/// log of a row's sum, in double, and how far honest ones may be off.
Bounded log_sum_of(const std::vector<float>& x, double most, bool shifted = true) {
  double sum = 0, error = 0;
  for (const float value : x) {
    // Units of 2^-24 of exp(d): d is rounded and multiplied with log2(e), rounded, and 4 for exp (2 ulp).
    const double d = static_cast<double>(value) - most, e = shifted ? fixed::exp(d) : unshifted_exponential(d);
    sum += e;
    if (e > 0) error += e * (2 * std::fabs(d) + 4);
  }
  const double log = fixed::log(sum), count = static_cast<double>(x.size());
  if (!std::isfinite(log)) return {log};
  return {log, f32_eps * (error / sum + count + 4 * std::fabs(log)) + count * flush_floor};
}

template <bool without_maximum>
void golden(const LogSoftmax& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.output, reference, "output");
  out.make_open();
  const std::int64_t width = op.input.size(-1);
  const bool shifted = !exponentials_are_unshifted(exec);
  parallel_for(exec.threads, row_count(op.input), 16 * static_cast<double>(width), [&](std::int64_t t) {
    const std::vector<float> x = row_of(op, t);
    const double most = shifted ? static_cast<double>(quant::largest_value(x)) : 0.0;
    const Bounded log_sum = log_sum_of(x, most, shifted);
    for (std::int64_t n = 0; n < width; ++n) {
      const double d = static_cast<double>(x[static_cast<std::size_t>(n)]) - (without_maximum ? 0.0 : most);
      const double value = d - log_sum.exact;
      if (!std::isfinite(value)) {
        // -inf of an element, or one whose distance from the maximum is beyond fp32; NaN of a NaN, or of no finite maximum.
        out.put(t * width + n, {value});
      } else {
        const bool open = std::fabs(d) > static_cast<double>(std::numeric_limits<float>::max());
        out.put(t * width + n, {value, log_sum.slack + f32_eps * (std::fabs(d) + std::fabs(value)), open});
      }
    }
  });
}

void fast(const LogSoftmax& op, const Exec& exec) {
  const DType type = op.input.dtype();
  const int element_bytes = bits(type) / 8;
  const std::int64_t width = op.input.size(-1);
  const bool streamed = worth_streaming(op.output);
  parallel_for(exec.threads, row_count(op.input), 4 * static_cast<double>(width), [&](std::int64_t t) {
    dispatch<LogSoftmaxRowKernel>(
        exec.isa, LogSoftmaxRow{row_begin(op.input, t, element_bytes), row_begin_mutable(op.output, t, element_bytes), width, type,
                                next_row_begin(op.input, t, element_bytes), streamed});
  });
}

void hopper(const LogSoftmax& op, const Exec& exec) {
  namespace tri = quant::hopper::triton;
  constexpr std::size_t block = 1024;
  const DType type = op.input.dtype();
  const std::int64_t width = op.input.size(-1);
  const tri::RowLayout layout = tri::layout_of(block, width, 4, bits(type));
  parallel_for(exec.threads, row_count(op.input), 64 * static_cast<double>(width), [&](std::int64_t t) {
    std::vector<float> x = row_of(op, t), exps;
    const float most = quant::largest_value(x);
    float sum = 0;
    for (std::size_t begin = 0; begin < x.size(); begin += block) {
      exps.clear();
      for (std::size_t n = begin; n < std::min(begin + block, x.size()); ++n) exps.push_back(tri::exp(x[n] - most));
      sum = tri::add_f32(sum, tri::row_sum(layout, exps, tri::add_f32));
    }
    const float log_sum = tri::log(sum);
    for (float& value : x) value = tri::add_f32(value - most, -log_sum);
    quant::from_f32(type, x.data(), row_begin_mutable(op.output, t, bits(type) / 8), width);
  });
}

void check(const LogSoftmax& op) {
  const std::int64_t last = op.input.rank() - 1;
  if (op.dim != -1 && op.dim != last)
    throw Error(ErrorCode::bad_value, "", "dim",
                "is " + std::to_string(op.dim) + ", expected -1 or " + std::to_string(last) + ", the last dimension");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_log_softmax() {
  return define<ops::LogSoftmax>({
      .contract = R"(
m = max of the row, NaN passed over; in fp32 d = x - m, s = sum of exp(d), in any order, out = rn(d - log(s)). A NaN in the row, an
infinite maximum: NaN everywhere. Budget, in units of 2^-24: of the sum, relative, N for its additions and for each term 4 (exp within 2
units in the last place) and 2 |d| (d and d * log2(e) are rounded); 4 |log(s)| (log within 2); |d| and |out| for their roundings.
 Hopper mode: Triton's kernel for an H100, rows in blocks of 1024 over four warps, whose sums are added in order; exp and log as
quant/hopper/triton.h has them.)",
      .golden = ops::golden<false>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .check = ops::check,
      .mistakes = {{"maximum-not-subtracted", "the maximum is left out of the difference", ops::golden<true>}},
      .cases = {"T=4 N=1536", "T=3 N=1001 --dtype input=f32", "T=5 N=48 --dtype input=f16 --dist outliers", "T=2 N=3000 --dist uniform"},
      .bench_cases = {"T=1 N=129280 --dtype input=f32", "T=64 N=129280"},
  });
}
}  // namespace dodona
