// The fp32 core of products: a block of sums in registers takes a broadcast element of A times vectors of B, k ascending. Included by
// *.simd.cpp only. Who uses it says where sums begin and where they go: matrices (panel.simd.cpp), scores and values of attention.
#pragma once

#include <cstdint>

#include "simd/bf16_pairs.h"
#include "simd/f32x16.h"
#include "simd/registers.h"

namespace dodona::DODONA_TIER {

/// A stride that is known when the code is compiled. std::int64_t stands for one that is not.
template <std::int64_t n>
struct Known {
  constexpr operator std::int64_t() const { return n; }  // NOLINT(google-explicit-constructor)
};

/// a[i][k] at a + i * a_row + k * a_k, sixteen lanes of b[k] at b + k * b_k and what follows.
template <class ARow, class AK, class BK>
struct PanelOperands {
  const float *a, *b;
  std::int64_t k;
  ARow a_row;
  AK a_k;
  BK b_k;
};

/// Sums [rows][16 * vectors]: each begins as begin(i, v) says, takes fma(a[i][k], b[k], sum) for every k in order, and goes to end(i, v,
/// sum).
template <int rows, int vectors, class Operands, class Begin, class End>
void panel_sums(const Operands o, const Begin begin, const End end) {
  f32x16 c[rows][vectors];
  DODONA_UNROLL(8)
  for (int i = 0; i < rows; ++i) {
    DODONA_UNROLL(4)
    for (int v = 0; v < vectors; ++v) c[i][v] = begin(i, v);
  }
  for (std::int64_t k = 0; k < o.k; ++k) {
    f32x16 b[vectors];
    DODONA_UNROLL(4)
    for (int v = 0; v < vectors; ++v) b[v] = f32x16::load(o.b + k * o.b_k + 16 * v);
    DODONA_UNROLL(8)
    for (int i = 0; i < rows; ++i) {
      const f32x16 a = f32x16::splat(o.a[i * o.a_row + k * o.a_k]);
      DODONA_UNROLL(4)
      for (int v = 0; v < vectors; ++v) c[i][v] = fma(a, b[v], c[i][v]);
    }
  }
  DODONA_UNROLL(8)
  for (int i = 0; i < rows; ++i) {
    DODONA_UNROLL(4)
    for (int v = 0; v < vectors; ++v) end(i, v, c[i][v]);
  }
}

/// Sums in memory, [rows][c_row]: as they are, and where they go.
struct SumsAt {
  float* c;
  std::int64_t c_row;
  DODONA_INLINE f32x16 operator()(int i, int v) const { return f32x16::load(c + i * c_row + 16 * v); }
  DODONA_INLINE void operator()(int i, int v, f32x16 sum) const { sum.store(c + i * c_row + 16 * v); }
};

/// Twice a stride.
template <std::int64_t n>
constexpr Known<2 * n> twice(Known<n>) {
  return {};
}
constexpr std::int64_t twice(std::int64_t n) {
  return 2 * n;
}

/// Pair sums (simd/bf16_pairs.h) in memory: each begins as begin(i, v) says, and lies in `sums` at the end.
template <int rows, int vectors, class ARow, class AK, class BK, class Begin>
void pair_sums(const PanelOperands<ARow, AK, BK> o, const Begin begin, const SumsAt sums) {
  const auto half = [&](std::int64_t first, std::int64_t count) {
    return PanelOperands<ARow, decltype(twice(o.a_k)), decltype(twice(o.b_k))>{o.a + first * o.a_k, o.b + first * o.b_k, count, o.a_row,
                                                                               twice(o.a_k),        twice(o.b_k)};
  };
  const auto from_zero = [](int, int) { return f32x16::zero(); };
  float even[16 * rows * vectors];
  const SumsAt evens{even, 16 * vectors};
  for (std::int64_t k = 0; k < o.k; k += pair_group) {
    const std::int64_t count = o.k - k < pair_group ? o.k - k : pair_group;
    panel_sums<rows, vectors>(half(k, (count + 1) / 2), from_zero, evens);
    panel_sums<rows, vectors>(half(k + 1, count / 2), from_zero, [&](int i, int v, f32x16 odd) {
      const f32x16 before = k == 0 ? begin(i, v) : sums(i, v);
      sums(i, v, before + (evens(i, v) + odd));
    });
  }
}

}  // namespace dodona::DODONA_TIER
