#include "ops/quantization/nvfp4_block_scale_interleave.h"

#include <gtest/gtest.h>

#include "quant/swizzle.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

TEST(Nvfp4BlockScaleInterleave, EveryScaleHasItsPlaceAndTheRestIsZero) {
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {33, 5}, {129, 8}}) {
    Tensor scales(DType::u8, {2, rows, columns});
    for (std::int64_t i = 0; i < scales.elements(); ++i) quant::set(scales, i, static_cast<double>(1 + i % 255));
    for (const Mode mode : all_modes) {
      Tensor out = ops::run(ops::Nvfp4BlockScaleInterleave{.unswizzled_sf = scales}, in_mode(mode)).swizzled_sf;
      EXPECT_EQ(out.elements() % 512, 0);
      for (std::int64_t i = 0; i < scales.elements(); ++i) {
        const std::int64_t matrix = i / (rows * columns), r = i / columns % rows, c = i % columns;
        const std::int64_t at = matrix * out.elements() / 2 + quant::scale_offset(quant::ScaleLayout::swizzled_128x4, r, c, columns);
        ASSERT_EQ(quant::get(out, at), quant::get(scales, i)) << name(mode) << i;
        quant::set(out, at, 0);
      }
      for (const double left : values_of(out)) ASSERT_EQ(left, 0);
    }
  }
}

TEST(Nvfp4BlockScaleInterleave, AMatrixAloneIsAnExpert) {
  const Tensor scales = normal(DType::bf16, {40, 6}, "scales");
  const Tensor alone = ops::run(ops::Nvfp4BlockScaleInterleave{.unswizzled_sf = scales}, in_mode(Mode::fast)).swizzled_sf;
  EXPECT_EQ(alone.shape(), (Dims{128 * 8}));
}

}  // namespace
}  // namespace dodona
