#include "ops/schemes/index_topk.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>

#include "core/random.h"
#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/rows/order/largest_positions.h"
#include "quant/half.h"

namespace dodona::ops {
namespace {

/// The number of upstream's first pass: sign, exponent and two mantissa bits of the score as fp16, rising with it.
std::uint32_t coarse_bin(float score) {
  const std::uint16_t half = quant::f32_to_f16(score);
  return ((half & 0x8000) != 0 ? static_cast<std::uint16_t>(~half) : static_cast<std::uint16_t>(half | 0x8000)) >> 8;
}
/// First by that, then by all of its bits.
std::uint64_t rank_of(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score);
  const std::uint32_t rising = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<std::uint64_t>(coarse_bin(score)) << 32 | rising;
}

/// The choice of a row: what must be there, and what ties for the places that are left.
struct Choice {
  std::vector<std::int64_t> certain, ties;  ///< positions, rising
  std::size_t left = 0;                     ///< places for ties
};

template <class RankOf>
Choice choice_of(std::int64_t length, const RankOf& rank) {
  const auto count = static_cast<std::size_t>(index_topk);
  std::vector<std::uint64_t> ranks(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = rank(static_cast<std::int64_t>(i));
  std::vector<std::uint64_t> falling = ranks;
  std::nth_element(falling.begin(), falling.begin() + index_topk - 1, falling.end(), std::greater<>());
  const std::uint64_t bound = falling[count - 1];
  Choice choice;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] > bound) choice.certain.push_back(static_cast<std::int64_t>(i));
    if (ranks[i] == bound) choice.ties.push_back(static_cast<std::int64_t>(i));
  }
  choice.left = count - choice.certain.size();
  return choice;
}
Choice choice_of(const IndexRow& row) {
  return choice_of(row.length, [&](std::int64_t i) { return rank_of(row.scores[i]); });
}

std::vector<std::int32_t> sorted_entries(const IndexRow& row, const std::vector<std::int64_t>& positions) {
  std::vector<std::int32_t> entries;
  for (const std::int64_t position : positions) entries.push_back(row.entry(position));
  std::sort(entries.begin(), entries.end());
  return entries;
}

/// Whether `actual` holds the entries that are certain, and others that tie.
bool is_allowed(const IndexRow& row, const Choice& choice, const std::int32_t* actual) {
  std::vector<std::int32_t> found(actual, actual + index_topk), rest;
  std::sort(found.begin(), found.end());
  const std::vector<std::int32_t> certain = sorted_entries(row, choice.certain), ties = sorted_entries(row, choice.ties);
  if (!std::includes(found.begin(), found.end(), certain.begin(), certain.end())) return false;
  std::set_difference(found.begin(), found.end(), certain.begin(), certain.end(), std::back_inserter(rest));
  return std::includes(ties.begin(), ties.end(), rest.begin(), rest.end());
}

/// As golden mode writes it.
std::vector<std::int32_t> written(const IndexRow& row, IndexRule rule) {
  std::vector<std::int32_t> entries;
  if (!row.chooses()) {
    for (std::int64_t i = 0; i < row.length; ++i) entries.push_back(row.entry(i));
    entries.resize(static_cast<std::size_t>(index_topk), rule == IndexRule::padded_by_zeros ? 0 : -1);
    return entries;
  }
  const float* const scores = rule == IndexRule::start_left_out ? row.scores - row.start : row.scores;
  const Choice choice =
      choice_of(row.length, [&](std::int64_t i) { return rank_of(rule == IndexRule::by_magnitude ? std::fabs(scores[i]) : scores[i]); });
  std::vector<std::int64_t> positions = choice.certain;
  positions.insert(positions.end(), choice.ties.begin(), choice.ties.begin() + static_cast<std::ptrdiff_t>(choice.left));
  std::sort(positions.begin(), positions.end());
  for (const std::int64_t position : positions) entries.push_back(row.entry(position));
  return entries;
}

/// The threshold bin of the first pass, and how many scores are in each.
struct FirstPass {
  std::array<std::int64_t, 256> counts{};
  std::size_t threshold = 255;
};
FirstPass first_pass(const IndexRow& row) {
  FirstPass pass;
  for (std::int64_t i = 0; i < row.length; ++i) ++pass.counts[coarse_bin(row.scores[i])];
  for (std::int64_t above = 0; above + pass.counts[pass.threshold] <= index_topk; --pass.threshold) above += pass.counts[pass.threshold];
  return pass;
}

}  // namespace

const std::string index_topk_contract =
    R"( A row of at most 2048 positions is not read: its positions in order, then -1. Otherwise the positions of
the 2048 largest scores, none twice, in an order that upstream leaves to atomics. Scores are compared as they are: -0 below +0; NaNs above
all numbers, those of negative sign first. Which of the positions whose scores equal the 2048th largest are taken is left to atomics too (here
the first, and all in rising order; any other choice among them passes). Errors, where upstream reads outside: a row of more than 2048
positions beyond score. Hopper mode has the same sets.)";

