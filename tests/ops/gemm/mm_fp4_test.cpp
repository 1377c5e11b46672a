// Rules of mm_fp4.
#include "ops/gemm/mm_fp4.h"

#include <gtest/gtest.h>

#include <string>

#include "dodona/error.h"
#include "dodona/prepared.h"
#include "ops/gemm/cutlass_scaled_fp4_mm.h"
#include "quant/swizzle.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;
using quant::ScaleLayout;

constexpr Mode modes[] = {Mode::golden, Mode::fast, Mode::blackwell};

/// `scales` [rows, columns] in tiles, junk in their padding.
Tensor in_tiles(DType type, const Tensor& scales, ScaleLayout layout) {
  const std::int64_t rows = scales.size(0), columns = scales.size(1);
  const quant::PaddedSize size = quant::padded_size(layout, rows, columns);
  Tensor tiles(type, {size.rows, size.columns});
  for (std::int64_t i = 0; i < tiles.elements(); ++i) tiles.as<std::uint8_t>()[i] = 0x55;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      tiles.as<std::uint8_t>()[quant::scale_offset(layout, r, c, columns)] = scales.as<std::uint8_t>()[r * columns + c];
  return tiles;
}
Tensor codes(std::int64_t rows, std::int64_t k, unsigned seed) {
  const Tensor t(DType::u8, {rows, k / 2});
  for (std::int64_t i = 0; i < t.elements(); ++i)
    t.as<std::uint8_t>()[i] = static_cast<std::uint8_t>((static_cast<unsigned>(i) + seed) * 2654435761u >> 24);
  return t;
}
Tensor scales(DType type, std::int64_t rows, std::int64_t columns) {
  const Tensor t(type, {rows, columns});
  for (std::int64_t i = 0; i < t.elements(); ++i) quant::set(t, i, static_cast<double>(1 << (i * 5 % 7)) / 8);
  return t;
}

TEST(MmFp4, IsCutlassScaledFp4MmInEitherLayoutOfScales) {
  const Tensor a = codes(10, 96, 1), b = codes(32, 96, 7), sa = scales(DType::f8_e4m3, 10, 6), sb = scales(DType::f8_e4m3, 32, 6);
  const Tensor alpha = tensor_of(DType::f32, {1}, {0.3});
  const Tensor large = in_tiles(DType::f8_e4m3, sa, ScaleLayout::swizzled_128x4),
               small = in_tiles(DType::f8_e4m3, sa, ScaleLayout::swizzled_8x4),
               right = in_tiles(DType::f8_e4m3, sb, ScaleLayout::swizzled_128x4);
  for (const Mode mode : modes) {
    const Tensor wanted =
        ops::run(ops::CutlassScaledFp4Mm{.a = a, .b = b, .block_scale_a = large, .block_scale_b = right, .alpha = alpha, .out = {}},
                 in_mode(mode))
            .out;
    for (const bool of_8 : {false, true}) {
      ops::MmFp4 op{
          .a = a, .b = b.transpose(0, 1), .a_descale = of_8 ? small : large, .b_descale = right.transpose(0, 1), .alpha = alpha, .out = {}};
      op.use_8x4_sf_layout = of_8;
      EXPECT_TRUE(same_bits(ops::run(op, in_mode(mode)).out, wanted)) << name(mode) << of_8;
    }
  }
}

TEST(MmFp4, PowersOfTwoScale32ElementsAndBytesAreWhatTheFormatSays) {
  // a is 1 everywhere, b too: every block of 32 adds 32 times its scales.
  const Tensor ones(DType::u8, {1, 48}), many(DType::u8, {32, 48});
  for (const Tensor& t : {ones, many}) std::fill_n(t.as<std::uint8_t>(), t.elements(), std::uint8_t{0x22});
  const Tensor left = tensor_of(DType::f8_e8m0, {1, 3}, {1, 4, 0x1p-100}), right(DType::f8_e8m0, {32, 3});
  for (std::int64_t i = 0; i < 96; ++i) quant::set(right, i, i % 3 == 2 ? 0x1p100 : 0.5);
  for (const DType type : {DType::f8_e8m0, DType::u8})
    for (const Mode mode : modes) {
      ops::MmFp4 op{.a = ones,
                    .b = many.transpose(0, 1),
                    .a_descale = in_tiles(type, left, ScaleLayout::swizzled_128x4),
                    .b_descale = in_tiles(type, right, ScaleLayout::swizzled_128x4).transpose(0, 1),
                    .alpha = {},
                    .out = {}};
      op.use_nvfp4 = false, op.block_size = 32;
      EXPECT_EQ(quant::get(ops::run(op, in_mode(mode)).out, 5), 32 * (0.5 + 2 + 1)) << name(mode);
      op.block_size = 16;
      EXPECT_THROW(ops::run(op, in_mode(mode)), Error);
    }
}

