// Did several runs give the same bits? For batch invariance and races; of what is right nothing is said.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dodona/op.h"
#include "io/json.h"

namespace dodona::oracle {

/// One output of one run that is not what the first run has.
struct OtherBits {
  std::string output;
  std::size_t run = 0;
  std::int64_t differing = 0, compared = 0;
  Dims first;                    ///< index of the first element that differs, row-major
  std::string expected, actual;  ///< it, as a number and in bits: `0.5 (0x3f00)`
  std::string pattern;           ///< where the elements lie that differ: one row, one column, one tile, stripes...
};

struct SameBits {
  std::vector<std::vector<std::size_t>> groups;  ///< runs of equal bits, the largest group first; the earlier run first
  std::vector<OtherBits> differences;            ///< of each group's first run from that of the largest group, output by output
  std::int64_t elements = 0;                     ///< compared in each run
  std::vector<std::string> notes;                ///< outputs of which not all rows were compared
  bool same() const { return groups.size() <= 1; }
};

/// Compares runs of at least two. Of outputs that differ in the size of their first dimension (the same rows in other batches) the rows
/// that all have are compared. Throws Error: missing_argument, bad_dtype and bad_shape naming the output, and bad_value where there is
/// nothing to compare.
SameBits same_bits(std::span<const NamedTensors> runs);

/// For people, `names` of the runs; several lines, the outcome first.
std::string text_of(const SameBits& result, std::span<const std::string> names);
io::Json to_json(const SameBits& result, std::span<const std::string> names);

}  // namespace dodona::oracle