void check_index_scores(const IndexTopkCall& op) {
  const std::int64_t columns = op.score.size(1);
  for (std::int64_t b = 0; b < op.lengths.elements(); ++b) {
    const IndexRow row = op.row(b);
    if (!row.chooses() || (row.start >= 0 && row.start + row.length <= columns)) continue;
    const bool starts = row.start < 0 || row.start > columns;
    throw Error(ErrorCode::bad_value, "", starts ? "row_starts" : "lengths",
                "holds " + std::to_string(starts ? row.start : row.length) + " at element " + std::to_string(b) +
                    (starts ? ", expected a column of score: 0 to " + std::to_string(columns)
                            : ", expected at most the columns of score from the row's start on, " + std::to_string(columns - row.start)));
  }
}

void make_row_starts(const IndexTopkCall& op, std::uint64_t seed) {
  const InputDraw draw(seed, "row_starts");
  for (std::int64_t b = 0; b < op.row_starts.elements(); ++b) {
    const std::int64_t room = std::max<std::int64_t>(0, op.score.size(1) - op.lengths.as<const std::int32_t>()[b]);
    op.row_starts.as<std::int32_t>()[b] = static_cast<std::int32_t>(draw.below(b, static_cast<std::uint64_t>(room + 1)));
  }
}

void index_topk_golden(const std::vector<IndexRow>& rows, const IndexTopkOutput& out, IndexRule rule, Reference* reference) {
  auto* const output = out.tensor.as<std::int32_t>();
  for (std::size_t b = 0; b < rows.size(); ++b) {
    const std::vector<std::int32_t> entries = written(rows[b], rule);
    std::copy(entries.begin(), entries.end(), output + static_cast<std::int64_t>(b) * index_topk);
  }
  record_exact(out.tensor, reference, out.name);
  if (reference == nullptr) return;
  Grouping grouping{"row", {}, ""};
  for (std::size_t b = 0; b < rows.size(); ++b)
    grouping.group.insert(grouping.group.end(), static_cast<std::size_t>(index_topk),
                          rows[b].chooses() ? static_cast<std::int32_t>(b) : -1);
  reference->output(out.name, out.tensor.elements()).grouping = std::move(grouping);
}

void index_topk_condition(const std::vector<IndexRow>& rows, const IndexTopkOutput& actual, Reference& reference) {
  ReferenceOutput& record = reference.output(actual.name, actual.tensor.elements());
  for (std::size_t b = 0; b < rows.size(); ++b) {
    const std::int64_t begin = static_cast<std::int64_t>(b) * index_topk;
    const auto* const row = actual.tensor.as<const std::int32_t>() + begin;
    if (rows[b].chooses() && is_allowed(rows[b], choice_of(rows[b]), row)) std::copy(row, row + index_topk, record.exact.begin() + begin);
  }
}

void index_topk_fast(const std::vector<IndexRow>& rows, const Tensor& out, const Exec& exec) {
  double cost = 0;
  for (const IndexRow& row : rows)
    cost += static_cast<double>(std::max(row.chooses() ? row.length : 0, index_topk)) / static_cast<double>(rows.size());
  parallel_for(exec.threads, static_cast<std::int64_t>(rows.size()), cost, [&](std::int64_t b) {
    const IndexRow row = rows[static_cast<std::size_t>(b)];  // a copy, which no entry may change
    auto* const entries = out.as<std::int32_t>() + b * index_topk;
    if (!row.chooses()) {
      const std::int64_t length = std::max<std::int64_t>(0, row.length);
      for (std::int64_t i = 0; i < length; ++i) entries[i] = row.entry(i);
      std::fill(entries + length, entries + index_topk, -1);
      return;
    }
    largest_positions(row.scores, row.length, index_topk, entries, exec);
    for (std::int64_t i = 0; i < index_topk; ++i) entries[i] = row.entry(entries[i]);
  });
}

bool more_than_candidates(const IndexRow& row) {
  if (row.length <= index_topk_candidates) return false;
  const FirstPass pass = first_pass(row);
  return pass.counts[pass.threshold] > index_topk_candidates;
}

bool explained_by_candidates(const IndexRow& row, const std::int32_t* actual) {
  if (!more_than_candidates(row)) return false;
  const std::size_t threshold = first_pass(row).threshold;
  Choice choice;
  for (std::int64_t i = 0; i < row.length; ++i) {
    const std::size_t bin = coarse_bin(row.scores[i]);
    if (bin > threshold) choice.certain.push_back(i);
    if (bin == threshold) choice.ties.push_back(i);
  }
  return is_allowed(row, choice, actual);
}

}  // namespace dodona::ops
