#include "ops/rows/sums/rank_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/rows/sums/sum_rows.h"
#include "ops/rows/sums/term_sums.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

/// The largest relative error of one rounding to the type, and its largest finite number.
double unit_of(DType type) {
  return type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : f32_eps;
}
double largest_of(DType type) {
  return type == DType::bf16 ? 0x1.FEp127 : type == DType::f16 ? 65504.0 : std::numeric_limits<float>::max();
}

/// The unit of a sum of so many terms as a whole, each partial sum of which is rounded to the type and, on its way, to fp32.
TermSums terms_of(const RankSum& how) {
  const bool rounded = how.any_order || how.rounded_between;
  const double additions = static_cast<double>(std::max<std::int64_t>(1, how.ranks - 1));
  const double unit = rounded ? unit_of(how.type) + f32_eps : f32_eps;
  return {.count = static_cast<double>(how.ranks),
          .flushes = how.flushes || how.any_order,
          .any_order = how.any_order,
          .unit = (std::pow(1.0 + unit, additions) - 1.0) / additions,
          .largest = rounded ? largest_of(how.type) : std::numeric_limits<float>::max()};
}

/// Calls add(row) for the terms of each rank in turn, widened to fp32.
template <class Add>
void each_rank(const RankSum& how, const RankRun& run, const Add& add) {
  std::vector<float> row(static_cast<std::size_t>(run.elements));
  for (std::int64_t i = 0; i + how.left_out < how.ranks; ++i) {
    quant::to_f32(how.type, run.terms + (run.first + i) % how.ranks * run.rank_bytes, row.data(), run.elements);
    add(row);
  }
}

float narrowed(DType type, float x) {
  return static_cast<float>(quant::round_to(type, x));
}
float start_of(const RankSum& how) {
  return how.negative_zero ? -0.0f : 0.0f;
}

}  // namespace

std::vector<RankRun> cut(const RankRun& run, DType type) {
  constexpr std::int64_t most = 4096;
  std::vector<RankRun> runs;
  for (std::int64_t begin = 0; begin < run.elements; begin += most)
    runs.push_back({run.terms + begin * bits(type) / 8, run.rank_bytes, std::min(most, run.elements - begin), run.first});
  return runs;
}

std::vector<Bounded> golden_sums(const RankSum& how, const RankRun& run) {
  const float start = start_of(how);
  std::vector<TermSum> terms(static_cast<std::size_t>(run.elements), TermSum{.sum = start, .in_order = start});
  each_rank(how, run, [&](const std::vector<float>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      terms[i].add(row[i]);
      if (how.rounded_between) terms[i].in_order = narrowed(how.type, terms[i].in_order);
    }
  });
  const TermSums sums = terms_of(how);
  std::vector<Bounded> out;
  for (const TermSum& term : terms) {
    out.push_back(sums.bounded(term));
    // Sums that begin with 0 have no -0.
    if (how.any_order && out.back().exact == 0) out.back().slack = std::fmax(out.back().slack, flush_floor);
  }
  return out;
}

std::vector<float> hopper_sums(const RankSum& how, const RankRun& run) {
  std::vector<float> sum(static_cast<std::size_t>(run.elements), start_of(how));
  bool begun = false;
  each_rank(how, run, [&](const std::vector<float>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      // A term of -0 is sent as 0, which the sum of a negative number that is flushed then is.
      const float term = !how.negative_zero && row[i] == 0 ? 0.0f : row[i];
      // The first terms are taken as they are: nothing is added to them, so nothing of them is flushed.
      sum[i] = begun && how.flushes ? quant::hopper::add(sum[i], term) : sum[i] + term;
      if (how.rounded_between) sum[i] = narrowed(how.type, sum[i]);
    }
    begun = true;
  });
  return sum;
}

void fast_sums(const RankSum& how, const RankRun& run, void* output, Isa isa) {
  std::vector<std::int32_t> order;
  for (std::int64_t i = 0; i < how.ranks; ++i) order.push_back(static_cast<std::int32_t>((run.first + i) % how.ranks));
  const SumRows row{.input = run.terms,
                    .row_bytes = run.rank_bytes,
                    .permutation = order.data(),
                    .factors = nullptr,
                    .scale = 1.0f,
                    .output = output,
                    .count = how.ranks,
                    .n = run.elements,
                    .type = how.type,
                    .writing = Writing::cached,
                    .rounded_between = how.rounded_between,
                    .start = start_of(how)};
  dispatch<SumRowsKernel>(isa, row);
}

}  // namespace dodona::ops
