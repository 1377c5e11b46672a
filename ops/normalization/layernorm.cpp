#include "ops/normalization/layernorm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/rows/norms/layernorm_row.h"
#include "quant/hopper/block_sum.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

/// Roundings of a sum of n terms: a chain of max(64, n/128), then a tree.
double sum_units(std::int64_t n) {
  return std::max(64.0, static_cast<double>(n) / 128.0) + std::ceil(std::log2(static_cast<double>(std::max<std::int64_t>(n, 2))));
}

/// What golden mode knows of a row.
struct Moments {
  double mean = 0, mean_slack = 0;
  double factor = 0, factor_slack = 0;
  bool open = false;  ///< sums that may overflow fp32, or a factor that may be anything
};

/// Variants of the formula, for mistakes.
struct Formula {
  bool eps_outside = false, over_n_less_1 = false, about_zero = false, padded = false;
};

/// Slack:
///  - the mean: the sum's roundings, each of at most 2^-24 of sum |x|, a division (2 ulp, 4 units) and its rounding;
///  - an error e of the mean adds e^2 to the variance, for deviations add up to 0; beside that the sum's roundings, one for each deviation
///  twice and its square, 5 for the mean of squares and eps; builds that flush denormals lose 2^-125 of it;
///  - the factor lies between those of the largest and the least variance, and 4 units for rsqrt or sqrt and a reciprocal.
Moments moments_of(const std::vector<double>& x, double eps, Formula formula) {
  const auto n = static_cast<std::int64_t>(x.size());
  const double units = sum_units(n) * f32_eps, count = static_cast<double>(n);
  double sum = 0, magnitudes = 0, squares = 0;
  for (const double value : x) sum += value, magnitudes += std::fabs(value);
  Moments m;
  m.mean = sum / count;
  m.mean_slack = (units + 5 * f32_eps) * (magnitudes / count) + flush_floor;
  const double middle = formula.about_zero ? 0 : m.mean;
  for (const double value : x) squares += (value - middle) * (value - middle);
  // Zeros up to a power of two lie as far from the mean as it is.
  if (formula.padded) squares += (static_cast<double>(std::bit_ceil(x.size())) - count) * middle * middle;
  const double variance = squares / (formula.over_n_less_1 ? count - 1 : count);
  m.factor = formula.eps_outside ? 1 / (std::sqrt(variance) + eps) : 1 / std::sqrt(variance + eps);
  if (std::isnan(m.factor)) return m;
  const double drift = m.mean_slack * m.mean_slack, blur = (units + 8 * f32_eps) * (variance + drift + eps) + 4 * flush_floor;
  const double least = variance + eps - blur, most = variance + drift + eps + blur;
  m.open = !(magnitudes < 0x1p126) || !(2 * squares < 0x1p126) || !(least > 0);
  if (m.open) return m;
  m.factor_slack = std::fmax(1 / std::sqrt(least) - 1 / std::sqrt(variance + eps), 1 / std::sqrt(variance + eps) - 1 / std::sqrt(most)) +
                   4 * f32_eps / std::sqrt(least);
  return m;
}

void golden_by(const Layernorm& op, Formula formula, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.out, reference, "out");
  out.make_open();
  const std::int64_t width = op.gemma.size(0);
  std::vector<double> gemma(static_cast<std::size_t>(width)), beta(gemma);
  quant::to_f64(f32, op.gemma.data(), gemma.data(), width);
  quant::to_f64(f32, op.beta.data(), beta.data(), width);
  parallel_for(exec.threads, op.input.size(0), static_cast<double>(width), [&](std::int64_t t) {
    std::vector<double> x(static_cast<std::size_t>(width));
    quant::to_f64(bf16, row_begin(op.input, t, 2), x.data(), width);
    const Moments m = moments_of(x, static_cast<float>(op.eps), formula);
    for (std::size_t d = 0; d < x.size(); ++d) {
      const double deviation = x[d] - m.mean;
      const Bounded centred{deviation, m.mean_slack + f32_eps * std::fabs(deviation)};
      // Two products, each rounded, and the sum with beta.
      const Bounded normalised = centred * Bounded{m.factor, m.factor_slack}, scaled = normalised * gemma[d];
      const double y = scaled.exact + beta[d];
      // What builds that flush denormals lose: x, x - m and their product with the factor, on its way through the factors behind it.
      const double flushed =
          flush_floor * (3 + std::fabs(gemma[d]) * (1 + 2 * std::fabs(m.factor))) + (may_flush(gemma[d]) ? std::fabs(scaled.exact) : 0.0);
      const double slack = scaled.slack + f32_eps * (2 * std::fabs(scaled.exact) + std::fabs(y)) + flushed;
      // Where the product may be beyond fp32, infinities of both signs may meet, or one and a beta that is.
      const bool beyond = !(std::fabs(scaled.exact) + slack < 0x1p127);
      out.put(t * width + static_cast<std::int64_t>(d), {y, slack, m.open || beyond});
    }
  });
}

