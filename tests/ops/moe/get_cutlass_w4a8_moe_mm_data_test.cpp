#include "ops/moe/align/get_cutlass_w4a8_moe_mm_data.h"

#include <gtest/gtest.h>

#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

TEST(GetCutlassW4a8MoeMmData, SizesAreNThenMThenKAndPermutationsStay) {
  for (const Mode mode : all_modes) {
    ops::GetCutlassW4a8MoeMmData op;
    op.topk_ids = tensor_of(DType::i32, {3, 2}, {2, 0, 2, 3, -1, 2});  // 3 and -1 are no experts here
    op.num_experts = 3;
    op.n = 5;
    op.k = 7;
    op.input_permutation = filled(DType::i32, {6}, 11);
    op.output_permutation = filled(DType::i32, {6}, 12);
    op = ops::run(op, in_mode(mode));
    EXPECT_EQ(values_of(op.expert_offsets), (Values{0, 1, 1, 4}));
    EXPECT_EQ(values_of(op.problem_sizes1), (Values{10, 1, 7, 10, 0, 7, 10, 3, 7}));
    EXPECT_EQ(values_of(op.problem_sizes2), (Values{7, 1, 5, 7, 0, 5, 7, 3, 5}));
    EXPECT_EQ(values_of(op.input_permutation), Values(6, 11));
    EXPECT_EQ(values_of(op.output_permutation), Values(6, 12));
  }
}

}  // namespace
}  // namespace dodona
