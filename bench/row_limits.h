#pragma once

#include <initializer_list>
#include <map>

#include "simd/limits.h"

namespace dodona {

/// What this machine can do while a row of benchmarks is measured: limits as a glance shows them before the row and after it, the larger of
/// both. The memory of a busy host is twice as fast a minute later, and a share of what it was then says nothing.
class RowLimits {
 public:
  /// Looks before the row.
  RowLimits(int threads, std::initializer_list<LimitKind> kinds);
  /// Looks again, after it.
  void look();
  /// GB/s, GFLOP/s or GOP/s of a kind that was named.
  double of(LimitKind kind) const { return seen_.at(kind); }

 private:
  int threads_;
  std::map<LimitKind, double> seen_;
};

}  // namespace dodona
