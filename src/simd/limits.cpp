#include "simd/limits.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

namespace dodona {
namespace {

/// A measurement repeats at least so often and so long: on a busy machine few runs are left alone.
constexpr int least_runs = 7;
constexpr double least_seconds = 0.15;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds of body(thread, threads), all threads starting together.
template <class Body>
double seconds_of(int threads, const Body& body) {
  double begin = 0;
#pragma omp parallel num_threads(threads)
  {
#pragma omp barrier
#pragma omp master
    begin = now();
#pragma omp barrier
    body(omp_get_thread_num(), omp_get_num_threads());
  }
  return now() - begin;
}

/// Seconds of the fastest of several runs.
template <class Body>
double best_seconds(int threads, const Body& body) {
  const double begin = now();
  double best = 1e30;
  for (int i = 0; i < least_runs || now() - begin < least_seconds; ++i) best = std::min(best, seconds_of(threads, body));
  return best;
}

/// What `thread` has of `bytes`: a multiple of 1024.
std::int64_t part_of(std::int64_t bytes, int threads) {
  return bytes / threads / 1024 * 1024;
}

/// First touched by the threads that will use it.
Tensor big_buffer(const Exec& exec, std::int64_t bytes) {
  Tensor buffer = Tensor::uninitialized(DType::u8, {bytes});
  const std::int64_t part = part_of(bytes, exec.threads);
#pragma omp parallel num_threads(exec.threads)
  std::memset(buffer.as<std::byte>() + part * omp_get_thread_num(), 1, static_cast<std::size_t>(part));
  return buffer;
}

/// GB/s of the fastest piece of a buffer of `bytes` that is gone through again and again: body(offset, n) does a thread's part of it.
/// A piece is a large activation, [4096, 7168] bf16: what disturbs the machine for a moment spoils few of them.
template <class Body>
double best_rate(int threads, std::int64_t bytes, const Body& body) {
  const std::int64_t part = part_of(bytes, threads), piece = std::min(part, part_of(std::int64_t{4096} * 7168 * 2, threads));
  const double begin = now();
  double best = 1e30;
  for (int pass = 0; pass < least_runs || now() - begin < least_seconds; ++pass)
    for (std::int64_t at = 0; at + piece <= part; at += piece)
      best = std::min(best, seconds_of(threads, [&](int thread, int) { body(part * thread + at, piece); }));
  return static_cast<double>(piece * threads) / best * 1e-9;
}

double measure_read(const Exec& exec) {
  const std::int64_t bytes = cold_bytes(memory_facts()).bytes;
  const Tensor buffer = big_buffer(exec, bytes);
  std::atomic<std::int64_t> sink{0};
  return best_rate(exec.threads, bytes, [&](std::int64_t offset, std::int64_t n) {
    sink += dispatch<LimitKernel>(exec.isa, buffer.as<std::byte>() + offset, n);
  });
}

double measure_copy(const Exec& exec) {
  // Source and destination together are what is cold.
  const std::int64_t bytes = cold_bytes(memory_facts()).bytes / 2;
  const Tensor from = big_buffer(exec, bytes), to = big_buffer(exec, bytes);
  const double library = best_rate(exec.threads, bytes, [&](std::int64_t offset, std::int64_t n) {
    std::memcpy(to.as<std::byte>() + offset, from.as<std::byte>() + offset, static_cast<std::size_t>(n));
  });
  const double streamed = best_rate(exec.threads, bytes, [&](std::int64_t offset, std::int64_t n) {
    const void* const source = from.as<std::byte>() + offset;
    dispatch<StreamCopyLimitKernel>(exec.isa, source, static_cast<void*>(to.as<std::byte>() + offset), n);
  });
  return 2 * std::max(library, streamed);
}

double measure_update(const Exec& exec) {
  const std::int64_t bytes = cold_bytes(memory_facts()).bytes;
  const Tensor buffer = big_buffer(exec, bytes);
  return 2 * best_rate(exec.threads, bytes, [&](std::int64_t offset, std::int64_t n) {
           dispatch<UpdateLimitKernel>(exec.isa, static_cast<void*>(buffer.as<std::byte>() + offset), n);
         });
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

ColdWalk::ColdWalk(const Exec& exec, ColdBytes size) : exec_(exec), size_(size) {
  size_.bytes = part_of(size.bytes, exec.threads) * exec.threads;
  buffer_ = big_buffer(exec, size_.bytes);
}

void ColdWalk::read() const {
  const std::int64_t part = part_of(size_.bytes, exec_.threads);
  std::atomic<std::int64_t> sink{0};
  seconds_of(exec_.threads,
             [&](int thread, int) { sink += dispatch<LimitKernel>(exec_.isa, buffer_.as<std::byte>() + part * thread, part); });
}

double measure_limit(LimitKind kind, const Exec& exec) {
  switch (kind) {
    case LimitKind::read: return measure_read(exec);
    case LimitKind::copy: return measure_copy(exec);
    case LimitKind::update: return measure_update(exec);
    case LimitKind::fma: return measure_fma(exec);
    case LimitKind::dot8: return measure_dot8(exec);
  }
  return 0;
}

Limits measure_limits(const Exec& exec) {
  return {measure_limit(LimitKind::read, exec), measure_limit(LimitKind::copy, exec), measure_limit(LimitKind::update, exec),
          measure_limit(LimitKind::fma, exec), measure_limit(LimitKind::dot8, exec)};
}

}  // namespace dodona
