// Rows sorted by expert, and the offsets and problem sizes that say whose they are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/random.h"
#include "dodona/error.h"
#include "dodona/tensor.h"

namespace dodona::ops {

/// The elements of a contiguous i32 tensor.
inline std::span<const std::int32_t> ints_of(const Tensor& t) {
  return {t.as<std::int32_t>(), static_cast<std::size_t>(t.elements())};
}

[[noreturn]] inline void bad_offset(const char* argument, std::size_t i, std::int64_t value, const std::string& expected) {
  throw Error(ErrorCode::bad_value, "", argument,
              "holds " + std::to_string(value) + " at element " + std::to_string(i) + ", expected " + expected);
}

/// Throws unless the offsets begin at 0, rise, and stay within `rows`.
inline void require_expert_offsets(const char* argument, std::span<const std::int32_t> offsets, std::int64_t rows) {
  std::int64_t least = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    if (i == 0 && offsets[i] != 0) bad_offset(argument, i, offsets[i], "0");
    if (offsets[i] < least || offsets[i] > rows)
      bad_offset(argument, i, offsets[i], "rising offsets: from " + std::to_string(least) + " to the row count " + std::to_string(rows));
    least = offsets[i];
  }
}

/// Throws unless group i of `rows` rows may have its scales at row `offset` of a matrix of `scale_rows` rows in tiles of 128, where those
/// of the groups before end at row `least`.
inline void require_scale_offset(const char* argument, std::size_t i, std::int64_t offset, std::int64_t rows, std::int64_t least,
                                 std::int64_t scale_rows) {
  const std::int64_t room = (rows + 127) / 128 * 128;
  if (offset % 128 != 0) bad_offset(argument, i, offset, "a multiple of 128");
  if (offset < least || offset > scale_rows - room)
    bad_offset(argument, i, offset,
               "from " + std::to_string(least) + " with " + std::to_string(room) + " rows to the scales' " + std::to_string(scale_rows));
}

/// Throws unless every element of a contiguous i64 tensor is `value`; nothing where it is not given.
inline void require_all(const char* argument, const Tensor& t, std::int64_t value) {
  if (!t.defined()) return;
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (t.as<std::int64_t>()[i] != value) bad_offset(argument, static_cast<std::size_t>(i), t.as<std::int64_t>()[i], std::to_string(value));
}
inline void fill_all(const Tensor& t, std::int64_t value) {
  if (t.defined()) std::fill_n(t.as<std::int64_t>(), t.elements(), value);
}

/// The rows of one expert.
struct ExpertRows {
  std::int64_t row = 0, rows = 0;
};

/// A grouped product: where each expert's rows begin (i32 [E], contiguous) and, where they are given, its sizes (i32 [E, 3], contiguous).
struct ExpertProblems {
  Tensor offsets, sizes;
  std::int64_t m = 0, n = 0, k = 0;  ///< rows of all experts, and what every expert's N and K must be
  int m_at = 0, n_at = 1;            ///< where sizes hold an expert's rows and its N; K is last

  std::int64_t rows_to_next(std::size_t e) const {
    const auto first = ints_of(offsets);
    return (e + 1 < first.size() ? first[e + 1] : m) - first[e];
  }
  /// All experts, those without rows as well.
  std::vector<ExpertRows> experts() const {
    std::vector<ExpertRows> all;
    for (std::size_t e = 0; e < ints_of(offsets).size(); ++e)
      all.push_back({ints_of(offsets)[e], sizes.defined() ? ints_of(sizes)[3 * e + static_cast<std::size_t>(m_at)] : rows_to_next(e)});
    return all;
  }
};

