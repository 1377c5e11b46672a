// Work split over threads at boundaries that do not depend on their number, so that bits do not either.
#pragma once

#include <omp.h>

#include <cstdint>

// The thread sanitizer does not see the synchronization inside an OpenMP runtime: under it the same parts run on plain threads.
#if defined(__SANITIZE_THREAD__)
#define DODONA_PLAIN_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DODONA_PLAIN_THREADS 1
#endif
#endif
#ifdef DODONA_PLAIN_THREADS
#include <thread>
#include <vector>
#endif

namespace dodona {

#ifdef DODONA_PLAIN_THREADS
/// The static schedule of OpenMP on threads of its own.
template <class Body>
void on_plain_threads(std::int64_t threads, std::int64_t count, const Body& body) {
  const auto part = [&](std::int64_t t) {
    for (std::int64_t i = count * t / threads; i < count * (t + 1) / threads; ++i) body(i);
  };
  std::vector<std::thread> team;
  for (std::int64_t t = 1; t < threads; ++t) team.emplace_back(part, t);
  part(0);
  for (std::thread& thread : team) thread.join();
}
#endif

/// Calls body(i) for i in [0, count), in parallel when `threads` > 1 and the work is worth it. `body` must not throw, and calls
/// must be independent. `cost` estimates one call in element operations.
template <class Body>
void parallel_for(int threads, std::int64_t count, double cost, const Body& body) {
  // Starting a team takes some microseconds: below about 16k element operations one thread is faster.
  if (threads > 1 && count > 1 && static_cast<double>(count) * cost > 16384.0) {
#ifdef DODONA_PLAIN_THREADS
    on_plain_threads(threads, count, body);
#else
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t i = 0; i < count; ++i) body(i);
#endif
  } else {
    for (std::int64_t i = 0; i < count; ++i) body(i);
  }
}

}  // namespace dodona
