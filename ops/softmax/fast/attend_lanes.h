// What ways of doing a unit of attention share: formats, masks, weights, and rows that are asked for ahead. Included by *.simd.cpp, and by
// a test.
#pragma once

#include "ops/base/row_lanes.h"
#include "ops/rows/cache/k_cache_row.h"
#include "ops/softmax/fast/attend.h"
#include "simd/math.h"

namespace dodona::DODONA_TIER {

struct E4m3Lanes {
  static constexpr std::int64_t bytes = 1;
  static DODONA_INLINE f32x16 load(const void* p) { return load_e4m3(p); }
  /// Rounded to e4m3, for 0 <= x <= 448 and NaN.
  static DODONA_INLINE f32x16 round(f32x16 x) {
    const i32x16 u = as_i32(x), odd = shr<20>(u) & i32x16::splat(1);
    const f32x16 normal = as_f32((u + i32x16::splat(0x7FFFF) + odd) & i32x16::splat(-0x100000));
    const f32x16 anchor = f32x16::splat(0x1p14f);  // its unit in the last place is 2^-9, that of the denormals
    return select(x < f32x16::splat(0x1p-6f), (x + anchor) - anchor, select(x == x, normal, x));
  }
};

template <class Body>
DODONA_INLINE void with_value_lanes(DType type, const Body& body) {
  if (type == DType::f8_e4m3) return body(E4m3Lanes{});
  with_lanes(type, body);
}

/// A row of MLA's cache in fp8: sixteen elements from k on, which bf16 holds, go to each(elements, k).
template <class Each>
DODONA_INLINE void widen_k_cache_row(const std::byte* row, const Each& each) {
  float scales[ops::k_cache_groups];
  __builtin_memcpy(scales, row + ops::k_cache_scales_at, sizeof scales);
  for (std::int64_t k = 0; k < ops::k_cache_nope; k += 16) {
    const f32x16 scale = round_to_bf16(f32x16::splat(scales[k / ops::k_cache_group]));
    each(round_to_bf16(load_e4m3(row + k) * scale), k);
  }
  for (std::int64_t k = 0; k < ops::k_cache_rope; k += 16) each(load_bf16(row + ops::k_cache_rope_at + 2 * k), ops::k_cache_nope + k);
}

/// Whether sixteen lanes see the key.
DODONA_INLINE mask16 sees(const ops::AttendUnit& unit, std::int64_t lane, std::int64_t key) {
  const i32x16 here = i32x16::splat(static_cast<std::int32_t>(key));
  const i32x16 end = unit.visible != nullptr ? i32x16::load(unit.visible + lane) : i32x16::splat(static_cast<std::int32_t>(unit.key_count));
  const mask16 before_end = here < end;
  return unit.hidden == nullptr ? before_end : before_end & (i32x16::load(unit.hidden + lane) < here + i32x16::splat(1));
}

/// Where scores are more than z * sigma.
inline void shape(float* scores, std::int64_t keys, const ops::AttendUnit& unit) {
  const f32x16 sigma = f32x16::splat(unit.sigma), cap = f32x16::splat(unit.cap);
  for (std::int64_t lane = 0; lane < unit.lanes; lane += 16) {
    const f32x16 temperature = unit.temperatures != nullptr ? f32x16::load(unit.temperatures + lane) : f32x16::splat(1.0f);
    for (std::int64_t j = 0; j < keys; ++j) {
      float* const p = scores + j * unit.lanes + lane;
      const f32x16 s = f32x16::load(p) * sigma;
      ((unit.cap > 0 ? tanh(s) * cap : s) * temperature).store(p);
    }
  }
}

/// Some of the keys from a block's first one on.
struct KeyRange {
  std::int64_t first, end;
};

DODONA_INLINE std::int64_t in_block(std::int64_t key, std::int64_t begin, std::int64_t count) {
  return key < begin ? 0 : key - begin < count ? key - begin : count;
}
/// Those of `count` keys from `begin` on that some of sixteen lanes see, and those that all lanes see; the latter may end before they
/// begin.
DODONA_INLINE KeyRange seen_by_some(const ops::AttendUnit& unit, std::int64_t lane, std::int64_t begin, std::int64_t count) {
  return {unit.hidden == nullptr ? 0 : in_block(unit.hidden[lane], begin, count),
          unit.visible == nullptr ? count : in_block(unit.visible[lane + 15], begin, count)};
}
DODONA_INLINE KeyRange seen_by_all(const ops::AttendUnit& unit, std::int64_t begin, std::int64_t count) {
  return {unit.hidden == nullptr ? 0 : in_block(unit.hidden[unit.lanes - 1], begin, count),
          unit.visible == nullptr ? count : in_block(unit.visible[0], begin, count)};
}
DODONA_INLINE bool all_see_all(const ops::AttendUnit& unit, std::int64_t begin, std::int64_t count) {
  const KeyRange all = seen_by_all(unit, begin, count);
  return all.first == 0 && all.end == count;
}

/// Where the first block begins of which some lane sees a key; the last one, where none sees any.
DODONA_INLINE std::int64_t first_block(const ops::AttendUnit& unit) {
  if (unit.hidden == nullptr || unit.key_count == 0) return 0;
  const std::int64_t key = unit.hidden[0] < unit.key_count ? unit.hidden[0] : unit.key_count - 1;
  return key - key % ops::attend_block;
}

/// The scores of a block times sigma, the new maximum, the weights rounded for their products, and the sum of the unrounded ones.
/// `factor` becomes what earlier sums are to be multiplied with. The weights of keys that a lane does not see are 0, and not written of
/// those behind all that sixteen lanes see.
template <class Weights, bool masked>
void weigh(float* scores, std::int64_t begin, std::int64_t keys, const ops::AttendUnit& unit, float* factor) {
  const bool shaped = unit.cap > 0 || unit.temperatures != nullptr;
  if (shaped) shape(scores, keys, unit);
  const f32x16 sigma = f32x16::splat(shaped ? 1.0f : unit.sigma), offset = f32x16::splat(unit.weight_exponent);
  const f32x16 lowest = f32x16::splat(-__builtin_inff());
  const bool first = begin == first_block(unit);
  float* const maxima = unit.partial;
  float* const sums = maxima + unit.lanes;
  for (std::int64_t lane = 0; lane < unit.lanes; lane += 16) {
    const f32x16 before = first ? lowest : f32x16::load(maxima + lane);
    f32x16 largest = before;
    const KeyRange seen = masked ? seen_by_some(unit, lane, begin, keys) : KeyRange{0, keys};
    for (std::int64_t j = 0; j < seen.first; ++j) f32x16::zero().store(scores + j * unit.lanes + lane);
    for (std::int64_t j = seen.first; j < seen.end; ++j) {
      float* const p = scores + j * unit.lanes + lane;
      f32x16 s = f32x16::load(p) * sigma;
      if (masked) s = select(sees(unit, lane, begin + j), s, lowest);
      s.store(p);
      largest = max(s, largest);
    }
    // Lanes that see no key yet: exp2 of -inf less 0.
    const f32x16 about = masked ? select(largest == lowest, f32x16::zero(), largest) : largest;
    f32x16 sum = f32x16::zero();
    for (std::int64_t j = seen.first; j < seen.end; ++j) {
      float* const p = scores + j * unit.lanes + lane;
      const f32x16 weight = exp2((f32x16::load(p) - about) + offset);
      sum = sum + weight;
      Weights::round(weight).store(p);
    }
    if (!first) {
      const f32x16 a = exp2(before - about);
      a.store(factor + lane);
      sum = fma(f32x16::load(sums + lane), a, sum);
    }
    largest.store(maxima + lane);
    sum.store(sums + lane);
  }
}

DODONA_INLINE void fetch_row(const std::byte* row, std::int64_t bytes) {
  for (std::int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(row + line);
}

/// Brings rows of keys and values in, as far as there are any: from `next` to before `end`.
DODONA_INLINE void fetch_rows(const ops::AttendUnit& unit, std::int64_t& next, std::int64_t end, std::int64_t key_bytes,
                              std::int64_t value_bytes) {
  if (end > unit.key_count) end = unit.key_count;
  for (; next < end; ++next) {
    fetch_row(unit.keys[next], key_bytes);
    if (value_bytes > 0) fetch_row(unit.values[next], value_bytes);
  }
}

}  // namespace dodona::DODONA_TIER