/// Random codes of few rows times 64 columns, MXFP4. Exponents of b's scales go around; `odd` is one of them, in the middle.
ops::MmFp4 mxfp4(std::int64_t m, std::int64_t k, std::uint8_t odd) {
  const Tensor left(DType::f8_e8m0, {m, k / 32}), right(DType::f8_e8m0, {64, k / 32});
  for (std::int64_t i = 0; i < left.elements(); ++i) left.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(120 + i * 5 % 13);
  for (std::int64_t i = 0; i < right.elements(); ++i) right.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(115 + i * 7 % 23);
  right.as<std::uint8_t>()[right.elements() / 2] = odd;
  ops::MmFp4 op{.a = codes(m, k, 3),
                .b = codes(64, k, 11).transpose(0, 1),
                .a_descale = in_tiles(DType::f8_e8m0, left, ScaleLayout::swizzled_128x4),
                .b_descale = in_tiles(DType::f8_e8m0, right, ScaleLayout::swizzled_128x4).transpose(0, 1),
                .alpha = tensor_of(DType::f32, {1}, {0.3}),
                .out = {}};
  op.use_nvfp4 = false, op.block_size = 32;
  return op;
}

TEST(MmFp4, PackedWeightsOfMxfp4GiveTheBitsOfRawOnesWhateverTheirScales) {
  // A scale like the others, the largest, one beside which sums need doubles, and NaN.
  for (const int odd : {120, 254, 3, 255})
    for (const std::int64_t k : {32, 96, 160, 1024})
      for (const std::int64_t m : {1, 3, 9, 40}) {
        ops::MmFp4 op = mxfp4(m, k, static_cast<std::uint8_t>(odd));
        const Tensor wanted = ops::run(op, in_mode(Mode::fast)).out;
        ops::MmFp4 weights{.a = {}, .b = op.b, .a_descale = {}, .b_descale = op.b_descale, .alpha = {}, .out = {}};
        weights.use_nvfp4 = false, weights.block_size = 32;
        op.b = op.b_descale = Tensor();
        for (const Isa isa : available_isas()) {
          const Exec exec = in_mode(Mode::fast, 2, isa);
          const Prepared prepared = ops::prepare(weights, exec);
          EXPECT_EQ(prepared.bytes(), 64 * ((k + 63) / 64) * 36 + 64);
          EXPECT_TRUE(same_bits(ops::run(op, exec, prepared).out, wanted)) << odd << ' ' << k << ' ' << m << ' ' << name(isa);
        }
      }
}

TEST(MmFp4, PackedWeightsAreOfOneFormat) {
  // Scales of either format have these shapes.
  ops::MmFp4 op = mxfp4(2, 32, 120);
  op.a_descale = op.a_descale.bitcast(DType::u8), op.b_descale = op.b_descale.bitcast(DType::u8);
  ops::MmFp4 weights{.a = {}, .b = op.b, .a_descale = {}, .b_descale = op.b_descale, .alpha = {}, .out = {}};
  weights.use_nvfp4 = false;
  EXPECT_NE(message_in([&] { ops::prepare(weights, in_mode(Mode::fast)); }).find("mm_fp4: block_size is 16, expected 32"),
            std::string::npos);
  weights.block_size = 32;
  const Prepared prepared = ops::prepare(weights, in_mode(Mode::fast));
  op.b = op.b_descale = Tensor();
  op.use_nvfp4 = true, op.block_size = 16;
  EXPECT_NE(
      message_in([&] { ops::run(op, in_mode(Mode::fast), prepared); }).find("use_nvfp4 is true, expected the format that b was packed in"),
      std::string::npos);
}

}  // namespace
}  // namespace dodona
