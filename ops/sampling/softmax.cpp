#include "ops/sampling/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "core/fixed_math.h"
#include "core/flaw.h"
#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "ops/draws/sampling.h"
#include "ops/draws/softmax_row.h"
#include "quant/hopper/block_sum.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

const float* row_of(const Softmax& op, std::int64_t b) {
  return reinterpret_cast<const float*>(row_begin(op.logits, b, 4));
}

/// Upstream's build flushes a denormal one, which then counts as 0.
float temperature_of(const Softmax& op, std::int64_t b) {
  return quant::hopper::ftz(threshold_of(op.temperature_arr, op.temperature, b));
}

/// FlashInfer's kernel shares rows of this width out, where there are up to 128 of them.
constexpr std::int64_t sliced_width = 24576;

/// Units beyond which nothing is known of a number: a factor of e.
constexpr double most_units = 1 / f32_eps;
/// (exp(u) - 1) in units: what an exponent's error of so many makes of a number, from above.
double grown(double units) {
  return units * (1 + std::min(units, most_units) * f32_eps);
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
      // NaN, +inf, and products beyond fp32 differ in kind; so does what is made of a number that may be flushed, where it counts.
      open = open || !(x <= static_cast<double>(std::numeric_limits<float>::max()));
      open = open || (std::fabs(x) > f32_eps && (may_flush(row[v]) || may_flush(factor)));
      most = std::fmax(most, x);
    }
    open = open || !(most >= -static_cast<double>(std::numeric_limits<float>::max()));
    if (!shifted) most = 0;
    // Units of 2^-24 of exp(x - m): the quotient by 4 of the difference and a rounding of each of x and m where a temperature is
    // divided by, but for what equals the largest, of which slices of long rows take the rounded m from the product that is not; a rounding
    // of the difference, 2 (2 + 1.173 |d|) for an approximate exponential, 4 for a second one.
    const double of_largest = width >= sliced_width ? std::fabs(most) : 0.0;
    const auto units = [&](double d) {
      const double of_quotient = cold ? 0.0 : d == 0 ? of_largest : 5 * std::fabs(d) + 2 * std::fabs(most);
      return of_quotient + 3.5 * std::fabs(d) + 8;
    };
    std::vector<double> exps(static_cast<std::size_t>(width));
    double sum = 0, error = 0;
    for (std::int64_t v = 0; v < width; ++v) {
      const double d = static_cast<double>(row[v]) * factor - most;
      const double e = open ? 0.0 : shifted ? fixed::exp(d) : unshifted_exponential(d);
      exps[static_cast<std::size_t>(v)] = e;
      sum += e;
      if (e > 0) error += e * grown(units(d));
    }
    // Of exponentials that were not shifted next to nothing is left near the denormals.
    open = open || (!shifted && sum < 0x1p-100);
    const double of_sum = error / sum + additions_of(width) + static_cast<double>(width) / 512 + 6;
    // Slices that their threads do not fill hold infinities, times 0: NaN.
    open = open || ((factor == 0 || may_flush(factor)) && width >= sliced_width);
    for (std::int64_t v = 0; v < width; ++v) {
      const double e = exps[static_cast<std::size_t>(v)], p = e / sum, d = static_cast<double>(row[v]) * factor - most;
      const bool vanishes = d + units(d) * f32_eps < -120;
      if (open || (shifted && !vanishes && !(units(d) + of_sum < most_units))) {
        out.put_open(b * width + v, open ? 0.0 : p);
      } else {
        out.put(b * width + v, !shifted && !std::isfinite(p) ? Bounded{p}
                               : e > 0                       ? Bounded{p, p * f32_eps * grown(units(d) + of_sum) + flush_floor}
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

namespace hw = quant::hopper;

constexpr float below_all = -std::numeric_limits<float>::infinity();
constexpr std::int64_t block_threads = 1024;

/// The largest of some logits, and the sum of their exponentials below it.
struct Partial {
  float most = below_all, sum = 0;
};

Partial joined(const Partial& a, const Partial& b) {
  if (std::isinf(a.most)) return b;
  if (std::isinf(b.most)) return a;
  const float most = std::fmax(a.most, b.most);
  return {most, hw::fma(a.sum, hw::expf(hw::sub(a.most, most)), hw::mul(b.sum, hw::expf(hw::sub(b.most, most))))};
}

/// A block of threads goes over `row` by chunks of `vector` neighbours a thread; what a chunk has too few of is `filled`.
Partial partial_of(std::span<const float> row, std::int64_t vector, float factor, float filled) {
  const std::int64_t chunk = block_threads * vector;
  std::vector<float> x(static_cast<std::size_t>(chunk)), sums(block_threads);
  Partial all;
  for (std::size_t begin = 0; begin < row.size(); begin += x.size()) {
    const std::span<const float> part = row.subspan(begin, std::min(x.size(), row.size() - begin));
    const auto end = std::transform(part.begin(), part.end(), x.begin(), [&](float logit) { return hw::mul(logit, factor); });
    std::fill(end, x.end(), filled);
    float most = below_all;
    for (const float value : x) most = std::fmax(most, value);
    if (std::isinf(most)) continue;
    const float above = std::fmax(all.most, most), of_before = hw::expf(hw::sub(all.most, above)),
                of_chunk = hw::expf(hw::sub(most, above));
    for (std::size_t t = 0; t < sums.size(); ++t) {
      float sum = 0;
      for (std::size_t j = 0; j < static_cast<std::size_t>(vector); ++j)
        sum = hw::add(sum, hw::expf(hw::sub(x[t * static_cast<std::size_t>(vector) + j], most)));
      sums[t] = hw::fma(sums[t], of_before, hw::mul(sum, of_chunk));
    }
    all.most = above;
  }
  all.sum = hw::sum_of_threads(sums);
  return all;
}

/// Parts of a row as CUB's `BlockReduce` joins those of a block's threads: neighbours within a warp, then warps in order.
Partial joined_by_threads(std::vector<Partial> parts) {
  parts.resize((parts.size() + 31) / 32 * 32);
  for (std::size_t step = 1; step < 32; step *= 2)
    for (std::size_t i = 0; i < parts.size(); i += 2 * step) parts[i] = joined(parts[i], parts[i + step]);
  Partial all = parts[0];
  for (std::size_t warp = 32; warp < parts.size(); warp += 32) all = joined(all, parts[warp]);
  return all;
}

/// FlashInfer's `OnlineSoftmax`: a block for each row, or, of up to 128 long rows, one for each 8192 logits or so.
void hopper(const Softmax& op, const Exec& exec) {
  const std::int64_t rows = op.logits.size(0), width = op.logits.size(1), vector = std::gcd<std::int64_t, std::int64_t>(4, width);
  const bool sliced = rows <= 128 && width >= sliced_width;
  const std::int64_t slices = sliced ? (width + 8191) / 8192 : 1;
  const std::int64_t slice = ((width + slices - 1) / slices + vector - 1) / vector * vector;
  parallel_for(exec.threads, rows, 64 * static_cast<double>(width), [&](std::int64_t b) {
    const std::span<const float> row(row_of(op, b), static_cast<std::size_t>(width));
    const float temperature = temperature_of(op, b), factor = temperature == 0 ? 0.0f : hw::div(1.0f, temperature);
    std::vector<Partial> parts;
    for (std::int64_t begin = 0; begin < width; begin += slice) {
      const auto part = row.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(std::min(slice, width - begin)));
      parts.push_back(partial_of(part, vector, factor, sliced ? hw::mul(below_all, factor) : below_all));
    }
    const Partial all = joined_by_threads(parts);
    const float inverse = hw::div(1.0f, all.sum);
    auto* const out = reinterpret_cast<float*>(row_begin_mutable(op.probs, b, 4));
    for (std::size_t v = 0; v < row.size(); ++v)
      out[v] = hw::mul(hw::expf(sliced ? hw::fma(row[v], factor, -all.most) : hw::sub(hw::mul(row[v], factor), all.most)), inverse);
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_softmax() {
  return define<ops::Softmax>({
      .contract = R"(
x = logits / temperature in fp32, by a reciprocal or not, 0 where the temperature is 0 or denormal, which upstream's build flushes; m = max; out = rn(exp(x - m) / s), s the sum of exp(x - m). A row
with NaN, with +inf, with nothing above -inf, or whose quotients are beyond fp32 or made of denormal logits or of a denormal reciprocal
is unspecified, and so is from V = 24576 on a temperature whose reciprocal is 0 or may be flushed to it,
for which upstream's kernel gives NaN where its slices do not divide into its threads. Budget, in units of 2^-24 of out: of each
exponential 8 + 3.5 |x - m| (difference, approximate exponentials below a part's maximum and of that below the row's), with a temperature
other than 1 also 5 |x - m| + 2 |m|, and from V = 24576 on |m| where x = m (upstream takes the rounded m from the product before its rounding); of the sum their
mean, weighted, 64 + V/1024 for its additions, V/512 for bringing parts to a new
maximum, 6 for division and product; u units of an exponent count as u + u^2 2^-24, and beyond 2^24 of them nothing is known; and 2^-126 for what
builds flush. Hopper mode: up to 128 rows of V >= 24576 in slices of 8192 logits or less, whose sums are brought to the row's maximum; others by one
block of 1024 threads.)",
      .contract_version = 3,
      .golden = ops::golden<ops::Mistake::none>,
      .fast = ops::fast,
      .hopper = ops::hopper,
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
