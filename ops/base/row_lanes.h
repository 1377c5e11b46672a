// Rows of bf16, f16 or f32 in vector code: one struct per element type, all with the same functions. Included by *.simd.cpp only.
#pragma once

#include "dodona/dtype.h"
#include "simd/convert.h"
#include "simd/stream.h"

namespace dodona::DODONA_TIER {

/// Thirty-two elements in an order that the element type chooses: whatever is done element by element comes back to its place.
struct Two {
  f32x16 a, b;
};

struct Bf16Lanes {
  static constexpr std::int64_t bytes = 2;
  static DODONA_INLINE f32x16 load(const void* p) { return load_bf16(p); }
  static DODONA_INLINE f32x16 load_partial(const void* p, std::int64_t n) { return load_bf16_partial(p, n); }
  static DODONA_INLINE void store(f32x16 x, void* p) { store_bf16(x, p); }
  static DODONA_INLINE void store_partial(f32x16 x, void* p, std::int64_t n) { store_bf16_partial(x, p, n); }
  static DODONA_INLINE f32x16 round(f32x16 x) { return round_to_bf16(x); }

  // Elements of even index, then those of odd index: a lane of 32 bits holds one of each, and no lane has to move.
  static DODONA_INLINE Two load_two(const void* p) {
    const i32x16 pairs = i32x16::load(static_cast<const std::int32_t*>(p));
    return {as_f32(shl<16>(pairs)), as_f32(pairs & i32x16::splat(-0x10000))};
  }
  static DODONA_INLINE void store_two(Two x, void* p) { pairs_of(x).store(static_cast<std::int32_t*>(p)); }
  static DODONA_INLINE void stream_two(Two x, void* p) { stream(pairs_of(x), p); }

 private:
  static DODONA_INLINE i32x16 pairs_of(Two x) { return shr<16>(rounded_bits(x.a)) | (rounded_bits(x.b) & i32x16::splat(-0x10000)); }
  /// The code in the upper half; the lower half holds what was rounded away.
  static DODONA_INLINE i32x16 rounded_bits(f32x16 x) {
    const i32x16 u = as_i32(x);
    const i32x16 odd = shr<16>(u) & i32x16::splat(1);
    return select(x == x, u + i32x16::splat(0x7FFF) + odd, i32x16::splat(0x7FFF0000));
  }
};

/// The functions of types whose elements are stored in order.
template <class Lanes>
struct InOrder {
  static DODONA_INLINE Two load_two(const void* p) {
    return {Lanes::load(p), Lanes::load(static_cast<const char*>(p) + 16 * Lanes::bytes)};
  }
  static DODONA_INLINE void store_two(Two x, void* p) {
    Lanes::store(x.a, p);
    Lanes::store(x.b, static_cast<char*>(p) + 16 * Lanes::bytes);
  }
};

struct F16Lanes : InOrder<F16Lanes> {
  static constexpr std::int64_t bytes = 2;
  static DODONA_INLINE f32x16 load(const void* p) { return load_f16(p); }
  static DODONA_INLINE f32x16 load_partial(const void* p, std::int64_t n) { return load_f16_partial(p, n); }
  static DODONA_INLINE void store(f32x16 x, void* p) { store_f16(x, p); }
  static DODONA_INLINE void store_partial(f32x16 x, void* p, std::int64_t n) { store_f16_partial(x, p, n); }
  static DODONA_INLINE f32x16 round(f32x16 x) { return round_to_f16(x); }
  static DODONA_INLINE void stream_two(Two x, void* p) {
    std::int32_t line[16];
    store_two(x, line);
    stream(i32x16::load(line), p);
  }
};

struct F32Lanes : InOrder<F32Lanes> {
  static constexpr std::int64_t bytes = 4;
  static DODONA_INLINE f32x16 load(const void* p) { return f32x16::load(static_cast<const float*>(p)); }
  static DODONA_INLINE f32x16 load_partial(const void* p, std::int64_t n) { return f32x16::load_partial(static_cast<const float*>(p), n); }
  static DODONA_INLINE void store(f32x16 x, void* p) { canonical_nan(x).store(static_cast<float*>(p)); }
  static DODONA_INLINE void store_partial(f32x16 x, void* p, std::int64_t n) { canonical_nan(x).store_partial(static_cast<float*>(p), n); }
  static DODONA_INLINE f32x16 round(f32x16 x) { return x; }
  static DODONA_INLINE void stream_two(Two x, void* p) {
    stream(as_i32(canonical_nan(x.a)), p);
    stream(as_i32(canonical_nan(x.b)), static_cast<char*>(p) + 64);
  }
};

/// Address of element i of a row.
template <class Lanes>
DODONA_INLINE const void* at(const void* row, std::int64_t i) {
  return static_cast<const char*>(row) + i * Lanes::bytes;
}
template <class Lanes>
DODONA_INLINE void* at(void* row, std::int64_t i) {
  return static_cast<char*>(row) + i * Lanes::bytes;
}

/// Whether a row may be written with stream_two.
DODONA_INLINE bool can_stream(const void* row) {
  return reinterpret_cast<std::uintptr_t>(row) % 64 == 0;
}

/// Brings in what load_two will read at element i of a row that is worked on later.
template <class Lanes>
DODONA_INLINE void fetch_two(const void* row, std::int64_t i) {
  __builtin_prefetch(at<Lanes>(row, i));
  if (Lanes::bytes == 4) __builtin_prefetch(at<Lanes>(row, i + 16));
}
/// Where memory is slower than what is made of it: what lies 8 kB behind that as well, into the second cache. The machine follows few
/// streams by itself, and loses them to stores that lie far apart. A prefetch beyond memory faults nowhere.
template <class Lanes>
DODONA_INLINE void fetch_far(const void* row, std::int64_t i) {
  fetch_two<Lanes>(row, i);
  __builtin_prefetch(static_cast<const char*>(at<Lanes>(row, i)) + 8192, 0, 2);
  if (Lanes::bytes == 4) __builtin_prefetch(static_cast<const char*>(at<Lanes>(row, i + 16)) + 8192, 0, 2);
}

/// Calls body(Lanes{}) for the lanes of `type`: bf16, f16, else f32.
template <class Body>
DODONA_INLINE void with_lanes(DType type, const Body& body) {
  switch (type) {
    case DType::bf16: return body(Bf16Lanes{});
    case DType::f16: return body(F16Lanes{});
    default: return body(F32Lanes{});
  }
}

}  // namespace dodona::DODONA_TIER
