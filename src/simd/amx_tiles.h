// Instructions of Intel's matrix tiles, by their number. Included by *.simd.cpp only.
//
// A tile has at most 16 rows of 64 bytes. dot_ss and dot_su: c[m][n] += the sum over k and j = 0..3 of a[m][4k + j] * b[k][4n + j], bytes,
// in whole numbers that wrap at 32 bits: exact, so the same in any order. dot_bf16: pair sums of two bf16 in place of four bytes
// (simd/bf16_pairs.h), c being the sum and all of k one group, in fp32 that flushes denormals: only where there are none.
#pragma once

#include <cstdint>

#include "simd/amx.h"
#include "simd/inline.h"

#if defined(__x86_64__)
namespace dodona::DODONA_TIER {

struct AmxTiles {
  /// This thread's tiles have these shapes while this lives, and afterwards those they had before: a caller that uses tiles too finds its
  /// configuration, and one that does not no state that would be saved at every switch of threads.
  class Session {
   public:
    DODONA_INLINE explicit Session(const TileShapes& shapes) {
      asm volatile("sttilecfg %0" : "=m"(before_));
      asm volatile("ldtilecfg %0" : : "m"(shapes));
    }
    DODONA_INLINE ~Session() {
      if (before_.palette == 0) {
        asm volatile("tilerelease" : : : "memory");
      } else {
        asm volatile("ldtilecfg %0" : : "m"(before_));
      }
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

   private:
    TileShapes before_;
  };

  template <int t>
  static DODONA_INLINE void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(t));
  }
  /// Rows of memory lie `stride` bytes apart.
  template <int t>
  static DODONA_INLINE void load(const void* p, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(t) : "memory");
  }
  template <int t>
  static DODONA_INLINE void store(void* p, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(t) : "memory");
  }
  /// Signed bytes times signed ones.
  template <int c, int a, int b>
  static DODONA_INLINE void dot_ss() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
  /// Signed bytes of a times unsigned ones of b.
  template <int c, int a, int b>
  static DODONA_INLINE void dot_su() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
  template <int c, int a, int b>
  static DODONA_INLINE void dot_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
};

}  // namespace dodona::DODONA_TIER
#endif
