#include "ops/normalization/mean_dim.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/rows/sums/row_sum.h"
#include "quant/hopper/triton.h"

namespace dodona::ops {
namespace {

namespace tri = quant::hopper::triton;

constexpr std::size_t block = 1024;
constexpr double largest_f32 = std::numeric_limits<float>::max();

/// How upstream's blocks lie in threads.
tri::RowLayout layout_of(const MeanDim& op) {
  return tri::layout_of(block, op.input.size(2) == 1 ? op.input.size(1) : 1, 4, bits(op.input.dtype()));
}

/// Elements n of output (m, k).
std::vector<float> column_of(const MeanDim& op, std::int64_t m, std::int64_t k) {
  const std::int64_t count = op.input.size(1), behind = op.input.size(2);
  std::vector<float> x(static_cast<std::size_t>(count));
  for (std::int64_t n = 0; n < count; ++n)
    x[static_cast<std::size_t>(n)] = static_cast<float>(quant::load(op.input.dtype(), op.input.data(), (m * count + n) * behind + k));
  return x;
}

/// The least distance that a rounding to a 16-bit type may have, relative and absolute.
struct Rounding {
  double relative, least, largest;
};
Rounding rounding_of(DType type) {
  return type == f16 ? Rounding{0x1p-11, 0x1p-25, 65504} : Rounding{0x1p-8, 0x1p-134, largest_f32};
}

/// In fp32 in any order; 16-bit types may be added as such, in upstream's trees.
Bounded sum_of(const MeanDim& op, const std::vector<float>& x) {
  double sum = 0, positive = 0, negative = 0;
  for (const float element : x) {
    const auto value = static_cast<double>(element);
    sum += value;
    (value > 0 ? positive : negative) += std::fabs(value);
  }
  const Rounding rounding = rounding_of(op.input.dtype());
  const auto may_overflow = [&](double magnitude) { return !(magnitude < rounding.largest * (1 - 0x1p-4)); };
  // Beside an infinity the finite ones may add up to the other one.
  if (!std::isfinite(sum)) return {sum, 0.0, std::isinf(sum) && may_overflow(std::min(positive, negative))};
  const double most = std::max(positive, negative);
  // A sum of nothing but zeros may have either sign.
  Bounded bounded{sum, most > 0 ? static_cast<double>(x.size()) * f32_eps * most : 0x1p-149, most > largest_f32};
  if (op.input.dtype() == f32) return bounded;
  const auto add = [&](float a, float b) {
    const float partial = a + b;
    const double magnitude = std::fabs(static_cast<double>(partial));
    bounded.slack += std::max(magnitude * rounding.relative, rounding.least);
    bounded.open = bounded.open || may_overflow(magnitude);
    return partial;
  };
  for (std::size_t begin = 0; begin < x.size(); begin += block)
    tri::row_sum(layout_of(op), std::span(x).subspan(begin, std::min(block, x.size() - begin)), add);
  return bounded;
}

template <bool of_all_but_one>
void golden(const MeanDim& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.output, reference, "output");
  out.make_open();
  const auto count = static_cast<double>(op.input.size(1));
  parallel_for(exec.threads, op.output.elements(), count, [&](std::int64_t e) {
    const std::vector<float> x = column_of(op, e / op.output.size(1), e % op.output.size(1));
    const Bounded mean = sum_of(op, x) * (1.0 / (of_all_but_one ? count - 1 : count));
    // 3 units of 2^-24: a division by way of an approximate reciprocal.
    out.put(e, std::isfinite(mean.exact) ? mean.widened(3 * f32_eps * std::fabs(mean.exact)) : mean);
  });
}

void fast(const MeanDim& op, const Exec& exec) {
  const DType type = op.input.dtype();
  const std::int64_t count = op.input.size(1), behind = op.input.size(2);
  const auto divisor = static_cast<float>(count);
  parallel_for(exec.threads, op.input.size(0), static_cast<double>(count * behind), [&](std::int64_t m) {
    const std::byte* const rows = op.input.as<std::byte>() + m * count * behind * bits(type) / 8;
    std::vector<float> sums(static_cast<std::size_t>(behind), 0.0f), row(sums.size());
    if (behind == 1) {
      dispatch<RowSumKernel>(exec.isa, RowSum{rows, count, type, sums.data()});
    } else {
      for (std::int64_t n = 0; n < count; ++n) {
        quant::to_f32(type, rows + n * behind * bits(type) / 8, row.data(), behind);
        for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += row[k];
      }
    }
    for (float& sum : sums) sum = std::isnan(sum) ? quant::hopper::canonical_nan() : sum / divisor;
    quant::from_f32(type, sums.data(), op.output.as<std::byte>() + m * behind * bits(type) / 8, behind);
  });
}

void hopper(const MeanDim& op, const Exec& exec) {
  const DType type = op.input.dtype();
  const std::int64_t count = op.input.size(1), behind = op.input.size(2);
  const tri::RowLayout layout = layout_of(op);
  const auto add = [type](float a, float b) {
    if (type == f32) return tri::add_f32(a, b);
    return static_cast<float>(quant::round_to(type, static_cast<double>(a) + static_cast<double>(b)));
  };
  parallel_for(exec.threads, op.output.elements(), 16 * static_cast<double>(count), [&](std::int64_t e) {
    const std::vector<float> x = column_of(op, e / behind, e % behind);
    float sum = 0;
    for (std::size_t begin = 0; begin < x.size(); begin += block)
      sum = tri::add_f32(sum, tri::row_sum(layout, std::span(x).subspan(begin, std::min(block, x.size() - begin)), add));
    const float mean = tri::div(sum, static_cast<float>(count));
    quant::from_f32(type, &mean, op.output.as<std::byte>() + e * bits(type) / 8, 1);
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_mean_dim() {
  return define<ops::MeanDim>({
      .contract = R"(
sum over n in fp32, in any order, divided by N; rounded once. Types of 16 bits may be added as such in blocks of 1024 whose sums are added
in fp32, as upstream does. Budget: N units of 2^-24 of the larger of two sums, of all positive elements and of all negative ones; of 16-bit
types a unit of their last place of each partial sum in upstream's trees, below; 3 units of 2^-24 of the mean for the division. Where a sum
may be beyond fp32, or a partial sum of f16 beyond f16, nothing is compared.
 Hopper mode: Triton's kernel for an H100, blocks of 1024 over four warps, rounded to the type after each addition: each thread adds its own
in order (8 or 4 neighbours at a time where K = 1 and N is a multiple of 16, else every 128th), then halves of a warp and of the warps; the
blocks' sums in order in fp32.)",
      .golden = ops::golden<false>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .mistakes = {{"one-less", "the sum is divided by N - 1", ops::golden<true>}},
      .cases = {"M=4 N=1536 K=1 --dtype input=f32", "M=3 N=100 K=7 --dtype input=f32", "M=2 N=1030 K=3 --dtype input=f16",
                "M=5 N=48 K=1 --dtype input=f16 --dist uniform"},
      .bench_cases = {"M=512 N=7168 K=1", "M=8 N=512 K=512"},
  });
}
}  // namespace dodona
