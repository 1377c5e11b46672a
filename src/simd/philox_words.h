// Philox4x32-10 words in bulk: the numbers of core/random.h's fill_words, many blocks at once; and bf16 numbers made of them.
#pragma once

#include <cstdint>

#include "core/random.h"
#include "simd/tier.h"

namespace dodona {

struct PhiloxWordsKernel {
  /// out[4*b + j] = word j of block first_block + b, b < blocks: out[i] = word(stream, 4 * first_block + i).
  template <class Tier>
  static void run(Stream stream, std::uint64_t first_block, std::int64_t blocks, std::uint32_t* out);
};

/// Both halves of a word, as signed numbers, become bf16(offset + fp32(half) * scale), in place.
struct Bf16WordsKernel {
  template <class Tier>
  static void run(float offset, float scale, std::int64_t words, std::uint32_t* in_out);
};

}  // namespace dodona
