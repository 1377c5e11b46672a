// Cases drawn at random around an op's own lines.
#pragma once

#include <array>
#include <cstdint>

#include "core/case_line.h"

namespace dodona::oracle {

inline constexpr std::array<const char*, 6> drawn_distributions{"normal", "uniform", "outliers", "wide-exponent", "ties", "edge"};

struct DrawnCase {
  CaseLine line;
  Arguments inputs;
};

/// What is not drawn: the sizes, attributes, types and optional arguments that the line names, and its distribution.
struct Kept {
  CaseLine line;
  bool dist = false;                ///< the line's distribution is kept too
  bool strict = false;              ///< for kernels of others: recipe attributes and the dialect are not drawn, and left at their defaults
                                    ///< where the op allows; sizes lie at the edges of tiles and ranges half of the time; special inputs
                                    ///< are mixed in; fast mode has taken the call
  std::uint64_t seeds = 1'000'000;  ///< seeds of inputs are drawn below this
  bool specials = false;            ///< special inputs are mixed in, of `strict` in any case
};

/// Case number `index` of an op: sizes drawn below those of one of the op's own lines (within the rules of its symbols), types, recipes and
/// other choices varied, distributions in turn. Combinations that the op refuses are drawn anew, in the end the op's own sizes. Throws the
/// op's Error where none is valid with what is kept.
DrawnCase drawn_case(const Op& op, std::uint64_t seed, int index, const Kept& kept = {});

/// Throws the op's Error for values that it does not take, which only running it tells.
void require_taken(const Op& op, const Arguments& inputs);

}  // namespace dodona::oracle
