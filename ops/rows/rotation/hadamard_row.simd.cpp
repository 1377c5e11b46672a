#include "ops/rows/rotation/hadamard_row.h"

#include <type_traits>

#include "ops/base/row_lanes.h"
#include "simd/registers.h"

namespace dodona::DODONA_TIER {
namespace {

constexpr std::int64_t block = ops::hadamard_block;

DODONA_INLINE f32x16_pair butterfly(f32x16_pair x) {
  return {x.first + x.second, x.first - x.second};
}

/// Elements of even index and those of odd index of the 32 from element i on; zeros from `width` on.
template <class Lanes>
DODONA_INLINE f32x16_pair evens_and_odds(const void* row, std::int64_t i, std::int64_t width) {
  if (i + 32 <= width) {
    const Two x = Lanes::load_two(at<Lanes>(row, i));
    if constexpr (std::is_same_v<Lanes, Bf16Lanes>) return {x.a, x.b};
    return deinterleave(x.a, x.b);
  }
  const f32x16 a = Lanes::load_partial(at<Lanes>(row, i), width - i);
  return deinterleave(a, width > i + 16 ? Lanes::load_partial(at<Lanes>(row, i + 16), width - i - 16) : f32x16::zero());
}

/// Strides 1 to 64 of the block. Of two vectors with thirty-two elements those of even index are added to those of odd index; each time the
/// two are taken apart again, the next stride has become that of neighbours. After five times the lanes are in order again, and strides
/// from 32 on are those of whole vectors.
template <class Lanes>
DODONA_INLINE void transform_block(const void* row, std::int64_t i, std::int64_t width, f32x16 (&v)[8]) {
  DODONA_UNROLL(4)
  for (int a = 0; a < 8; a += 2) {
    f32x16_pair sums = butterfly(evens_and_odds<Lanes>(row, i + 16 * a, width));
    DODONA_UNROLL(4)
    for (int stride = 2; stride <= 16; stride *= 2) sums = butterfly(deinterleave(sums.first, sums.second));
    v[a] = sums.first;
    v[a + 1] = sums.second;
  }
  DODONA_UNROLL(2)
  for (int distance = 2; distance <= 4; distance *= 2) {
    DODONA_UNROLL(8)
    for (int a = 0; a < 8; ++a) {
      if ((a & distance) != 0) continue;
      const f32x16_pair sums = butterfly({v[a], v[a + distance]});
      v[a] = sums.first;
      v[a + distance] = sums.second;
    }
  }
}

template <class Lanes>
DODONA_INLINE void write(f32x16 a, f32x16 b, void* row, std::int64_t i, const ops::HadamardRow& to) {
  const f32x16 scale = f32x16::splat(to.scale);
  a = a * scale;
  b = b * scale;
  if (to.writing != ops::Writing::cached) {
    Two x{a, b};
    if constexpr (std::is_same_v<Lanes, Bf16Lanes>) {
      const f32x16_pair parts = deinterleave(a, b);
      x = {parts.first, parts.second};
    }
    return Lanes::stream_two(x, at<Lanes>(row, i));
  }
  if (i + 32 <= to.width) {
    Lanes::store(a, at<Lanes>(row, i));
    return Lanes::store(b, at<Lanes>(row, i + 16));
  }
  Lanes::store_partial(a, at<Lanes>(row, i), to.width - i);
  if (to.width > i + 16) Lanes::store_partial(b, at<Lanes>(row, i + 16), to.width - i - 16);
}

template <class Lanes>
void one_block(const ops::HadamardRow& row) {
  f32x16 v[8];
  transform_block<Lanes>(row.x, 0, row.width, v);
  DODONA_UNROLL(4)
  for (int j = 0; j < 8; j += 2)
    if (16 * j < row.width) write<Lanes>(v[j], v[j + 1], row.out, 16 * j, row);
}

/// `x` as it is where bit c of the signs is clear, else with the other sign.
DODONA_INLINE f32x16 with_sign(f32x16 x, std::uint64_t signs, std::int64_t c) {
  const auto flip = static_cast<std::int32_t>(static_cast<std::uint32_t>(signs >> c) << 31);
  return as_f32(as_i32(x) ^ i32x16::splat(flip));
}
/// Four rows of signs side by side: a sum waits for itself.
void mix_chunks(const ops::HadamardRow& row) {
  constexpr int most_chunks = 40, together = 4;
  const std::int64_t chunks = row.chunks();
  for (std::int64_t j = 0; j < row.n; j += 16) {
    float* const column = row.sums + j;
    f32x16 mixed[most_chunks];
    for (std::int64_t r = 0; r < chunks; r += together) {
      const std::uint64_t* const signs = row.signs.data() + r;
      f32x16 sum[together];
      DODONA_UNROLL(4)
      for (int k = 0; k < together; ++k) sum[k] = with_sign(f32x16::load(column), signs[k], 0);
      for (std::int64_t c = 1; c < chunks; ++c) {
        const f32x16 x = f32x16::load(column + c * row.n);
        DODONA_UNROLL(4)
        for (int k = 0; k < together; ++k) sum[k] = sum[k] + with_sign(x, signs[k], c);
      }
      DODONA_UNROLL(4)
      for (int k = 0; k < together; ++k) mixed[r + k] = sum[k];
    }
    for (std::int64_t c = 0; c < chunks; ++c) mixed[c].store(column + c * row.n);
  }
}

/// `rounds` strides from this one on, each twice the one before, in one pass.
template <int rounds>
void transform_strides(float* sums, std::int64_t all, std::int64_t stride) {
  constexpr int count = 1 << rounds;
  for (std::int64_t base = 0; base < all; base += count * stride)
    for (std::int64_t i = base; i < base + stride; i += 16) {
      f32x16 v[count];
      DODONA_UNROLL(8)
      for (int k = 0; k < count; ++k) v[k] = f32x16::load(sums + i + k * stride);
      DODONA_UNROLL(3)
      for (int distance = 1; distance < count; distance *= 2) {
        DODONA_UNROLL(8)
        for (int k = 0; k < count; ++k) {
          if ((k & distance) != 0) continue;
          const f32x16_pair both = butterfly({v[k], v[k + distance]});
          v[k] = both.first;
          v[k + distance] = both.second;
        }
      }
      DODONA_UNROLL(8)
      for (int k = 0; k < count; ++k) v[k].store(sums + i + k * stride);
    }
}

template <class Lanes>
void many_blocks(const ops::HadamardRow& row) {
  const std::int64_t all = row.chunks() * row.n;
  for (std::int64_t i = 0; i < all; i += block) {
    f32x16 v[8];
    if (i < row.width) {
      DODONA_UNROLL(4)
      for (int j = 0; j < block; j += 32) fetch_two<Lanes>(row.next, i + j);
      transform_block<Lanes>(row.x, i, row.width, v);
      DODONA_UNROLL(8)
      for (int j = 0; j < 8; ++j) v[j].store(row.sums + i + 16 * j);
    } else {
      for (int j = 0; j < 8; ++j) f32x16::zero().store(row.sums + i + 16 * j);
    }
  }
  std::int64_t stride = block;
  for (; 8 * stride <= row.n; stride *= 8) transform_strides<3>(row.sums, all, stride);
  for (; 4 * stride <= row.n; stride *= 4) transform_strides<2>(row.sums, all, stride);
  for (; 2 * stride <= row.n; stride *= 2) transform_strides<1>(row.sums, all, stride);
  if (row.chunks() > 1) mix_chunks(row);
  for (std::int64_t i = 0; i < row.width; i += 32)
    write<Lanes>(f32x16::load(row.sums + i), f32x16::load(row.sums + i + 16), row.out, i, row);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void HadamardRowKernel::run(const HadamardRow& row) {
  using namespace DODONA_TIER;
  with_lanes(row.type, [&](auto lanes) {
    if (row.n == block && row.chunks() == 1) {
      one_block<decltype(lanes)>(row);
    } else {
      many_blocks<decltype(lanes)>(row);
    }
  });
  if (row.writing == Writing::streamed_last) stream_end();
}
template void HadamardRowKernel::run<tier::DODONA_TIER>(const HadamardRow&);

}  // namespace dodona::ops
