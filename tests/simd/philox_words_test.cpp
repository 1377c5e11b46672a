#include "simd/philox_words.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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

}  // namespace
}  // namespace dodona
