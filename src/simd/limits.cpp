#include "simd/limits.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

namespace dodona {
namespace {

/// A measurement looks at least so often and so long: on a busy machine few looks are left alone.
constexpr int least_looks = 7;
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

/// GB/s of the fastest piece of what each of `threads` threads has, `part` bytes: body(thread, offset, n) goes through a piece of it. A
/// piece of all is a large activation, [4096, 7168] bf16: what disturbs the machine for a moment spoils few of them.
template <class Body>
double best_rate(int threads, std::int64_t part, const Body& body) {
  const std::int64_t piece = std::min(part, part_of(std::int64_t{4096} * 7168 * 2, threads));
  double best = 1e30;
  for (std::int64_t at = 0; at + piece <= part; at += piece)
    best = std::min(best, seconds_of(threads, [&](int thread, int) { body(thread, at, piece); }));
  return static_cast<double>(piece * threads) / best * 1e-9;
}

/// 10^9 operations a second, of which `each` are in a round: the fastest of four runs.
template <class Kernel>
double best_arithmetic(const Exec& exec, double each) {
  const std::int64_t rounds = exec.isa == Isa::generic ? 20000 : 400000;
  std::atomic<int> sink{0};
  double best = 1e30;
  for (int i = 0; i < 4; ++i)
    best = std::min(best, seconds_of(exec.threads, [&](int, int) { sink += dispatch<Kernel>(exec.isa, rounds) > 0 ? 1 : 0; }));
  return each * static_cast<double>(rounds) * exec.threads / best * 1e-9;
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

Limits larger(const Limits& a, const Limits& b) {
  return {std::max(a.read, b.read), std::max(a.copy, b.copy), std::max(a.update, b.update), std::max(a.fma, b.fma),
          std::max(a.dot8, b.dot8)};
}

std::byte* Yardstick::of(int thread) {
  if (buffer_.data() == nullptr) {
    part_ = part_of(cold_bytes(memory_facts()).bytes, exec_.threads);
    buffer_ = big_buffer(exec_, part_ * exec_.threads);
  }
  return buffer_.as<std::byte>() + part_ * thread;
}

double Yardstick::read() {
  std::byte* const first = of(0);
  std::atomic<std::int64_t> sink{0};
  return best_rate(exec_.threads, part_, [&](int thread, std::int64_t at, std::int64_t n) {
    sink += dispatch<LimitKernel>(exec_.isa, first + part_ * thread + at, n);
  });
}

double Yardstick::copy() {
  // Source and destination together are what is cold.
  std::byte* const first = of(0);
  const std::int64_t half = part_ / 2 / 1024 * 1024;
  const double library = best_rate(exec_.threads, half, [&](int thread, std::int64_t at, std::int64_t n) {
    std::byte* const from = first + part_ * thread + at;
    std::memcpy(from + half, from, static_cast<std::size_t>(n));
  });
  const double streamed = best_rate(exec_.threads, half, [&](int thread, std::int64_t at, std::int64_t n) {
    std::byte* const from = first + part_ * thread + at;
    dispatch<StreamCopyLimitKernel>(exec_.isa, static_cast<const void*>(from), static_cast<void*>(from + half), n);
  });
  return 2 * std::max(library, streamed);
}

double Yardstick::update() {
  std::byte* const first = of(0);
  return 2 * best_rate(exec_.threads, part_, [&](int thread, std::int64_t at, std::int64_t n) {
           dispatch<UpdateLimitKernel>(exec_.isa, static_cast<void*>(first + part_ * thread + at), n);
         });
}

double Yardstick::glance(LimitKind kind) {
  switch (kind) {
    case LimitKind::read: return read();
    case LimitKind::copy: return copy();
    case LimitKind::update: return update();
    case LimitKind::fma: return best_arithmetic<FmaLimitKernel>(exec_, 2.0 * 16 * 16);
    case LimitKind::dot8: return best_arithmetic<DotLimitKernel>(exec_, 2.0 * 64 * 12);
  }
  return 0;
}

double Yardstick::measure(LimitKind kind) {
  const double begin = now();
  double best = 0;
  for (int i = 0; i < least_looks || now() - begin < least_seconds; ++i) best = std::max(best, glance(kind));
  return best;
}

Limits measure_limits(const Exec& exec) {
  Yardstick yardstick(exec);
  return {yardstick.measure(LimitKind::read), yardstick.measure(LimitKind::copy), yardstick.measure(LimitKind::update),
          yardstick.measure(LimitKind::fma), yardstick.measure(LimitKind::dot8)};
}

Limits measure_limits_of_steps(const Exec& exec) {
  Yardstick yardstick(exec);
  return {.read = yardstick.measure(LimitKind::read), .fma = yardstick.measure(LimitKind::fma), .dot8 = yardstick.measure(LimitKind::dot8)};
}

}  // namespace dodona
