// Rows of fp32 arithmetic as fast-math builds on an H200 do it, sixteen numbers at a time: the bits of quant/hopper/fast_math.h.
#pragma once

#include <cstdint>

#include "dodona/isa.h"
#include "simd/tier.h"

namespace dodona::ops {

/// to[i] = mul(x[i], y[i]) for i < n. `to` may be x, y or z, here and below.
void mul_ftz(const float* x, const float* y, std::int64_t n, float* to, Isa isa);
/// to[i] = add(x[i], y[i]).
void add_ftz(const float* x, const float* y, std::int64_t n, float* to, Isa isa);
/// to[i] = fma(x[i], y[i], z[i]).
void fma_ftz(const float* x, const float* y, const float* z, std::int64_t n, float* to, Isa isa);

// ---- tiers

enum class FtzOperation { mul, add, fma };

struct FtzRow {
  FtzOperation operation;
  const float *x, *y, *z;
  std::int64_t n;
  float* to;
  /// The same for at most sixteen numbers one by one: where a result is the smallest normal number, which may have been rounded up to.
  void (*one_by_one)(FtzOperation operation, const float* x, const float* y, const float* z, int n, float* to);
};

struct FtzRowKernel {
  template <class Tier>
  static void run(const FtzRow& row);
};

}  // namespace dodona::ops
