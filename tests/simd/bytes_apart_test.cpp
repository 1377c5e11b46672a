// Products of bytes that were taken apart, on the lanes that every machine has.
#define DODONA_TIER generic
#define DODONA_TIER_generic 1
#include "simd/bytes_apart.h"

#include <gtest/gtest.h>

namespace dodona::generic {
namespace {

TEST(BytesApart, EveryPairOfBytesIsMultipliedExactly) {
  for (int first = 0; first < 256; ++first)
    for (int second = -128; second < 128; ++second) {
      std::uint8_t a[64];
      std::int8_t b[64];
      std::int32_t sums[16];
      for (int i = 0; i < 64; ++i) {
        a[i] = static_cast<std::uint8_t>(first + 37 * i);
        b[i] = static_cast<std::int8_t>(second + 91 * i);
      }
      const BytesApart x = unsigned_apart(i32x16::load(reinterpret_cast<const std::int32_t*>(a))),
                       y = signed_apart(i32x16::load(reinterpret_cast<const std::int32_t*>(b)));
      add_pairs(add_pairs(i32x16::splat(5), x.even, y.even), x.odd, y.odd).store(sums);
      for (int lane = 0; lane < 16; ++lane) {
        std::int32_t expected = 5;
        for (int i = 4 * lane; i < 4 * lane + 4; ++i) expected += a[i] * b[i];
        ASSERT_EQ(sums[lane], expected) << first << ", " << second << ", lane " << lane;
      }
    }
}

}  // namespace
}  // namespace dodona::generic
