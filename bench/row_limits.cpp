#include "row_limits.h"

#include <algorithm>

namespace dodona {
namespace {

/// Their memory is kept from row to row: taking it costs more than a look.
Yardstick& yardstick(int threads) {
  static std::map<int, Yardstick> known;
  Exec exec;
  exec.threads = threads;
  return known.try_emplace(threads, exec).first->second;
}

}  // namespace

RowLimits::RowLimits(int threads, std::initializer_list<LimitKind> kinds) : threads_(threads) {
  for (const LimitKind kind : kinds) seen_[kind] = 0;
  look();
}

void RowLimits::look() {
  for (auto& [kind, most] : seen_) most = std::max(most, yardstick(threads_).glance(kind));
}

}  // namespace dodona
