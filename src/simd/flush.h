// Denormals of fp32 count as zeros, going in and coming out, while this lives: as matrix units have it whose sums vectors make
// (simd/amx_tiles.h). A result is flushed that is below 2^-126 after its rounding; AArch64 looks before its rounding, and so flushes what
// lies within 2^-151 below 2^-126 too.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "simd/inline.h"

namespace dodona::DODONA_TIER {

class FlushDenormals {
 public:
#if defined(__x86_64__)
  DODONA_INLINE FlushDenormals() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | 0x8040u);
    stay();
  }
  DODONA_INLINE ~FlushDenormals() {
    stay();
    _mm_setcsr(before_);
  }
#elif defined(__aarch64__)
  DODONA_INLINE FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" : : "r"(before_ | std::uint64_t{1} << 24));
    stay();
  }
  DODONA_INLINE ~FlushDenormals() {
    stay();
    asm volatile("msr fpcr, %0" : : "r"(before_));
  }
#else
#error "say here how denormals are flushed"
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  /// What is read from memory and written to it while this lives is not moved out.
  static DODONA_INLINE void stay() {
    asm volatile("" : : : "memory");
  }

#if defined(__x86_64__)
  unsigned before_;
#elif defined(__aarch64__)
  std::uint64_t before_;
#endif
};

}  // namespace dodona::DODONA_TIER
