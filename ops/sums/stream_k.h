// How CUTLASS's stream-K scheduler shares out K: which parts of it an output tile's sum is made of.
#pragma once

#include <cstdint>
#include <vector>

namespace dodona::ops {

/// A product in tiles of 128 x 128 outputs and 128 of K, computed by clusters of two tiles side by side on a GPU of `processors` SMs.
struct StreamK {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t processors = 132;
};

/// For each tile of 128 rows, and of those for each tile of 128 columns: where its parts of K begin, ascending from 0.
/// Source: CUTLASS `PersistentTileSchedulerSm90StreamKParams` (heuristic decomposition without the split-K short cut, no swizzle) and
/// `PersistentTileSchedulerSm90StreamK`.
std::vector<std::vector<std::vector<std::int64_t>>> stream_k_parts(const StreamK& product);

}  // namespace dodona::ops
