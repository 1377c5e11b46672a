// Drawing a token from a row of probabilities with uniform numbers of a stream: by rejection with two pivots, or once above a threshold.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/philox.h"
#include "ops/draws/blocked_row.h"
#include "ops/draws/sorted_row.h"

namespace dodona::ops {

/// What a drawn token must be to be kept: fewer than `count` are larger, and what is larger adds up to less than `mass`.
struct Acceptance {
  std::optional<std::uint32_t> count;
  std::optional<float> mass;

  bool operator()(std::int64_t larger, double sum) const { return (!count || larger < std::int64_t{*count}) && (!mass || sum < *mass); }
};

/// Mistakes of such kernels.
enum class DrawRule {
  right,
  mass_left_whole,  ///< a uniform number counts for the whole row after rejections, too
};

/// A row, in double.
class ExactDraws {
 public:
  /// `more_units`: by how many units of 2^-24 sums of an honest implementation may be off beside their own additions.
  explicit ExactDraws(std::span<const float> row, double more_units = 0);

  /// The token; -1 where nothing can be drawn.
  std::int64_t rejection(const Acceptance& accepts, PhiloxStream stream, DrawRule rule = DrawRule::right) const;
  std::int64_t above(const Bar& bar, PhiloxStream stream) const;

  /// Whether an honest implementation's sums may lead to this token.
  bool may_reject_to(std::int64_t token, const Acceptance& accepts, PhiloxStream stream) const;
  bool may_be_above(std::int64_t token, const Bar& bar, PhiloxStream stream) const;

 private:
  struct State {
    double low = 0, high = 1, mass = 1, mass_error = 0;
  };
  struct Search;

  std::int64_t draw(const Bar& bar, double u) const;
  double sum(const Bar& bar) const;
  /// Tokens whose share of the running sum meets u, give or take `error`, and those that are left where the sum falls short of u.
  std::vector<std::int64_t> near(const Bar& bar, double u, double error) const;
  void explore(Search& search, const State& state, PhiloxStream stream) const;

  std::span<const float> row_;
  SortedRow sorted_;
  double units_;
};

/// The bits of an H200.
std::int64_t hopper_rejection(const BlockedRow& row, const Acceptance& accepts, PhiloxStream stream, Scan scan);
std::int64_t hopper_above(const BlockedRow& row, const Bar& bar, PhiloxStream stream, Scan scan);

}  // namespace dodona::ops
