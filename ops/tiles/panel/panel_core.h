// The fp32 core of products: a block of sums in registers takes a broadcast element of A times vectors of B, k ascending. Included by
// *.simd.cpp only. Who uses it says where sums begin and where they go: matrices (panel.simd.cpp), scores and values of attention.
#pragma once

#include <cstdint>
#include <type_traits>

#include "simd/bf16_pairs.h"
#include "simd/registers.h"
#include "simd/sum_lanes.h"

namespace dodona::DODONA_TIER {

/// A stride that is known when the code is compiled. std::int64_t stands for one that is not.
template <std::int64_t n>
struct Known {
  constexpr operator std::int64_t() const { return n; }  // NOLINT(google-explicit-constructor)
};

/// Rows and vectors of sums that stay in registers beside what is multiplied: of one chain each 24 of 32 registers, or 12 of 16; of both
/// chains together 16 of 32, and what goes to all lanes is read as it is multiplied.
inline constexpr int sum_rows = many_sums_fit ? 8 : sum_lanes == 8 ? 4 : 6;
template <bool together>
inline constexpr int sum_vectors = !together && (many_sums_fit || sum_lanes == 8) ? 3 : 1;

/// body(together) with a constant: whether both chains of sums are best kept in registers together. They are where multiply-adds take so
/// long that reading a number for each is free.
template <class Body>
DODONA_INLINE void with_chains(bool wide_vectors_are_split, const Body& body) {
  if constexpr (many_sums_fit)
    if (wide_vectors_are_split) return body(std::true_type());
  body(std::false_type());
}

/// body(vectors, lane) for at most `most` vectors side by side at a time, whose number is a constant, that cover `lanes`. None is left
/// alone at the end: the few chains of one would wait for themselves.
template <int most, class Body>
DODONA_INLINE void side_by_side(std::int64_t lanes, const Body& body) {
  constexpr std::int64_t size = sum_lanes;
  for (std::int64_t lane = 0; lane < lanes;) {
    const std::int64_t left = (lanes - lane + size - 1) / size;
    const std::int64_t vectors = left == most + 1 ? (most + 1) / 2 : left < most ? left : most;
    if constexpr (most > 3)
      if (vectors == 4) body(std::integral_constant<int, 4>(), lane);
    if constexpr (most > 2)
      if (vectors == 3) body(std::integral_constant<int, 3>(), lane);
    if constexpr (most > 1)
      if (vectors == 2) body(std::integral_constant<int, 2>(), lane);
    if (vectors == 1) body(std::integral_constant<int, 1>(), lane);
    lane += vectors * size;
  }
}

/// Twice a stride.
template <std::int64_t n>
constexpr Known<2 * n> twice(Known<n>) {
  return {};
}
constexpr std::int64_t twice(std::int64_t n) {
  return 2 * n;
}

/// What products take: `k` of them, a[i][k] in all lanes as at(i, k), as many lanes of b[k] as sums have as lanes(k, v); and `count` of
/// every other k, from an even one or the odd one behind it. Here a[i][k] at a + i * a_row + k * a_k, b[k] at b + k * b_k.
template <class ARow, class AK, class BK>
struct PanelOperands {
  const float *a, *b;
  std::int64_t k;
  ARow a_row;
  AK a_k;
  BK b_k;

  DODONA_INLINE PanelOperands from_lane(std::int64_t lane) const { return {a, b + lane, k, a_row, a_k, b_k}; }
  DODONA_INLINE PanelOperands from(std::int64_t first, std::int64_t count) const {
    return {a + first * a_k, b + first * b_k, count, a_row, a_k, b_k};
  }

