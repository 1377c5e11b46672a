// The quick way to normal numbers gives the bits of their definition.
#include "core/box_muller.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "core/random.h"

namespace dodona {
namespace {

void expect_same(std::uint32_t radius, std::uint32_t angle) {
  const auto quick = box_muller(radius, angle), exact = box_muller_exact(radius, angle);
  for (std::size_t i = 0; i < 2; ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(quick[i]), std::bit_cast<std::uint32_t>(exact[i])) << radius << " " << angle << " " << i;
}

TEST(BoxMuller, RandomWordsGiveTheBitsOfTheDefinition) {
  std::vector<std::uint32_t> words(400000);
  fill_words({1, "words"}, 0, words);
  for (std::size_t i = 0; i < words.size(); i += 2) expect_same(words[i], words[i + 1]);
}

TEST(BoxMuller, WordsNextToTurnsAndEndsDoSoToo) {
  std::vector<std::uint32_t> edges;
  for (std::uint64_t eighth = 0; eighth <= 8; ++eighth)
    for (std::int64_t off = -40; off <= 40; ++off)
      edges.push_back(static_cast<std::uint32_t>(static_cast<std::int64_t>(eighth << 29) + off));
  for (const std::uint32_t angle : edges)
    for (const std::uint32_t radius : edges) expect_same(radius, angle);
}

}  // namespace
}  // namespace dodona
