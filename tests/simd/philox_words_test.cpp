#include "simd/philox_words.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "quant/half.h"

namespace dodona {
namespace {

TEST(PhiloxWords, EveryTierGivesTheWordsOfTheStream) {
  // The last start makes the low word of the counter run over.
  for (const std::uint64_t begin : {std::uint64_t{0}, std::uint64_t{5}, (std::uint64_t{1} << 32) - 7}) {
    for (const std::int64_t blocks : {1, 7, 8, 16, 45}) {
      const Stream stream(0x123456789ABCDEF0, "tensor");
      std::vector<std::uint32_t> expected(static_cast<std::size_t>(4 * blocks));
      fill_words(stream, 4 * begin, expected);
      for (const Isa isa : available_isas()) {
        std::vector<std::uint32_t> words(expected.size() + 1, 77);
        dispatch<PhiloxWordsKernel>(isa, stream, begin, blocks, words.data());
        EXPECT_EQ(words.back(), 77u);
        words.pop_back();
        EXPECT_EQ(words, expected) << std::string(name(isa)) << " from block " << begin << ", " << blocks;
      }
    }
  }
}

TEST(PhiloxWords, EveryTierMakesTheSameBf16OfBothHalves) {
  std::vector<std::uint32_t> words(3000);
  fill_words(Stream(3, "tensor"), 0, words);
  words[0] = 0x80007FFF, words[1] = 0xFFFF0001;
  for (const auto& [offset, scale] : {std::pair{0.0f, 0.0021f}, {1.0f, 0x1p-18f}, {-3.5f, 1e34f}}) {
    const auto code = [&, o = offset, s = scale](std::uint32_t half) -> std::uint32_t {
      return quant::f32_to_bf16(o + static_cast<float>(static_cast<std::int16_t>(half)) * s);
    };
    for (const std::int64_t count : {1, 15, 16, 17, 3000})
      for (const Isa isa : available_isas()) {
        std::vector<std::uint32_t> found = words;
        dispatch<Bf16WordsKernel>(isa, offset, scale, count, found.data());
        for (std::int64_t i = 0; i < 3000; ++i) {
          const std::uint32_t word = words[static_cast<std::size_t>(i)], expected = code(word & 0xFFFF) | code(word >> 16) << 16;
          ASSERT_EQ(found[static_cast<std::size_t>(i)], i < count ? expected : word) << name(isa) << ", " << i << " of " << count;
        }
      }
  }
}

}  // namespace
}  // namespace dodona
