#include "ops/draws/renorm_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "ops/draws/fast_draws.h"

namespace dodona::ops {
namespace {

std::span<const float> row_of(const Tensor& tensor, std::int64_t row) {
  return {reinterpret_cast<const float*>(row_begin(tensor, row, 4)), static_cast<std::size_t>(tensor.size(1))};
}

bool is_searched(const RenormRows& rows, std::int64_t b) {
  const Cut& cut = rows.cuts[static_cast<std::size_t>(b)];
  if (cut.search != Search::thirds) return false;
  return cut.count ? std::int64_t{*cut.count} < rows.probs.size(1) : *cut.mass < 1;
}

/// body(row number, row, cut) for each row, none of which holds what the search would not end at.
template <class Body>
void for_rows(const RenormRows& rows, const Exec& exec, const Body& body) {
  const std::int64_t count = rows.probs.size(0);
  const auto width = static_cast<double>(rows.probs.size(1));
  const auto cut = [&](std::int64_t b) { return rows.cuts[static_cast<std::size_t>(b)]; };
  parallel_for(exec.threads, count, width, [&](std::int64_t b) {
    if (is_searched(rows, b)) require_finite(row_of(rows.probs, b), b, "probs");
  });
  parallel_for(exec.threads, count, 16 * width, [&](std::int64_t b) { body(b, row_of(rows.probs, b), cut(b)); });
}

/// p / divisor with a reciprocal that may be approximate; where the divisor is 1 by contract, p itself.
Bounded quotient(float p, const Bounded& divisor) {
  const double exact = static_cast<double>(p) / divisor.exact;
  if (divisor.exact == 1 && divisor.slack == 0) return {exact, may_flush(p) ? std::fabs(exact) : 0.0, divisor.open};
  return {exact, std::fabs(exact) * (divisor.slack / divisor.exact + 4 * f32_eps) + (may_flush(p) ? std::fabs(exact) : 0.0), divisor.open};
}

/// Denormal numbers may be flushed; -0, which is not kept, keeps its sign where all is multiplied that is not below the threshold.
Bounded renormed(float x, const Renorm& renorm) {
  if (x == 0 && std::signbit(x)) return {0.0, flush_floor};
  if (!renorm.keeps(x)) return {};
  const Bounded kept = quotient(x, renorm.divisor);
  return may_flush(x) ? kept.widened(std::fabs(kept.exact)) : kept;
}

void put_row(const GoldenOutput& out, std::int64_t b, std::span<const float> row, const Renorm& renorm) {
  for (std::size_t i = 0; i < row.size(); ++i)
    out.put(b * static_cast<std::int64_t>(row.size()) + static_cast<std::int64_t>(i), renormed(row[i], renorm));
}

/// The row with what a mistake leaves out or in.
void spoil(const GoldenOutput& out, std::int64_t b, std::span<const float> row, const SortedRow& sorted, Renorm renorm, const Cut& cut,
           RenormMistake mistake) {
  if (mistake == RenormMistake::not_divided) renorm.divisor = {1.0};
  if (mistake == RenormMistake::crossing_dropped) {
    const double crossing = sorted.least_above(renorm.low);
    if (sorted.sum_above(crossing) > 0) renorm = {crossing, {sorted.sum_above(crossing)}};
  }
  if (mistake != RenormMistake::ties_are_cut || !cut.count || *cut.count >= row.size()) return put_row(out, b, row, renorm);
  const float last = sorted.least_above(renorm.low);
  const std::int64_t room = std::int64_t{*cut.count} - sorted.count_above(last);
  // What is left is divided by its own sum.
  const auto ties = std::count(row.begin(), row.end(), last);
  renorm.divisor.exact -= static_cast<double>(last) * static_cast<double>(std::max<std::int64_t>(ties - room, 0));
  put_row(out, b, row, renorm);
  std::int64_t left = room;
  for (std::size_t i = 0; i < row.size(); ++i)
    if (row[i] == last && left-- <= 0) out.put(b * static_cast<std::int64_t>(row.size()) + static_cast<std::int64_t>(i), {});
}

/// Whether `to` holds the largest elements of a row, as many as there are numbers that are not 0, divided by `divisor`.
bool holds_largest_of(std::span<const float> row, std::span<const float> to, double divisor) {
  const double units = 68 + static_cast<double>(row.size()) / 1024;
  double least_kept = std::numeric_limits<double>::infinity(), most_dropped = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double p = std::isnan(row[i]) ? 0.0 : std::max(0.0, static_cast<double>(row[i])), share = p / divisor;
    if (!(std::fabs(static_cast<double>(to[i]) - share) <= units * f32_eps * share)) {
      if (to[i] != 0) return false;
      if (share >= 2 * flush_floor) most_dropped = std::max(most_dropped, p);
    } else if (to[i] != 0) {
      least_kept = std::min(least_kept, p);
    }
  }
  return most_dropped < least_kept;
}

bool keeps_largest(std::span<const float> row, std::span<const float> to) {
  double sum = 0;
  for (std::size_t i = 0; i < row.size(); ++i)
    if (to[i] != 0 && row[i] > 0) sum += static_cast<double>(row[i]);
  return holds_largest_of(row, to, std::max(sum, 1e-8)) || holds_largest_of(row, to, 1.0);
}

}  // namespace

