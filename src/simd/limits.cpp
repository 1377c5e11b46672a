#include "simd/limits.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "dodona/tensor.h"

namespace dodona {
namespace {

constexpr int repeats = 7;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds of the fastest of several runs of body(thread, threads), all threads starting together.
template <class Body>
double best_seconds(int threads, const Body& body) {
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    double begin = 0;
#pragma omp parallel num_threads(threads)
    {
#pragma omp barrier
#pragma omp master
      begin = now();
#pragma omp barrier
      body(omp_get_thread_num(), omp_get_num_threads());
    }
    best = std::min(best, now() - begin);
  }
  return best;
}

/// First touched by the threads that will use it.
Tensor big_buffer(std::int64_t bytes) {
  Tensor buffer(DType::u8, {bytes});
  std::memset(buffer.data(), 1, static_cast<std::size_t>(bytes));
  return buffer;
}

double measure_read(const Exec& exec) {
  constexpr std::int64_t bytes = std::int64_t{512} << 20;
  const Tensor buffer = big_buffer(bytes);
  std::atomic<std::int64_t> sink{0};
  const double seconds = best_seconds(exec.threads, [&](int thread, int threads) {
    const std::int64_t part = bytes / threads / 1024 * 1024;
    sink += dispatch<LimitKernel>(exec.isa, buffer.as<std::byte>() + part * thread, part);
  });
  const std::int64_t read = bytes / exec.threads / 1024 * 1024 * exec.threads;
  return static_cast<double>(read) / seconds * 1e-9;
}

double measure_copy(const Exec& exec) {
  constexpr std::int64_t bytes = 4096 * 7168 * 2;
  constexpr int copies = 4;
  const Tensor from = big_buffer(bytes * copies), to = big_buffer(bytes * copies);
  double best = 1e30;
  for (int i = 0; i < copies; ++i) {
    const std::int64_t at = i * bytes;
    best =
        std::min(best, best_seconds(exec.threads, [&](int thread, int threads) {
                   // Each run copies another quarter, so that none finds its data in a cache.
                   const std::int64_t part = bytes / threads;
                   std::memcpy(to.as<std::byte>() + at + part * thread,
                               from.as<std::byte>() + (at + 2 * bytes) % (copies * bytes) + part * thread, static_cast<std::size_t>(part));
                 }));
  }
  return 2.0 * static_cast<double>(bytes) / best * 1e-9;
}

double measure_fma(const Exec& exec) {
  const std::int64_t rounds = exec.isa == Isa::generic ? 20000 : 400000;
  std::atomic<int> sink{0};
  const double seconds = best_seconds(exec.threads, [&](int, int) { sink += dispatch<FmaLimitKernel>(exec.isa, rounds) > 0 ? 1 : 0; });
  return 2.0 * 16 * 16 * static_cast<double>(rounds) * exec.threads / seconds * 1e-9;
}

double measure_dot8(const Exec& exec) {
  const std::int64_t rounds = exec.isa == Isa::generic ? 20000 : 400000;
  std::atomic<std::int64_t> sink{0};
  const double seconds = best_seconds(exec.threads, [&](int, int) { sink += dispatch<DotLimitKernel>(exec.isa, rounds); });
  return 2.0 * 64 * 12 * static_cast<double>(rounds) * exec.threads / seconds * 1e-9;
}

}  // namespace

double measure_limit(LimitKind kind, const Exec& exec) {
  switch (kind) {
    case LimitKind::read: return measure_read(exec);
    case LimitKind::copy: return measure_copy(exec);
    case LimitKind::fma: return measure_fma(exec);
    case LimitKind::dot8: return measure_dot8(exec);
  }
  return 0;
}

Limits measure_limits(const Exec& exec) {
  return {measure_limit(LimitKind::read, exec), measure_limit(LimitKind::copy, exec), measure_limit(LimitKind::fma, exec),
          measure_limit(LimitKind::dot8, exec)};
}

}  // namespace dodona