/// Throws unless the sizes are those of products with N and K.
inline void require_problem_sizes(const ExpertProblems& problems) {
  if (!problems.sizes.defined()) return;
  const auto sizes = ints_of(problems.sizes);
  for (std::size_t i = 0; i < sizes.size(); i += 3) {
    const std::size_t m = i + static_cast<std::size_t>(problems.m_at), n = i + static_cast<std::size_t>(problems.n_at);
    if (sizes[m] < 0) bad_offset("problem_sizes", m, sizes[m], "a number of rows");
    if (sizes[n] != problems.n) bad_offset("problem_sizes", n, sizes[n], "N = " + std::to_string(problems.n));
    if (sizes[i + 2] != problems.k) bad_offset("problem_sizes", i + 2, sizes[i + 2], "K = " + std::to_string(problems.k));
  }
}

/// Throws unless experts have rows of their own, in the order of the experts.
inline void require_rows_apart(const ExpertProblems& problems) {
  std::int64_t end = 0;
  const std::vector<ExpertRows> experts = problems.experts();
  for (std::size_t e = 0; e < experts.size(); ++e) {
    const auto [row, rows] = experts[e];
    if (rows == 0) continue;
    if (row < end || rows > problems.m - row)
      throw Error(ErrorCode::bad_value, "", "problem_sizes",
                  "gives expert " + std::to_string(e) + " the " + std::to_string(rows) + " rows from " + std::to_string(row) +
                      ", expected rows from " + std::to_string(end) + " on that end at " + std::to_string(problems.m));
    end = row + rows;
  }
}

/// Fills sizes that are given: the rows up to the next expert's, less a choice below 2 where there are any.
inline void make_problem_sizes(const ExpertProblems& problems, std::uint64_t seed) {
  if (!problems.sizes.defined()) return;
  const InputDraw rows_less(seed, "problem_sizes");
  for (std::int64_t e = 0; e < problems.sizes.size(0); ++e) {
    const std::int64_t rows = problems.rows_to_next(static_cast<std::size_t>(e));
    auto* const sizes = problems.sizes.as<std::int32_t>() + 3 * e;
    sizes[problems.m_at] = static_cast<std::int32_t>(rows - (rows > 0 ? static_cast<std::int64_t>(rows_less.below(e, 2)) : 0));
    sizes[problems.n_at] = static_cast<std::int32_t>(problems.n);
    sizes[2] = static_cast<std::int32_t>(problems.k);
  }
}

/// Calls body(begin, end) for the stretches of `m` rows that belong to no expert.
template <class Body>
void for_rows_of_nobody(std::span<const ExpertRows> experts, std::int64_t m, const Body& body) {
  std::int64_t end = 0;
  for (const auto& [row, rows] : experts) {
    if (rows == 0) continue;
    if (end < row) body(end, row);
    end = row + rows;
  }
  if (end < m) body(end, m);
}

/// Rows of nobody are zero outside of golden mode. `out` is contiguous.
inline void clear_rows_of_nobody(std::span<const ExpertRows> experts, const Tensor& out) {
  const std::int64_t row_bytes = out.size(1) * bits(out.dtype()) / 8;
  for_rows_of_nobody(experts, out.size(0), [&](std::int64_t begin, std::int64_t end) {
    std::memset(out.as<std::byte>() + begin * row_bytes, 0, static_cast<std::size_t>((end - begin) * row_bytes));
  });
}

/// 2 for each of the sum's products.
inline double grouped_flops(const ExpertProblems& problems) {
  double rows = 0;
  for (const ExpertRows& expert : problems.experts()) rows += static_cast<double>(expert.rows);
  return 2.0 * rows * static_cast<double>(problems.n) * static_cast<double>(problems.k);
}
/// What is read of activations and weights: weights of experts without rows are not.
inline double grouped_bytes(const ExpertProblems& problems, double row_number_bytes, double weight_number_bytes) {
  double bytes = 0;
  for (const ExpertRows& expert : problems.experts())
    if (expert.rows > 0)
      bytes += (static_cast<double>(expert.rows) * row_number_bytes + static_cast<double>(problems.n) * weight_number_bytes) *
               static_cast<double>(problems.k);
  return bytes;
}

}  // namespace dodona::ops