void golden(const Layernorm& op, const Exec& exec, Reference* reference) {
  golden_by(op, {}, exec, reference);
}

void fast(const Layernorm& op, const Exec& exec) {
  parallel_for(exec.threads, op.input.size(0), static_cast<double>(op.input.size(1)), [&](std::int64_t t) {
    dispatch<LayernormRowKernel>(exec.isa, LayernormRow{row_begin(op.input, t, 2), op.gemma.as<float>(), op.beta.as<float>(),
                                                        row_begin_mutable(op.out, t, 2), op.input.size(1), static_cast<float>(op.eps)});
  });
}

namespace hw = quant::hopper;

float plus_pair(float sum, std::span<const float> x) {
  return hw::add(sum, x.size() == 2 ? hw::add(x[0], x[1]) : x[0]);
}
float plus_squares(float sum, std::span<const float> d) {
  return d.size() == 2 ? hw::add(sum, hw::fma(d[0], d[0], hw::mul(d[1], d[1]))) : hw::fma(d[0], d[0], sum);
}

/// FlashInfer's `generalLayerNorm`: min(1024, D) threads rounded up to whole warps, each with pairs of neighbours where D is even.
void hopper(const Layernorm& op, const Exec& exec) {
  const std::int64_t width = op.gemma.size(0);
  const auto n = static_cast<float>(width), eps = static_cast<float>(op.eps);
  const std::int64_t vector = width % 2 == 0 ? 2 : 1, threads = (std::min<std::int64_t>(1024, width) + 31) / 32 * 32;
  const hw::BlockLayout sums{vector, threads, plus_pair, hw::butterfly, hw::butterfly_of_warps};
  const hw::BlockLayout squares{vector, threads, plus_squares, hw::butterfly, hw::butterfly_of_warps};
  parallel_for(exec.threads, op.input.size(0), static_cast<double>(width), [&](std::int64_t t) {
    std::vector<float> x(static_cast<std::size_t>(width));
    quant::to_f32(bf16, row_begin(op.input, t, 2), x.data(), width);
    const float mean = hw::div(hw::block_sum(x, sums), n);
    for (float& value : x) value = hw::sub(value, mean);
    const float factor = hw::rsqrt(hw::fma(hw::block_sum(x, squares), hw::rcp(n), eps));
    for (std::size_t d = 0; d < x.size(); ++d)
      x[d] = hw::add(hw::mul(hw::mul(x[d], factor), op.gemma.as<const float>()[d]), op.beta.as<const float>()[d]);
    quant::from_f32(bf16, x.data(), row_begin_mutable(op.out, t, 2), width);
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_layernorm() {
  return define<ops::Layernorm>({
      .contract = R"(
x widened to fp32; its mean, then the mean of the squared deviations from it (two passes, over D), + eps, 1/sqrt; ((x - m) * r) * gemma +
beta; all in fp32, one rounding to bf16 (nearest even). The order of the sums is open: chains of at most max(64, D/128) additions, then a tree.
Budget: the mean, chain + log2 D + 5 units of 2^-24 of mean |x|; what its error's square and chain + log2 D + 8 units of the variance and eps
make of r, and 4 units of r; a unit for each product, for x - m and for the sum; what flushed denormals carry (x, x - m, their product with r, gemma,
beta). A product that may be beyond fp32 leaves the element open. Rows whose sums come near the end of fp32, and such whose
variance and eps are lost in these errors, are not judged. Hopper mode: min(1024, D) threads with pairs of neighbours where D is even, butterflies
over lanes and warps; denormals flushed.)",
      .contract_version = 2,
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .mistakes = {{"eps-outside-root", "epsilon is added to the deviation, not under the root",
                    [](const ops::Layernorm& op, const Exec& exec, Reference* reference) {
                      ops::golden_by(op, {.eps_outside = true}, exec, reference);
                    },
                    true},
                   {"variance-over-n-less-1", "the variance is taken over D - 1",
                    [](const ops::Layernorm& op, const Exec& exec, Reference* reference) {
                      ops::golden_by(op, {.over_n_less_1 = true}, exec, reference);
                    }},
                   {"padding-in-variance", "zeros that fill rows up to a power of two count in the variance, each with the mean's square",
                    [](const ops::Layernorm& op, const Exec& exec, Reference* reference) {
                      ops::golden_by(op, {.padded = true}, exec, reference);
                    },
                    true},
                   {"variance-about-zero", "the variance is the mean of squares: the mean is not taken off before",
                    [](const ops::Layernorm& op, const Exec& exec, Reference* reference) {
                      ops::golden_by(op, {.about_zero = true}, exec, reference);
                    }}},
      .customary = {{"*", CustomaryKind::close, 1e-2, 1e-2, "flashinfer tests/utils/test_norm.py test_layernorm"}},
      .cases = {"T=4 D=128", "T=3 D=111", "T=2 D=1024 --attr eps=0.01"},
      .bench_cases = {"T=4096 D=128", "T=512 D=7168"},
  });
}
}  // namespace dodona
