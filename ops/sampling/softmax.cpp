#include "ops/sampling/softmax.h"

#include <cmath>
#include <limits>
#include <vector>

#include "core/fixed_math.h"
#include "core/flaw.h"
#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "ops/draws/sampling.h"
#include "ops/draws/softmax_row.h"

namespace dodona::ops {
namespace {

const float* row_of(const Softmax& op, std::int64_t b) {
  return reinterpret_cast<const float*>(row_begin(op.logits, b, 4));
}

float temperature_of(const Softmax& op, std::int64_t b) {
  return threshold_of(op.temperature_arr, op.temperature, b);
}

enum class Mistake { none, temperature_multiplied, temperature_left_out };

template <Mistake mistake>
void golden(const Softmax& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.probs, reference, "probs");
  out.make_open();
  const std::int64_t width = op.logits.size(1);
  const bool shifted = !exponentials_are_unshifted(exec);
  parallel_for(exec.threads, op.logits.size(0), 32 * static_cast<double>(width), [&](std::int64_t b) {
    const float* row = row_of(op, b);
    const double temperature = temperature_of(op, b);
    const bool cold = mistake == Mistake::temperature_left_out || temperature == 1;
    const double factor = cold ? 1.0 : mistake == Mistake::temperature_multiplied ? temperature : temperature == 0 ? 0.0 : 1 / temperature;
    double most = -std::numeric_limits<double>::infinity();
    bool open = false;
    for (std::int64_t v = 0; v < width; ++v) {
      const double x = static_cast<double>(row[v]) * factor;
      // NaN, +inf, and products beyond fp32 differ in kind.
      open = open || !(x <= static_cast<double>(std::numeric_limits<float>::max()));
      most = std::fmax(most, x);
    }
    open = open || !(most >= -static_cast<double>(std::numeric_limits<float>::max()));
    if (!shifted) most = 0;
    // Units of 2^-24 of exp(x - m): the quotient by 4 of the difference and a rounding of each of x and m where a temperature is
    // divided by, but for what equals the largest; a rounding of the difference, 2 (2 + 1.173 |d|) for an approximate exponential, 4 for a
    // second one.
    const auto units = [&](double d) { return (cold || d == 0 ? 0.0 : 5 * std::fabs(d) + 2 * std::fabs(most)) + 3.5 * std::fabs(d) + 8; };
    std::vector<double> exps(static_cast<std::size_t>(width));
    double sum = 0, error = 0;
    for (std::int64_t v = 0; v < width; ++v) {
      const double d = static_cast<double>(row[v]) * factor - most;
      const double e = open ? 0.0 : shifted ? fixed::exp(d) : unshifted_exponential(d);
      exps[static_cast<std::size_t>(v)] = e;
      sum += e;
      if (e > 0) error += e * units(d);
    }
    // Of exponentials that were not shifted next to nothing is left near the denormals.
    open = open || (!shifted && sum < 0x1p-100);
    const double of_sum = error / sum + additions_of(width) + static_cast<double>(width) / 512 + 6;
    for (std::int64_t v = 0; v < width; ++v) {
      const double e = exps[static_cast<std::size_t>(v)], p = e / sum, d = static_cast<double>(row[v]) * factor - most;
      if (open) {
        out.put_open(b * width + v, 0.0);
      } else {
        out.put(b * width + v, !shifted && !std::isfinite(p) ? Bounded{p}
                               : e > 0                       ? Bounded{p, p * f32_eps * (units(d) + of_sum) + flush_floor}
                                                             : Bounded{});
      }
    }
  });
}

void fast(const Softmax& op, const Exec& exec) {
  const std::int64_t width = op.logits.size(1);
  const bool streamed = worth_streaming(op.probs);
  parallel_for(exec.threads, op.logits.size(0), 8 * static_cast<double>(width), [&](std::int64_t b) {
    const float temperature = temperature_of(op, b);
    const Scratch exps = exec.scratch.take(static_cast<std::size_t>(width) * sizeof(float));
    dispatch<SoftmaxRowKernel>(
        exec.isa, SoftmaxRow{row_of(op, b), exps.as<float>(), reinterpret_cast<float*>(row_begin_mutable(op.probs, b, 4)), width,
                             temperature == 0 ? 0.0f : 1.0f / temperature, streamed});
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_softmax() {
  return define<ops::Softmax>({
      .contract = R"(
x = logits / temperature in fp32, by a reciprocal or not, 0 where the temperature is 0; m = max; out = rn(exp(x - m) / s), s the sum of exp(x - m). A row
with NaN, with +inf, with nothing above -inf, or whose quotients are beyond fp32 is unspecified. Budget, in units of 2^-24 of out: of each
exponential 8 + 3.5 |x - m| (difference, approximate exponentials below a part's maximum and of that below the row's), with a temperature
other than 1 also 5 |x - m| + 2 |m|; of the sum their mean, weighted, 64 + V/1024 for its additions, V/512 for bringing parts to a new
maximum, 6 for division and product; and 2^-126 for what builds flush.)",
      .golden = ops::golden<ops::Mistake::none>,
      .fast = ops::fast,
      .mistakes = {{"temperature-multiplied", "logits are multiplied by the temperature",
                    ops::golden<ops::Mistake::temperature_multiplied>},
                   {"temperature-left-out", "logits are not divided by the temperature", ops::golden<ops::Mistake::temperature_left_out>}},
      .customary = {{"probs", CustomaryKind::close, 1e-5, 1e-5, "flashinfer/tests/utils/test_sampling.py"}},
      .cases = {"B=4 V=1000 --attr temperature=0.6", "B=7 V=1601 --with temperature", "B=5 V=33 --attr temperature=2 --dist ties",
                "B=2 V=2050 --dist outliers --attr temperature=8"},
      .bench_cases = {"B=1 V=129280 --attr temperature=0.6", "B=64 V=129280 --attr temperature=0.6"},
  });
}
}  // namespace dodona
