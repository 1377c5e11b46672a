#include "ops/sampling/top_k_mask_logits.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "ops/draws/above_row.h"
#include "ops/draws/fast_draws.h"
#include "ops/draws/mask.h"
#include "ops/draws/renorm.h"
#include "ops/draws/sampling.h"

namespace dodona::ops {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::span<const float> row_of(const TopKMaskLogits& op, std::int64_t row) {
  return {reinterpret_cast<const float*>(row_begin(op.logits, row, 4)), static_cast<std::size_t>(op.logits.size(1))};
}

std::uint32_t count_of_row(const TopKMaskLogits& op, std::int64_t row) {
  return count_of(op.top_k_arr, op.top_k, row);
}

/// What a logit of the row must exceed to be kept.
double threshold_of_row(const TopKMaskLogits& op, std::int64_t b, bool flushed) {
  const auto threshold = search_named(op.search) == Search::radix ? radix_mask_threshold : mask_threshold;
  return threshold(row_of(op, b), count_of_row(op, b), flushed);
}

/// body(row number, row, where it is written).
template <class Body>
void for_rows(const TopKMaskLogits& op, const Exec& exec, const Body& body) {
  parallel_for(exec.threads, op.logits.size(0), 16 * static_cast<double>(op.logits.size(1)),
               [&](std::int64_t b) { body(b, row_of(op, b), reinterpret_cast<float*>(row_begin_mutable(op.mask_logits, b, 4))); });
}

void masked(std::span<const float> row, double low, float* to) {
  for (std::size_t i = 0; i < row.size(); ++i) to[i] = static_cast<double>(row[i]) > low ? row[i] : -infinity;
}

template <bool ties_are_cut>
void golden(const TopKMaskLogits& op, const Exec& exec, Reference* reference) {
  for_rows(op, exec, [&](std::int64_t b, std::span<const float> row, float* to) {
    const double low = threshold_of_row(op, b, false);
    masked(row, low, to);
    if (!ties_are_cut) return;
    auto left = std::int64_t{count_of_row(op, b)};
    for (std::size_t i = 0; i < row.size(); ++i)
      if (to[i] > -infinity && left-- <= 0) to[i] = -infinity;
  });
  record_exact(op.mask_logits, reference, "mask_logits");
  if (reference == nullptr) return;
  GoldenOutput(op.mask_logits, reference, "mask_logits").make_open();
  ReferenceOutput& record = reference->output("mask_logits", op.mask_logits.elements());
  for_rows(op, exec, [&](std::int64_t b, std::span<const float> row, const float* to) {
    const double low = threshold_of_row(op, b, true);
    const bool unknown = std::any_of(row.begin(), row.end(), [](float x) { return x != x; });
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool kept = static_cast<double>(std::fabs(row[i]) < flush_floor ? 0.0f : row[i]) > low;
      record.unspecified[static_cast<std::size_t>(b) * row.size() + i] = unknown || (!ties_are_cut && kept != (to[i] > -infinity)) ? 1 : 0;
    }
  });
}

void fast(const TopKMaskLogits& op, const Exec& exec) {
  const bool streamed = worth_streaming(op.mask_logits);
  for_rows(op, exec, [&](std::int64_t b, std::span<const float> row, float* to) {
    const std::int64_t count = count_of_row(op, b), size = op.logits.size(1);
    const float last = count < size ? kth_largest(row, std::max<std::int64_t>(1, count), exec) : -infinity;
    // Where the search begins in fp32 decides about logits of that size, and where it ends about a count of 0.
    constexpr float no_fractions = 0x1p24f;
    const bool searched = count == 0 || (last > -infinity && std::fabs(last) >= no_fractions);
    const float low = searched ? float_below(threshold_of_row(op, b, false)) : std::nextafter(last, -infinity);
    dispatch<AboveRowKernel>(exec.isa, MaskBelow{row.data(), size, low, to, streamed});
  });
}

void hopper(const TopKMaskLogits& op, const Exec& exec) {
  for_rows(op, exec, [&](std::int64_t b, std::span<const float> row, float* to) {
    const double low = threshold_of_row(op, b, true);
    for (std::size_t i = 0; i < row.size(); ++i)
      to[i] = static_cast<double>(std::fabs(row[i]) < flush_floor ? 0.0f : row[i]) > low ? row[i] : -infinity;
  });
}

void check(const TopKMaskLogits& op) {
  if (search_named(op.search) == Search::radix) return;
  for (std::int64_t b = 0; b < op.logits.size(0); ++b)
    if (std::int64_t{count_of_row(op, b)} < op.logits.size(1)) require_finite(row_of(op, b), b, "logits");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_top_k_mask_logits() {
  return define<ops::TopKMaskLogits>({
      .contract = R"(
k as an unsigned number of 32 bits. k >= V: every number is kept, NaN becomes -inf. Otherwise every logit of which fewer than k are larger is kept,
bit for bit, so that all that equal the k-th are, and the others become -inf. Upstream searches in thirds of [min - 1, max], min - 1 in fp32: where
the least logit is 2^24 or more in magnitude it may lie on that end, and is dropped then. k = 0 keeps what equals the largest, or nothing where that
is negative and V no multiple of 1024 gcd(4, V), for threads behind the end of the row bring zeros into its range. +inf is refused: that search would not
end. Nothing is specified of rows with NaN, and of denormals about a threshold of zero, which fast-math builds count as zero.
search=radix: the k-th is found bit by bit, so that the least logit is no matter, k = 0 keeps nothing, and +inf may be there.)",
      .contract_version = 2,
      .golden = ops::golden<false>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .check = ops::check,
      .mistakes = {{"ties-are-cut", "exactly k are kept, of equals the first ones", ops::golden<true>}},
      .customary = {{"mask_logits", CustomaryKind::unchecked, 0, 0, "sgl-kernel/tests/test_sampling.py"}},
      .cases = {"B=4 V=1000 --attr top_k=50", "B=5 V=257 --attr top_k=8 --dist ties", "B=3 V=3200 --with top_k",
                "B=3 V=96 --attr top_k=70 --dist edge", "B=3 V=96 --attr top_k=95 --dist edge --attr search=radix"},
      .bench_cases = {"B=1 V=129280 --attr top_k=40", "B=64 V=129280 --attr top_k=40"},
  });
}
}  // namespace dodona
