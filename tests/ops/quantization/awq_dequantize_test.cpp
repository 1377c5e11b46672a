#include "ops/quantization/awq_dequantize.h"

#include <gtest/gtest.h>

#include "dodona/error.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

TEST(AwqDequantize, ColumnsOfAWordLieInAwqsOrder) {
  // Nibble i of every word holds i.
  const ops::AwqDequantize op{.qweight = filled(DType::i32, {2, 2}, 0x76543210),
                              .scales = filled(DType::f16, {1, 16}, 0.5),
                              .qzeros = filled(DType::i32, {1, 2}, 0x11111111)};
  const Values nibbles{0, 4, 1, 5, 2, 6, 3, 7};
  for (const Mode mode : all_modes) {
    const Values out = values_of(ops::run(op, in_mode(mode)).out);
    for (std::size_t e = 0; e < out.size(); ++e) EXPECT_EQ(out[e], (nibbles[e % 8] - 1) / 2) << name(mode) << e;
  }
}

TEST(AwqDequantize, ProductsAreRoundedOnceAndDenormalsStay) {
  ops::AwqDequantize op{.qweight = filled(DType::i32, {1, 1}, 0x0000000F),
                        .scales = filled(DType::f16, {1, 8}, 0x1p-24),
                        .qzeros = filled(DType::i32, {1, 1}, 0)};
  EXPECT_EQ(quant::get(ops::run(op, in_mode(Mode::hopper)).out, 0), 15 * 0x1p-24);
  op.scales = filled(DType::f16, {1, 8}, 60000.0);
  EXPECT_EQ(quant::get(ops::run(op, in_mode(Mode::fast)).out, 0), infinity);
  op.scales = filled(DType::bf16, {1, 8}, 1.0078125);  // 15 * 129 / 128 lies between 15.0625 and 15.125
  EXPECT_EQ(quant::get(ops::run(op, in_mode(Mode::golden)).out, 0), 15.125);
}

TEST(AwqDequantize, GroupsThatDoNotDivideTheRowsAreRefused) {
  const ops::AwqDequantize op{
      .qweight = filled(DType::i32, {10, 1}, 0), .scales = filled(DType::f16, {4, 8}, 1), .qzeros = filled(DType::i32, {4, 1}, 0)};
  EXPECT_THROW(ops::run(op, in_mode(Mode::fast)), Error);
}

}  // namespace
}  // namespace dodona
