// Pair sums (simd/bf16_pairs.h), plainly.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace dodona::helpers {

/// Of the products a(k) * b(k) of k in [begin, end).
template <class A, class B>
float pair_sum(std::int64_t begin, std::int64_t end, const A& a, const B& b) {
  float sum = 0;
  for (std::int64_t group = begin; group < end; group += 32) {
    float chains[2] = {0, 0};
    for (std::int64_t k = group; k < std::min(group + 32, end); ++k) {
      float& chain = chains[(k - group) % 2];
      chain = std::fmaf(a(k), b(k), chain);
    }
    sum += chains[0] + chains[1];
  }
  return sum;
}

}  // namespace dodona::helpers
