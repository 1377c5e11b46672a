#include "ops/quantization/fp4_row.h"

#include "ops/row_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::Fp4Row;

constexpr int group_blocks = 16;
constexpr int group_elements = 256;

/// Thirty-two elements, two blocks: those of even index, those of odd index. Lanes 0..7 belong to the first block.
DODONA_INLINE Two evens_and_odds(Bf16Lanes, const void* p) {
  return Bf16Lanes::load_two(p);
}
DODONA_INLINE Two evens_and_odds(F16Lanes, const void* p) {
  const Two in_order = F16Lanes::load_two(p);
  const f32x16_pair split = deinterleave(in_order.a, in_order.b);
  return {split.first, split.second};
}

DODONA_INLINE f32x16 larger_of_pairs(f32x16 a, f32x16 b) {
  const f32x16_pair split = deinterleave(a, b);
  return max(split.first, split.second);
}

/// Lane i: the largest magnitude of block i. NaN elements are passed over; -1 where there is nothing else.
template <class Lanes>
DODONA_INLINE f32x16 block_maxima(const char* input) {
  const f32x16 none = f32x16::splat(-1.0f);
  f32x16 m[8];
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const Two x = evens_and_odds(Lanes{}, input + 32 * Lanes::bytes * j);
    m[j] = max(abs(x.b), max(abs(x.a), none));
  }
#pragma GCC unroll 3
  for (int count = 4; count > 0; count /= 2)
#pragma GCC unroll 4
    for (int j = 0; j < count; ++j) m[j] = larger_of_pairs(m[2 * j], m[2 * j + 1]);
  return m[0];
}

/// Zero of the sign where x is denormal.
DODONA_INLINE f32x16 flushed(f32x16 x) {
  return select(abs(x) < f32x16::splat(0x1p-126f), sign_of(x), x);
}
DODONA_INLINE f32x16 reciprocal(f32x16 x) {
  return flushed(f32x16::splat(1.0f) / flushed(x));
}

struct Constants {
  f32x16 encode_scale, decode_scale;
  bool zero_by_amax;
};

/// Sixteen blocks: 128 bytes of codes, 16 of scales.
template <class Lanes>
DODONA_INLINE void quantize_group(const char* input, const Constants& constants, std::uint8_t* codes, std::uint8_t* scales) {
  const f32x16 maxima = block_maxima<Lanes>(input);
  const f32x16 amax = select(maxima < f32x16::zero(), as_f32(i32x16::splat(0x7FC00000)), maxima);
  const f32x16 value = constants.encode_scale * (amax * f32x16::splat(1.0f / 6.0f));
  store_e4m3(value, scales);
  const f32x16 scale = load_e4m3(scales);
  const mask16 zero = (constants.zero_by_amax ? amax : scale) == f32x16::zero();
  float factors[group_blocks];
  select(zero, f32x16::zero(), reciprocal(scale * constants.decode_scale)).store(factors);
  const mask16 first_block = mask16::first(8);
#pragma GCC unroll 4
  for (int j = 0; j < 8; ++j) {
    const Two x = evens_and_odds(Lanes{}, input + 32 * Lanes::bytes * j);
    const f32x16 factor = select(first_block, f32x16::splat(factors[2 * j]), f32x16::splat(factors[2 * j + 1]));
    const i32x16 bytes = to_e2m1_codes(x.a * factor) | shl<4>(to_e2m1_codes(x.b * factor));
    lanes::narrow_to_8(bytes.v).store(codes + 16 * j);
  }
}

DODONA_INLINE void scatter_scales(const std::uint8_t* from, std::int64_t count, std::uint8_t* to) {
  for (; count >= 4; count -= 4, from += 4, to += 512) __builtin_memcpy(to, from, 4);
  for (std::int64_t c = 0; c < count; ++c) to[c] = from[c];
}

template <class Lanes>
void quantize_row(const Fp4Row row) {
  const Constants constants{f32x16::splat(row.encode_scale), reciprocal(f32x16::splat(row.encode_scale)), row.zero_by_amax};
  const auto* input = static_cast<const char*>(row.input);
  std::uint8_t scales[group_blocks];
  std::int64_t b = 0;
  for (; b + group_blocks <= row.blocks; b += group_blocks) {
    quantize_group<Lanes>(input + b * 16 * Lanes::bytes, constants, row.codes + 8 * b, scales);
    scatter_scales(scales, group_blocks, row.scales + b / 4 * 512);
  }
  const std::int64_t left = row.blocks - b;
  if (left == 0) return;
  char elements[group_elements * 2] = {};
  std::uint8_t codes[8 * group_blocks];
  __builtin_memcpy(elements, input + b * 16 * Lanes::bytes, static_cast<std::size_t>(left * 16 * Lanes::bytes));
  quantize_group<Lanes>(elements, constants, codes, scales);
  __builtin_memcpy(row.codes + 8 * b, codes, static_cast<std::size_t>(8 * left));
  scatter_scales(scales, left, row.scales + b / 4 * 512);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void Fp4RowKernel::run(const Fp4Row& row) {
  using namespace DODONA_TIER;
  if (row.type == DType::bf16) {
    quantize_row<Bf16Lanes>(row);
  } else {
    quantize_row<F16Lanes>(row);
  }
}
template void Fp4RowKernel::run<tier::DODONA_TIER>(const Fp4Row&);

}  // namespace dodona::ops
