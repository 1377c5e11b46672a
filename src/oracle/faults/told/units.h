// Which parts of an output fare alike: cut along its dimensions, and by which rule a number follows from a part's place.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dodona/op.h"
#include "oracle/judge/pattern.h"

namespace dodona::oracle {

/// Along one dimension in tiles of so many; with a period the tiles are counted modulo it.
struct Cut {
  std::size_t dim;
  std::int64_t tile;
  std::int64_t period = 0;
};

/// An output cut along some dimensions: elements with the same numbers of tiles belong together.
struct Partition {
  std::vector<Cut> cuts;

  std::vector<std::int64_t> unit_of(std::int64_t linear, const Dims& shape) const;
};

/// All cuts along none, one and two dimensions, in whole and in usual tiles; the coarsest first.
std::vector<Partition> partitions_of(const Dims& shape);

/// Of each element the runs that give it, as bits.
using Bits = std::vector<std::uint64_t>;
/// Of each unit the numbers of the runs that give all of its elements.
using Units = std::map<std::vector<std::int64_t>, std::vector<std::int64_t>>;

/// One run for each unit, by the coarsest partition in which each has one. Nothing where chance would do: elements that many runs give
/// tell little, and a unit of few of them nothing.
struct Assignment {
  Partition partition;
  Units units;
};
std::optional<Assignment> assigned(const std::vector<std::int64_t>& elements, const std::vector<Bits>& matches, std::int64_t runs,
                                   const LogicalView& view);

/// `i - 1 of head i` where a rule gives all, or one number all; else of each `0 at head 24..31; ...`.
struct Told {
  std::string words;
  bool by_rule;
};
/// `number_of` is what a run stands for.
Told words_of(const Assignment& assignment, const std::vector<std::int64_t>& number_of, const LogicalView& view);

/// Where `some` elements lie and `others` do not, in words: by the coarsest cut of which every part holds those of one kind alone. Nothing
/// where parts are as small as that chance would do.
std::optional<std::string> told_apart(const std::vector<std::int64_t>& some, const std::vector<std::int64_t>& others,
                                      const LogicalView& view);

}  // namespace dodona::oracle
