// What this machine can do at most, measured: the yardstick that benchmarks print beside every figure.
#pragma once

#include <cstdint>

#include "dodona/exec.h"
#include "simd/tier.h"

namespace dodona {

/// Best of several runs, with `exec.threads` threads on the tier `exec.isa`.
struct Limits {
  double read = 0;  ///< R: GB/s of reading memory that no cache holds
  double copy = 0;  ///< C: GB/s, read plus written, of copying [4096, 7168] bf16 that no cache holds
  double fma = 0;   ///< F: GFLOP/s of fp32 fused multiply-adds
  double dot8 = 0;  ///< V: GOP/s of 8-bit integer dot products (two operations per product)
};

/// Which limits to measure; memory ones take about half a second and half a gigabyte.
enum class LimitKind { read, copy, fma, dot8 };
double measure_limit(LimitKind kind, const Exec& exec);
Limits measure_limits(const Exec& exec);

struct LimitKernel {
  /// Reads `bytes` (a multiple of 1024); returns a value that depends on all of them.
  template <class Tier>
  static std::int64_t run(const void* data, std::int64_t bytes);
};
struct FmaLimitKernel {
  /// 2 * 16 * 16 floating-point operations per round.
  template <class Tier>
  static float run(std::int64_t rounds);
};
struct DotLimitKernel {
  /// 2 * 64 * 12 operations per round.
  template <class Tier>
  static std::int64_t run(std::int64_t rounds);
};

}  // namespace dodona
