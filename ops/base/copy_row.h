// Copying or clearing a row past the caches where that saves traffic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/base/writing.h"
#include "simd/tier.h"

namespace dodona::ops {

struct CopyRow {
  const void* from;  ///< nullptr: zeros
  void* to;
  std::int64_t bytes;
  Writing writing;
};

/// Asks for a row that is copied soon from a place that nobody could guess.
inline void fetch_row(const std::byte* row, std::int64_t bytes) {
  for (std::int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(row + line);
}

struct CopyRowKernel {
  template <class Tier>
  static void run(const CopyRow& row);
};

}  // namespace dodona::ops
