// Work split over threads at boundaries that do not depend on their number, so that bits do not either.
#pragma once

#include <omp.h>

#include <cstdint>

namespace dodona {

/// Calls body(i) for i in [0, count), in parallel when `threads` > 1 and the work is worth it. `body` must not throw, and calls
/// must be independent. `cost` estimates one call in element operations.
template <class Body>
void parallel_for(int threads, std::int64_t count, double cost, const Body& body) {
  // Starting a team takes some microseconds: below about 16k element operations one thread is faster.
  if (threads > 1 && count > 1 && static_cast<double>(count) * cost > 16384.0) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t i = 0; i < count; ++i) body(i);
  } else {
    for (std::int64_t i = 0; i < count; ++i) body(i);
  }
}

}  // namespace dodona
