#include "quant/scale_layout.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "dodona/error.h"
#include "quant/ue8m0.h"

namespace dodona::quant {
namespace {

TEST(ScaleLayout, StridesOfEveryActivationLayout) {
  const auto strides = [](ActivationScaleLayout layout) {
    const ScaleStrides s = activation_scale_strides(layout, 5, 56);
    return std::vector<std::int64_t>{s.row_stride, s.group_stride, s.elements};
  };
  EXPECT_EQ(strides(ActivationScaleLayout::row_major), (std::vector<std::int64_t>{56, 1, 280}));
  EXPECT_EQ(strides(ActivationScaleLayout::column_major), (std::vector<std::int64_t>{1, 5, 280}));
  EXPECT_EQ(strides(ActivationScaleLayout::column_major_aligned), (std::vector<std::int64_t>{1, 8, 448}));
  EXPECT_EQ(activation_scale_strides(ActivationScaleLayout::column_major_aligned, 9, 3).group_stride, 12);
  EXPECT_EQ(activation_scale_strides(ActivationScaleLayout::column_major_aligned, 12, 3).group_stride, 12);
  EXPECT_EQ(strides(ActivationScaleLayout::trtllm), (std::vector<std::int64_t>{1, 5, 280}));
}

TEST(ScaleLayout, PackedUe8m0AddressesAreDistinctAndFollowTheFormula) {
  for (const std::int64_t rows : {1, 3, 4, 5, 64}) {
    for (const std::int64_t groups : {1, 4, 5, 12, 56}) {
      const PackedUe8m0Layout layout{rows, groups};
      const std::int64_t aligned_rows = (rows + 3) / 4 * 4;
      EXPECT_EQ(layout.words(), (groups + 3) / 4 * aligned_rows);
      std::set<std::int64_t> seen;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t g = 0; g < groups; ++g) {
          EXPECT_EQ(layout.byte_offset(r, g), ((g / 4) * aligned_rows + r) * 4 + g % 4);
          EXPECT_LT(layout.byte_offset(r, g), layout.words() * 4);
          seen.insert(layout.byte_offset(r, g));
        }
      }
      EXPECT_EQ(seen.size(), static_cast<std::size_t>(rows * groups));
    }
  }
}

TEST(ScaleLayout, PackingUe8m0ZeroFillsAndComesBack) {
  const PackedUe8m0Layout layout{5, 6};
  std::vector<std::uint8_t> bytes(30), back(30), packed(static_cast<std::size_t>(layout.words() * 4), 0xEE);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(100 + i);
  pack_ue8m0(bytes, layout, packed);
  // Groups 0..3 of row 0 are the bytes of the first word; group 4 opens the second column, 8 words later.
  EXPECT_EQ(packed[0], 100);
  EXPECT_EQ(packed[3], 103);
  EXPECT_EQ(packed[4], 106);
  EXPECT_EQ(packed[32], 104);
  EXPECT_EQ(packed[34], 0);
  EXPECT_EQ(packed[5 * 4], 0);
  unpack_ue8m0(packed, layout, back);
  EXPECT_EQ(back, bytes);
  packed.pop_back();
  EXPECT_THROW(pack_ue8m0(bytes, layout, packed), Error);
}

TEST(ScaleLayout, WeightScalesAreReplicatedToOneRowPerChannel) {
  const PackedUe8m0Layout layout{200, 3};
  const std::vector<float> scales{0x1p-3f, 0x1p-4f, 0x1p-5f, 1.0f, 2.0f, 4.0f};
  std::vector<std::uint8_t> packed(static_cast<std::size_t>(layout.words() * 4), 0xEE), bytes(600);
  pack_weight_ue8m0(scales, layout, packed);
  unpack_ue8m0(packed, layout, bytes);
  for (std::size_t n = 0; n < 200; ++n) {
    for (std::size_t g = 0; g < 3; ++g) EXPECT_EQ(ue8m0_bits_value(bytes[n * 3 + g]), scales[n / 128 * 3 + g]);
  }
}

TEST(ScaleLayout, WeightScalesThatAreNoPowersOfTwoThrow) {
  const PackedUe8m0Layout layout{1, 1};
  std::vector<std::uint8_t> packed(16);
  for (const float bad : {3.0f, 0.0f, -1.0f, 1.0f / 0.0f, 0.0f / 0.0f}) {
    EXPECT_THROW(pack_weight_ue8m0(std::vector<float>{bad}, layout, packed), Error) << bad;
  }
}

}  // namespace
}  // namespace dodona::quant
