#include "ops/moe/combine/moe_sum.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

/// What the terms of each of a row's elements, all the same, give.
Tensor sums_of(DType type, const Values& terms, Mode mode, std::int64_t width) {
  const auto topk = static_cast<std::int64_t>(terms.size());
  Values rows;
  for (const double term : terms) rows.insert(rows.end(), static_cast<std::size_t>(width), term);
  ops::MoeSum op;
  op.input_tensor = tensor_of(type, {1, topk, width}, rows);
  return ops::run(op, in_mode(mode)).output_tensor;
}
double sum_of(DType type, const Values& terms, Mode mode, std::int64_t width = 2) {
  return quant::get(sums_of(type, terms, mode, width), width - 1);
}

TEST(MoeSum, TwoToFourExpertsAreRoundedToTheTypeAfterEachSum) {
  // In bf16 256 + 1 is 256 again; five terms are summed in fp32.
  for (const Mode mode : all_modes) {
    EXPECT_EQ(sum_of(DType::bf16, {256, 1}, mode), 256);
    EXPECT_EQ(sum_of(DType::bf16, {256, 1, 1}, mode), 256) << name(mode);
    EXPECT_EQ(sum_of(DType::bf16, {256, 1, 1, 1}, mode), 256);
    EXPECT_EQ(sum_of(DType::bf16, {256, 1, 1, 1, 1}, mode), 260) << name(mode);
    EXPECT_EQ(sum_of(DType::f16, {2048, 1, 1}, mode), 2048);
    EXPECT_EQ(sum_of(DType::f32, {0x1p24, 1, 1}, mode), 0x1p24);
  }
}

TEST(MoeSum, TorchSumsInFourRunningSums) {
  // 2^24 joins the first term, and swallows the other sums one by one; in order four ones would have gone before it.
  EXPECT_EQ(sum_of(DType::f32, {1, 1, 1, 1, 0x1p24}, Mode::hopper), 0x1p24);
  EXPECT_EQ(sum_of(DType::f32, {1, 1, 1, 1, 0x1p24}, Mode::fast), 0x1p24 + 4);
}

TEST(MoeSum, TorchSumsRowsOfOneElementByHalves) {
  // Of terms four apart, 1 and 2^24 are 2^24; then 1 + 1 of the other two pairs joins it at once.
  EXPECT_EQ(sum_of(DType::f32, {1, 1, 1, 1, 0x1p24}, Mode::hopper, 1), 0x1p24 + 2);
}

TEST(MoeSum, AnH100HasOneNan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Values& terms : {Values{nan}, Values{1, nan}, Values{1, 1, 1, 1, nan}})
    EXPECT_EQ(quant::get_bits(sums_of(DType::f32, terms, Mode::hopper, 2), 0), 0x7FFFFFFFu) << terms.size();
}

}  // namespace
}  // namespace dodona
