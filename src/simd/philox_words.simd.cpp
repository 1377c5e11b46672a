#include "simd/philox_words.h"

#include "core/philox.h"
#if DODONA_TIER_v3 || DODONA_TIER_v4 || DODONA_TIER_v4_vnni
#include <immintrin.h>
#endif

#include "simd/convert.h"
#include "simd/inline.h"

namespace dodona {
namespace DODONA_TIER {

// One block of words per 64-bit lane: a product of two 32-bit numbers fills it, so neither its high nor its low word needs moving.
// Only the low half of each lane of the state means something.
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
using Lanes = __m512i;
inline constexpr std::int64_t group = 8;
DODONA_INLINE Lanes splat(std::uint64_t x) {
  return _mm512_set1_epi64(static_cast<long long>(x));
}
/// 128-bit part l holds blocks l and 4 + l, so that unpacking leaves whole blocks in order.
DODONA_INLINE Lanes block_order() {
  return _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
}
DODONA_INLINE Lanes add(Lanes a, Lanes b) {
  return _mm512_add_epi64(a, b);
}
DODONA_INLINE Lanes multiply(Lanes a, Lanes b) {
  return _mm512_mul_epu32(a, b);
}
DODONA_INLINE Lanes high(Lanes a) {
  return _mm512_srli_epi64(a, 32);
}
DODONA_INLINE Lanes xor3(Lanes a, Lanes b, Lanes c) {
  return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}
/// Low halves of a and b side by side.
DODONA_INLINE Lanes pair(Lanes a, Lanes b) {
  return _mm512_mask_blend_epi32(0xAAAA, a, _mm512_slli_epi64(b, 32));
}
DODONA_INLINE void store_pairs(Lanes first, Lanes second, std::uint32_t* out) {
  _mm512_storeu_si512(out, _mm512_unpacklo_epi64(first, second));
  _mm512_storeu_si512(out + 16, _mm512_unpackhi_epi64(first, second));
}
#elif DODONA_TIER_v3
using Lanes = __m256i;
inline constexpr std::int64_t group = 4;
DODONA_INLINE Lanes splat(std::uint64_t x) {
  return _mm256_set1_epi64x(static_cast<long long>(x));
}
DODONA_INLINE Lanes block_order() {
  return _mm256_set_epi64x(3, 1, 2, 0);
}
DODONA_INLINE Lanes add(Lanes a, Lanes b) {
  return _mm256_add_epi64(a, b);
}
DODONA_INLINE Lanes multiply(Lanes a, Lanes b) {
  return _mm256_mul_epu32(a, b);
}
DODONA_INLINE Lanes high(Lanes a) {
  return _mm256_srli_epi64(a, 32);
}
DODONA_INLINE Lanes xor3(Lanes a, Lanes b, Lanes c) {
  return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}
DODONA_INLINE Lanes pair(Lanes a, Lanes b) {
  return _mm256_blend_epi32(a, _mm256_slli_epi64(b, 32), 0xAA);
}
DODONA_INLINE void store_pairs(Lanes first, Lanes second, std::uint32_t* out) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_unpacklo_epi64(first, second));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 8), _mm256_unpackhi_epi64(first, second));
}
#else
inline constexpr std::int64_t group = 1;
#endif

DODONA_INLINE std::uint32_t low_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}
DODONA_INLINE std::uint32_t high_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}

DODONA_INLINE void one_block(Stream stream, std::uint64_t index, std::uint32_t* out) {
  const PhiloxBlock words = philox4x32_10({low_word(index), high_word(index), low_word(stream.tensor), high_word(stream.tensor)},
                                          {low_word(stream.seed), high_word(stream.seed)});
  for (unsigned j = 0; j < 4; ++j) out[j] = words[j];
}

#if DODONA_TIER_v3 || DODONA_TIER_v4 || DODONA_TIER_v4_vnni
/// `group` blocks from `index` on.
DODONA_INLINE void block_group(Stream stream, std::uint64_t index, std::uint32_t* out) {
  constexpr int rounds = 10;
  const Lanes multiplier0 = splat(0xD2511F53), multiplier1 = splat(0xCD9E8D57);
  const Lanes counter = add(splat(index), block_order());
  Lanes c0 = counter, c1 = high(counter), c2 = splat(low_word(stream.tensor)), c3 = splat(high_word(stream.tensor));
  std::uint32_t k0 = low_word(stream.seed), k1 = high_word(stream.seed);
  for (int round = 0; round < rounds; ++round) {
    const Lanes product0 = multiply(multiplier0, c0), product1 = multiply(multiplier1, c2);
    c0 = xor3(high(product1), c1, splat(k0));
    c1 = product1;
    c2 = xor3(high(product0), c3, splat(k1));
    c3 = product0;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  store_pairs(pair(c0, c1), pair(c2, c3), out);
}
#endif

/// The low halves of lanes, as signed numbers, to bf16 codes.
DODONA_INLINE i32x16 bf16_of_halves(f32x16 offset, f32x16 scale, i32x16 signed_halves) {
  return to_bf16_codes(offset + to_f32(signed_halves) * scale);
}

}  // namespace DODONA_TIER

template <class Tier>
void PhiloxWordsKernel::run(Stream stream, std::uint64_t first_block, std::int64_t blocks, std::uint32_t* out) {
  using namespace DODONA_TIER;
  std::int64_t b = 0;
#if DODONA_TIER_v3 || DODONA_TIER_v4 || DODONA_TIER_v4_vnni
  for (; b + 2 * group <= blocks; b += 2 * group) {  // two at a time: the chain of ten products is long
    block_group(stream, first_block + static_cast<std::uint64_t>(b), out + 4 * b);
    block_group(stream, first_block + static_cast<std::uint64_t>(b + group), out + 4 * (b + group));
  }
#endif
  for (; b < blocks; ++b) one_block(stream, first_block + static_cast<std::uint64_t>(b), out + 4 * b);
}
template void PhiloxWordsKernel::run<tier::DODONA_TIER>(Stream, std::uint64_t, std::int64_t, std::uint32_t*);

template <class Tier>
void Bf16WordsKernel::run(float offset, float scale, std::int64_t words, std::uint32_t* in_out) {
  using namespace DODONA_TIER;
  const f32x16 o = f32x16::splat(offset), s = f32x16::splat(scale);
  for (std::int64_t i = 0; i < words; i += 16) {
    auto* const at = reinterpret_cast<std::int32_t*>(in_out + i);
    const i32x16 both = i32x16::load_partial(at, words - i);
    const i32x16 low = bf16_of_halves(o, s, sra<16>(shl<16>(both))), high = bf16_of_halves(o, s, sra<16>(both));
    (low | shl<16>(high)).store_partial(at, words - i);
  }
}
template void Bf16WordsKernel::run<tier::DODONA_TIER>(float, float, std::int64_t, std::uint32_t*);

}  // namespace dodona
