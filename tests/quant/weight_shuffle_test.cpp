#include "quant/weight_shuffle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "dodona/error.h"

namespace dodona::quant {
namespace {

RowPermutation identity(std::int64_t rows) {
  RowPermutation p(static_cast<std::size_t>(rows));
  std::iota(p.begin(), p.end(), 0);
  return p;
}

TEST(WeightShuffle, ShuffleAOf32Rows) {
  const RowPermutation expected{0, 4, 8,  12, 16, 20, 24, 28, 1, 5, 9,  13, 17, 21, 25, 29,
                                2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31};
  EXPECT_EQ(shuffle_a(32, 32), expected);
}

TEST(WeightShuffle, ShuffleAOf16Rows) {
  EXPECT_EQ(shuffle_a(16, 16), (RowPermutation{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15}));
}

TEST(WeightShuffle, ShuffleAIsABijectionWhoseSquareIsNotIdentity) {
  for (const int block : {16, 32}) {
    const RowPermutation p = shuffle_a(4096, block);
    RowPermutation sorted = p;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, identity(4096));
    EXPECT_NE(compose(p, p), identity(4096));
    EXPECT_EQ(compose(p, inverse(p)), identity(4096));
    EXPECT_EQ(p[static_cast<std::size_t>(block)], block) << "blocks are shuffled separately";
  }
}

TEST(WeightShuffle, BlockFollowsTheEpilogueTile) {
  EXPECT_EQ(shuffle_a_block(128), 32);
  EXPECT_EQ(shuffle_a_block(256), 32);
  EXPECT_EQ(shuffle_a_block(64), 16);
}

TEST(WeightShuffle, GatedInterleaveAlternatesTheHalves) {
  EXPECT_EQ(gated_interleave(8), (RowPermutation{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(swapped_halves(6), (RowPermutation{3, 4, 5, 0, 1, 2}));
  EXPECT_EQ(compose(swapped_halves(6), swapped_halves(6)), identity(6));
}

TEST(WeightShuffle, ComposedPermutationEqualsTwoPasses) {
  constexpr std::int64_t rows = 64, row_bytes = 3;
  std::vector<std::byte> matrix(rows * row_bytes), once(matrix.size()), twice(matrix.size()), at_once(matrix.size());
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<std::byte>(i * 37 % 251);
  const RowPermutation first = gated_interleave(rows), second = shuffle_a(rows, 32);
  permute_rows(matrix, row_bytes, first, once);
  permute_rows(once, row_bytes, second, twice);
  permute_rows(matrix, row_bytes, compose(first, second), at_once);
  EXPECT_EQ(twice, at_once);
  EXPECT_NE(twice, matrix);
  permute_rows(at_once, row_bytes, inverse(compose(first, second)), once);
  EXPECT_EQ(once, matrix);
}

TEST(WeightShuffle, BlockMajorKGathersBlocksOf128Bytes) {
  constexpr std::int64_t rows = 5, row_bytes = 384;
  std::vector<std::byte> matrix(rows * row_bytes), blocks(matrix.size()), back(matrix.size());
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<std::byte>(i * 41 % 253);
  to_block_major_k(matrix, rows, row_bytes, blocks);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = 0; k < row_bytes; ++k)
      EXPECT_EQ(blocks[static_cast<std::size_t>((k / 128 * rows + r) * 128 + k % 128)],
                matrix[static_cast<std::size_t>(r * row_bytes + k)]);
  }
  from_block_major_k(blocks, rows, row_bytes, back);
  EXPECT_EQ(back, matrix);
  std::vector<std::byte> two(2 * row_bytes);
  rows_from_block_major_k(blocks, rows, row_bytes, 3, 2, two);
  EXPECT_TRUE(std::equal(two.begin(), two.end(), matrix.begin() + 3 * row_bytes));
  EXPECT_THROW(rows_from_block_major_k(blocks, rows, row_bytes, 4, 2, two), Error);
}

TEST(WeightShuffle, ImpossibleSizesThrow) {
  EXPECT_THROW(shuffle_a(48, 32), Error);
  EXPECT_THROW(shuffle_a(64, 64), Error);
  EXPECT_THROW(gated_interleave(7), Error);
  EXPECT_THROW(gated_interleave(std::int64_t{1} << 60), Error);
  EXPECT_THROW(swapped_halves(-2), Error);
  EXPECT_THROW(compose({0, 1}, {0}), Error);
  EXPECT_THROW(inverse({0, 2}), Error);
  std::vector<std::byte> bytes(200);
  EXPECT_THROW(to_block_major_k(bytes, 2, 100, bytes), Error);
  EXPECT_THROW(permute_rows(bytes, 100, {0, 5}, bytes), Error);
}

}  // namespace
}  // namespace dodona::quant
