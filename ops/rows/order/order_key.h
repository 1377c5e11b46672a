// Floating-point numbers as integers that are ordered as torch orders numbers: NaN above all, zeros of either sign equal.
#pragma once

#include <cstdint>

#include "dodona/dtype.h"
#include "simd/tier.h"

namespace dodona::ops {

/// That of NaN.
template <class Int>
inline constexpr Int most_key = static_cast<Int>(sizeof(Int) == 2 ? 0x7FFF : 0x7FFFFFFF);

/// From the bits of a number whose infinity has these bits. Inlined everywhere: tiers compile it for themselves.
template <class Int>
[[gnu::always_inline]] inline Int order_key(Int bits, Int infinity) {
  constexpr Int most = most_key<Int>;
  const Int magnitude = static_cast<Int>(bits & most);
  const Int ordered = static_cast<Int>(bits ^ ((bits >> (sizeof(Int) * 8 - 1)) & most));
  const Int finite = magnitude == 0 ? Int{0} : ordered;
  return magnitude > infinity ? most : finite;
}

/// bf16, f16 or f32.
inline std::int32_t infinity_bits(DType type) {
  return type == DType::f32 ? 0x7F800000 : type == DType::bf16 ? 0x7F80 : 0x7C00;
}

/// The largest key of each group of `group` elements, the last group shorter.
struct GroupMaxima {
  static constexpr std::int64_t group = 64;
  const void* input;  ///< inner stride 1
  std::int64_t n;
  DType type;
  std::int32_t* maxima;
};
struct GroupMaximaKernel {
  template <class Tier>
  static void run(const GroupMaxima& row);
};

}  // namespace dodona::ops
