// What this machine can do at most, measured: the yardstick that benchmarks print beside every figure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/caches.h"
#include "dodona/exec.h"
#include "dodona/tensor.h"
#include "simd/tier.h"

namespace dodona {

/// The best of several looks, with `exec.threads` threads on the tier `exec.isa`. Those of memory go through cold_bytes() of it in pieces,
/// the best of which counts.
struct Limits {
  double read = 0;    ///< R: GB/s of reading
  double copy = 0;    ///< C: GB/s, read plus written, of copying by the fastest way: the C library's, or stores past the caches
  double update = 0;  ///< U: GB/s, read plus written, of changing every byte in place
  double fma = 0;     ///< F: GFLOP/s of fp32 fused multiply-adds
  double dot8 = 0;    ///< V: GOP/s of 8-bit integer dot products (two operations per product)
};

/// Of each the larger one: of a machine that is measured before something and after it.
Limits larger(const Limits& a, const Limits& b);

/// Which limits to measure; those of memory take some tenths of a second and the memory that cold_bytes() says.
enum class LimitKind { read, copy, update, fma, dot8 };
Limits measure_limits(const Exec& exec);
/// Those that bind the steps of a model, R, F and V; the others stay 0.
Limits measure_limits_of_steps(const Exec& exec);

/// Limits again and again, while something else is measured: what a guest of a busy host can do changes twofold within minutes.
class Yardstick {
 public:
  explicit Yardstick(const Exec& exec) : exec_(exec) {}
  /// One look: the best piece of one pass through the memory, or some milliseconds of arithmetic. Units as in Limits.
  double glance(LimitKind kind);
  /// The best of several.
  double measure(LimitKind kind);

 private:
  double read();
  double copy();
  double update();
  /// Where a thread's part of the memory begins, which is taken when it is first asked for.
  std::byte* of(int thread);

  Exec exec_;
  Tensor buffer_;
  std::int64_t part_ = 0;  ///< bytes of each thread
};

/// Memory to be read through by all threads of `exec` together.
class ColdWalk {
 public:
  ColdWalk(const Exec& exec, ColdBytes size);
  const ColdBytes& size() const { return size_; }
  /// Reads all of it, each thread its part: where the size is cold, what the caches held before is gone.
  void read() const;

 private:
  Exec exec_;
  ColdBytes size_;
  Tensor buffer_;
};

struct LimitKernel {
  /// Reads `bytes` (a multiple of 1024); returns a value that depends on all of them.
  template <class Tier>
  static std::int64_t run(const void* data, std::int64_t bytes);
};
struct StreamCopyLimitKernel {
  /// Copies `bytes`, a multiple of 64 as are the addresses, with stores past the caches where the tier has them.
  template <class Tier>
  static void run(const void* from, void* to, std::int64_t bytes);
};
struct UpdateLimitKernel {
  /// Adds 1 to every 32-bit word of `bytes`, a multiple of 64.
  template <class Tier>
  static void run(void* data, std::int64_t bytes);
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