  DODONA_INLINE SumLanes at(std::int64_t i, std::int64_t j) const { return SumLanes::splat(a[i * a_row + j * a_k]); }
  DODONA_INLINE SumLanes lanes(std::int64_t j, std::int64_t v) const { return SumLanes::load(b + j * b_k + sum_lanes * v); }
  DODONA_INLINE auto evens(std::int64_t first, std::int64_t count) const {
    return PanelOperands<ARow, decltype(twice(a_k)), decltype(twice(b_k))>{a + first * a_k, b + first * b_k, count,
                                                                           a_row,           twice(a_k),      twice(b_k)};
  }
  DODONA_INLINE auto odds(std::int64_t first, std::int64_t count) const { return evens(first, count); }
};

/// Sums [rows][vectors], of SumLanes: each begins as begin(i, v) says, takes fma(a[i][k], b[k], sum) for every k in order, and goes to
/// end(i, v, sum).
template <int rows, int vectors, class Operands, class Begin, class End>
void panel_sums(const Operands o, const Begin begin, const End end) {
  SumLanes c[rows][vectors];
  DODONA_UNROLL(8)
  for (int i = 0; i < rows; ++i) {
    DODONA_UNROLL(4)
    for (int v = 0; v < vectors; ++v) c[i][v] = begin(i, v);
  }
  for (std::int64_t k = 0; k < o.k; ++k) {
    SumLanes b[vectors];
    DODONA_UNROLL(4)
    for (int v = 0; v < vectors; ++v) b[v] = o.lanes(k, v);
    DODONA_UNROLL(8)
    for (int i = 0; i < rows; ++i) {
      const SumLanes a = o.at(i, k);
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
  DODONA_INLINE SumLanes operator()(int i, int v) const { return SumLanes::load(c + i * c_row + sum_lanes * v); }
  DODONA_INLINE void operator()(int i, int v, SumLanes sum) const { sum.store(c + i * c_row + sum_lanes * v); }
};

/// A chain of each of some sums, from +0. What panel_sums does with its own: where registers are just enough, GCC keeps sums there only as
/// it is written there.
template <int rows, int vectors>
struct PanelChains {
  SumLanes of[rows][vectors];

  DODONA_INLINE PanelChains() {
    DODONA_UNROLL(8)
    for (int i = 0; i < rows; ++i) {
      DODONA_UNROLL(4)
      for (int v = 0; v < vectors; ++v) of[i][v] = SumLanes::zero();
    }
  }
  template <class Operands>
  DODONA_INLINE void add(const Operands& o, std::int64_t k) {
    SumLanes b[vectors];
    DODONA_UNROLL(4)
    for (int v = 0; v < vectors; ++v) b[v] = o.lanes(k, v);
    DODONA_UNROLL(8)
    for (int i = 0; i < rows; ++i) {
      const SumLanes a = o.at(i, k);
      DODONA_UNROLL(4)
      for (int v = 0; v < vectors; ++v) of[i][v] = fma(a, b[v], of[i][v]);
    }
  }
};

/// Pair sums as below, even and odd chains side by side in registers. A function of its own: beside others' GCC has too few addresses.
template <int rows, int vectors, class Operands, class Begin>
[[gnu::noinline]] void pair_sums_together(const Operands o, const Begin begin, const SumsAt sums) {
  for (std::int64_t k = 0; k < o.k; k += pair_group) {
    PanelChains<rows, vectors> even, odd;
    Operands left = o.from(k, o.k - k < pair_group ? o.k - k : pair_group);
    for (; left.k >= 2; left = left.from(2, left.k - 2)) {
      Operands second = left.from(1, 1);
      lie_apart(second.a);
      even.add(left, 0), odd.add(second, 0);
    }
    if (left.k > 0) even.add(left, 0);
    DODONA_UNROLL(8)
    for (int i = 0; i < rows; ++i) {
      DODONA_UNROLL(4)
      for (int v = 0; v < vectors; ++v) {
        const SumLanes before = k == 0 ? begin(i, v) : sums(i, v);
        sums(i, v, before + (even.of[i][v] + odd.of[i][v]));
      }
    }
  }
}

/// Pair sums (simd/bf16_pairs.h) in memory: each begins as begin(i, v) says, and lies in `sums` at the end.
template <int rows, int vectors, bool together = false, class Operands, class Begin>
void pair_sums(const Operands o, const Begin begin, const SumsAt sums) {
  if constexpr (together) return pair_sums_together<rows, vectors>(o, begin, sums);
  const auto from_zero = [](int, int) { return SumLanes::zero(); };
  alignas(64) float even[sum_lanes * rows * vectors];
  const SumsAt evens{even, sum_lanes * vectors};
  for (std::int64_t k = 0; k < o.k; k += pair_group) {
    const std::int64_t count = o.k - k < pair_group ? o.k - k : pair_group;
    panel_sums<rows, vectors>(o.evens(k, (count + 1) / 2), from_zero, evens);
    lie(even);
    panel_sums<rows, vectors>(o.odds(k + 1, count / 2), from_zero, [&](int i, int v, SumLanes odd) {
      const SumLanes before = k == 0 ? begin(i, v) : sums(i, v);
      sums(i, v, before + (evens(i, v) + odd));
    });
  }
}

}  // namespace dodona::DODONA_TIER
