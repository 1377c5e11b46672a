// Work split over threads at boundaries that do not depend on their number, so that bits do not either.
#pragma once

#include <omp.h>

#include <atomic>
#include <cstdint>
#include <exception>

// The thread sanitizer does not see the synchronization inside an OpenMP runtime: under it the same parts run on plain threads.
#if defined(__SANITIZE_THREAD__)
#define DODONA_PLAIN_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DODONA_PLAIN_THREADS 1
#endif
#endif
#include <thread>
#include <vector>

namespace dodona {

/// Carries the first exception of several threads to the one that waits for them.
class FirstFailure {
 public:
  /// Calls body(i), unless some call has failed.
  template <class Body>
  void guard(const Body& body, std::int64_t i) noexcept {
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      body(i);
    } catch (...) {
      keep();
    }
  }
  /// The exception in flight, if it is the first one.
  void keep() noexcept {
    if (!failed_.exchange(true)) first_ = std::current_exception();
  }
  /// Only when all threads are done.
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::atomic<bool> failed_ = false;
  std::exception_ptr first_;
};

/// The static schedule of OpenMP on threads of its own.
template <class Body>
void on_plain_threads(std::int64_t threads, std::int64_t count, const Body& body) {
  FirstFailure failure;
  const auto part = [&](std::int64_t t) {
    for (std::int64_t i = count * t / threads; i < count * (t + 1) / threads; ++i) failure.guard(body, i);
  };
  std::vector<std::thread> team;
  try {
    team.reserve(static_cast<std::size_t>(threads));
    for (std::int64_t t = 1; t < threads; ++t) team.emplace_back(part, t);
  } catch (...) {
    failure.keep();
  }
  part(0);
  for (std::thread& thread : team) thread.join();
  failure.rethrow();
}

/// The static schedule of OpenMP.
template <class Body>
void on_team(int threads, std::int64_t count, const Body& body) {
  FirstFailure failure;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t i = 0; i < count; ++i) failure.guard(body, i);
  failure.rethrow();
}

/// Calls body(i) for i in [0, count), in parallel when `threads` > 1 and the work is worth it. Calls must be independent. What the first
/// failing one throws is thrown here once all are done; calls that have not begun by then are left out. `cost` estimates one call in
/// element operations.
template <class Body>
void parallel_for(int threads, std::int64_t count, double cost, const Body& body) {
  // Starting a team takes some microseconds: below about 16k element operations one thread is faster.
  if (threads > 1 && count > 1 && static_cast<double>(count) * cost > 16384.0) {
#ifdef DODONA_PLAIN_THREADS
    on_plain_threads(threads, count, body);
#else
    on_team(threads, count, body);
#endif
  } else {
    for (std::int64_t i = 0; i < count; ++i) body(i);
  }
}

}  // namespace dodona
