#include "ops/moe/moe_sum.h"

#include <gtest/gtest.h>

#include "helpers.h"

namespace dodona {
namespace {

using namespace helpers;

double sum_of(DType type, const Values& terms, Mode mode) {
  const auto topk = static_cast<std::int64_t>(terms.size());
  ops::MoeSum op;
  op.input_tensor = tensor_of(type, {1, topk, 1}, terms);
  return quant::get(ops::run(op, in_mode(mode)).output_tensor, 0);
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

}  // namespace
}  // namespace dodona