void golden_renorm_rows(const RenormRows& rows, const Exec& exec, Reference* reference, RenormMistake mistake) {
  const GoldenOutput out(rows.renormed, reference, "renorm_probs");
  out.make_open();
  for_rows(rows, exec, [&](std::int64_t b, std::span<const float> row, const Cut& cut) {
    if (cut.search == Search::radix && is_no_row_of_probabilities(row)) {
      for (std::size_t i = 0; i < row.size(); ++i)
        out.put_open(b * static_cast<std::int64_t>(row.size()) + static_cast<std::int64_t>(i), 0.0);
      return;
    }
    const SortedRow sorted(row);
    spoil(out, b, row, sorted, exact_renorm(sorted, row, cut), cut, mistake);
  });
}

void condition_renorm_rows(const RenormRows& actual, const Exec& exec, Reference& reference) {
  ReferenceOutput& expected = reference.output("renorm_probs", actual.renormed.elements());
  for_rows(actual, exec, [&](std::int64_t b, std::span<const float> row, const Cut& cut) {
    if (cut.search == Search::radix && is_no_row_of_probabilities(row)) return;
    const SortedRow sorted(row);
    if (!exact_renorm(sorted, row, cut).doubtful) return;
    const auto begin = static_cast<std::size_t>(b) * row.size();
    const auto failing = [&](const Renorm& renorm) {
      std::int64_t count = 0;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const Bounded wanted = renorm.keeps(row[i]) ? quotient(row[i], renorm.divisor) : Bounded{};
        const double given = quant::get(actual.renormed, static_cast<std::int64_t>(begin + i));
        count += std::fabs(given - wanted.exact) > wanted.slack + f32_eps * std::fabs(wanted.exact) + flush_floor ? 1 : 0;
      }
      return count;
    };
    const Renorm own = exact_renorm(sorted, row, cut);
    std::int64_t fewest = failing(own);
    const Renorm* best = &own;
    const std::vector<Renorm> others = other_renorms(sorted, row, cut);
    for (const Renorm& other : others)
      if (const std::int64_t count = failing(other); count < fewest) {
        fewest = count;
        best = &other;
      }
    if (best == &own) return;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const Bounded value = best->keeps(row[i]) ? quotient(row[i], best->divisor) : Bounded{};
      expected.exact[begin + i] = value.exact;
      expected.slack[begin + i] = value.slack > 0 ? value.slack + flush_floor : 0.0;
    }
  });
}

void fast_renorm_rows(const RenormRows& rows, const Exec& exec) {
  for_rows(rows, exec, [&](std::int64_t b, std::span<const float> row, const Cut& cut) {
    fast_renorm(row, cut, reinterpret_cast<float*>(row_begin_mutable(rows.renormed, b, 4)), worth_streaming(rows.renormed), exec);
  });
}

void hopper_renorm_rows(const RenormRows& rows, const Exec& exec) {
  for_rows(rows, exec, [&](std::int64_t b, std::span<const float> row, const Cut& cut) {
    hopper_renorm(row, cut, reinterpret_cast<float*>(row_begin_mutable(rows.renormed, b, 4)));
  });
}

bool hides_maximum(const RenormRows& actual, std::int64_t b) {
  const std::span<const float> row = row_of(actual.probs, b);
  return is_searched(actual, b) && std::any_of(row.begin(), row.end(), [](float x) { return x != x; }) &&
         keeps_largest(row, row_of(actual.renormed, b));
}

}  // namespace dodona::ops
