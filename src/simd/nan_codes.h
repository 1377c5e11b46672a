// Whether codes of e4m3 are NaN, asked of many at a time. Included by *.simd.cpp only.
#pragma once

#include "simd/f32x16.h"

namespace dodona::DODONA_TIER {

/// Looks at codes of e4m3, four in every lane. NaN are those with all bits of the magnitude.
class NanCodes {
 public:
  DODONA_INLINE void look_at(i32x16 codes) {
#if DODONA_TIER_v3
    const lanes::i32 twice = add_8(codes, codes).v;
    seen_ = {{{_mm256_max_epu8(seen_.v.lo.v, twice.lo.v)}, {_mm256_max_epu8(seen_.v.hi.v, twice.hi.v)}}};
#elif DODONA_TIER_v4 || DODONA_TIER_v4_vnni
    seen_ = {{_mm512_max_epu8(seen_.v.v, add_8(codes, codes).v.v)}};
#else
    seen_ = seen_ | beyond_magnitudes(codes);
#endif
  }
  DODONA_INLINE bool any() const {
#if DODONA_TIER_v3 || DODONA_TIER_v4 || DODONA_TIER_v4_vnni
    const i32x16 beyond = beyond_magnitudes(shr<1>(seen_));
#else
    const i32x16 beyond = seen_;
#endif
    return dodona::DODONA_TIER::any(~((beyond & i32x16::splat(static_cast<std::int32_t>(0x80808080))) == i32x16::zero()));
  }

 private:
  /// Bit 7 of every byte that has all bits below it, beside other bits.
  static DODONA_INLINE i32x16 beyond_magnitudes(i32x16 codes) {
    return (codes & i32x16::splat(0x7F7F7F7F)) + i32x16::splat(0x01010101);
  }

  i32x16 seen_ = i32x16::zero();  ///< where bytes have a maximum, the largest of codes shifted by one, which leaves their signs out
};

/// Of a format that has none to look for.
struct NoNanCodes {
  DODONA_INLINE void look_at(i32x16) {}
  static constexpr bool any() { return false; }
};

}  // namespace dodona::DODONA_TIER
