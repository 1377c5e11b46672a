// Rows of probabilities cut at a threshold and divided by what is kept: top_k_renorm_prob, top_p_renorm_prob and the first filter of
// top_k_top_p_sampling_from_probs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dodona/exec.h"
#include "ops/base/bounded.h"
#include "ops/draws/sorted_row.h"

namespace dodona::ops {

/// How kernels find a threshold: by a search in thirds, which may never move and then leaves the row undivided (sgl-kernel's); or bit by
/// bit, where a mass is a share of the row's sum (FlashInfer's later releases).
enum class Search { thirds, radix };
inline Search search_named(std::string_view name) {
  return name == "radix" ? Search::radix : Search::thirds;
}

/// A row's threshold: at least `count` elements are kept, or as many as add up to `mass`, the largest ones with all that equal the last.
struct Cut {
  std::optional<std::uint32_t> count;
  std::optional<float> mass;
  Search search = Search::thirds;
};

/// What lies above `low` is divided by `divisor`; the rest is zero.
struct Renorm {
  double low;
  Bounded divisor;
  bool all = false;       ///< NaN is kept too
  bool doubtful = false;  ///< a sum lies so close to the bound that honest implementations may cut elsewhere

  bool keeps(float x) const { return all || static_cast<double>(x) > low; }
};

/// In double. `width` elements were in the row that `sorted` is of.
Renorm exact_renorm(const SortedRow& sorted, std::span<const float> row, const Cut& cut);
/// The divisors and thresholds that are as right where `exact` is doubtful.
std::vector<Renorm> other_renorms(const SortedRow& sorted, std::span<const float> row, const Cut& cut);

/// Of a row that a radix search takes: it holds what no probability is, of which nothing is specified.
bool is_no_row_of_probabilities(std::span<const float> row);

/// The bits of an H200, of a search in thirds.
void hopper_renorm(std::span<const float> row, const Cut& cut, float* to);

}  // namespace dodona::ops
