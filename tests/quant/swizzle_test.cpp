#include "quant/swizzle.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "dodona/error.h"

namespace dodona::quant {
namespace {

constexpr std::int64_t row_sizes[] = {1, 31, 32, 33, 127, 128, 129, 4096};
constexpr std::int64_t column_sizes[] = {1, 3, 4, 5, 112, 128, 448};

TEST(Swizzle, EveryLayoutIsABijectionOfThePaddedMatrix) {
  for (const ScaleLayout layout : {ScaleLayout::linear, ScaleLayout::swizzled_128x4, ScaleLayout::swizzled_8x4, ScaleLayout::r8c16}) {
    for (const std::int64_t rows : row_sizes) {
      for (const std::int64_t columns : column_sizes) {
        const PaddedSize padded = padded_size(layout, rows, columns);
        std::vector<bool> seen(static_cast<std::size_t>(padded.elements()));
        bool good = true;
        for (std::int64_t r = 0; r < padded.rows; ++r) {
          for (std::int64_t c = 0; c < padded.columns; ++c) {
            const std::int64_t at = scale_offset(layout, r, c, columns);
            good = good && at >= 0 && at < padded.elements() && !seen[static_cast<std::size_t>(at)];
            if (good) seen[static_cast<std::size_t>(at)] = true;
          }
        }
        EXPECT_TRUE(good) << rows << "x" << columns;
      }
    }
  }
}

/// View [R/128, 4, 32, C/4, 4], permuted to [R/128, C/4, 32, 4, 4].
std::vector<std::uint8_t> swizzle_by_permutation(const std::vector<std::uint8_t>& linear, std::int64_t rows, std::int64_t columns) {
  const std::int64_t padded_rows = align(rows, 128), padded_columns = align(columns, 4);
  std::vector<std::uint8_t> out;
  for (std::int64_t tile = 0; tile < padded_rows / 128; ++tile)
    for (std::int64_t k = 0; k < padded_columns / 4; ++k)
      for (std::int64_t inner = 0; inner < 32; ++inner)
        for (std::int64_t outer = 0; outer < 4; ++outer)
          for (std::int64_t j = 0; j < 4; ++j) {
            const std::int64_t r = tile * 128 + outer * 32 + inner, c = k * 4 + j;
            out.push_back(r < rows && c < columns ? linear[static_cast<std::size_t>(r * columns + c)] : std::uint8_t{0});
          }
  return out;
}

TEST(Swizzle, Layout128x4EqualsItsReshapeAndPermutation) {
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {129, 5}, {33, 112}, {256, 8}}) {
    std::vector<std::uint8_t> linear(static_cast<std::size_t>(rows * columns));
    for (std::size_t i = 0; i < linear.size(); ++i) linear[i] = static_cast<std::uint8_t>(1 + i % 251);
    std::vector<std::uint8_t> swizzled(static_cast<std::size_t>(padded_size(ScaleLayout::swizzled_128x4, rows, columns).elements()), 0xEE);
    swizzle_scales(ScaleLayout::swizzled_128x4, linear, rows, columns, swizzled);
    EXPECT_EQ(swizzled, swizzle_by_permutation(linear, rows, columns));
  }
}

TEST(Swizzle, KnownOffsets) {
  EXPECT_EQ(scale_offset(ScaleLayout::swizzled_128x4, 1, 0, 448), 16);
  EXPECT_EQ(scale_offset(ScaleLayout::swizzled_128x4, 32, 0, 448), 4);
  EXPECT_EQ(scale_offset(ScaleLayout::swizzled_128x4, 0, 4, 448), 512);
  EXPECT_EQ(scale_offset(ScaleLayout::swizzled_128x4, 128, 0, 448), 112 * 512);
  EXPECT_EQ(scale_offset(ScaleLayout::swizzled_8x4, 9, 5, 8), 2 * 32 + 32 + 4 + 1);
  EXPECT_EQ(scale_offset(ScaleLayout::r8c16, 9, 17, 32), 2 * 128 + 128 + 16 + 1);
  EXPECT_EQ(scale_offset(ScaleLayout::linear, 3, 5, 7), 26);
}

TEST(Swizzle, SizesOfDeepSeekWeights) {
  EXPECT_EQ(padded_size(ScaleLayout::swizzled_128x4, 4096, 448).elements(), 1835008);
  EXPECT_EQ(padded_size(ScaleLayout::swizzled_128x4, 7168, 128).elements(), 917504);
  EXPECT_EQ(padded_size(ScaleLayout::swizzled_128x4, 7168, 1024).elements(), 7340032);
}

TEST(Swizzle, UnswizzleUndoesSwizzleInEveryLayoutAndPaddingIsZero) {
  for (const ScaleLayout layout : {ScaleLayout::linear, ScaleLayout::swizzled_128x4, ScaleLayout::swizzled_8x4, ScaleLayout::r8c16}) {
    constexpr std::int64_t rows = 33, columns = 5;
    std::vector<std::uint16_t> linear(rows * columns), back(linear.size());
    for (std::size_t i = 0; i < linear.size(); ++i) linear[i] = static_cast<std::uint16_t>(1000 + i);
    std::vector<std::uint16_t> swizzled(static_cast<std::size_t>(padded_size(layout, rows, columns).elements()), 0xEEEE);
    swizzle_scales(layout, linear, rows, columns, swizzled);
    std::size_t zeros = 0;
    for (const std::uint16_t value : swizzled) zeros += value == 0;
    EXPECT_EQ(zeros, swizzled.size() - linear.size());
    unswizzle_scales(layout, swizzled, rows, columns, back);
    EXPECT_EQ(back, linear);
  }
}

TEST(Swizzle, SizesThatDoNotFitThrow) {
  std::vector<std::uint8_t> linear(12), swizzled(511), back(12);
  EXPECT_THROW(swizzle_scales(ScaleLayout::swizzled_128x4, linear, 3, 4, swizzled), Error);
  EXPECT_THROW(unswizzle_scales(ScaleLayout::swizzled_128x4, swizzled, 3, 4, back), Error);
  EXPECT_THROW(swizzle_scales(ScaleLayout::r8c16, linear, std::numeric_limits<std::int64_t>::max(), 1, swizzled), Error);
  EXPECT_THROW(swizzle_scales(ScaleLayout::linear, linear, -3, -4, back), Error);
}

}  // namespace
}  // namespace dodona::quant
