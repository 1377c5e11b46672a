// Copying or clearing a row past the caches where that saves traffic.
#pragma once

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

struct CopyRowKernel {
  template <class Tier>
  static void run(const CopyRow& row);
};

}  // namespace dodona::ops
