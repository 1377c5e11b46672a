#include "ops/moe/align/moe_align_block_size.h"

#include <gtest/gtest.h>

#include "dodona/error.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

/// Buffers hold 77 before.
ops::MoeAlignBlockSize call(const Dims& shape, const Values& ids, std::int64_t slots, std::int64_t block, bool pad, std::int64_t room,
                            DType type = DType::i32) {
  ops::MoeAlignBlockSize op;
  op.topk_ids = tensor_of(type, shape, ids);
  op.num_experts = slots;
  op.block_size = block;
  op.pad_sorted_token_ids = pad;
  op.sorted_token_ids = filled(DType::i32, {room}, 77);
  op.experts_ids = filled(DType::i32, {room / block}, 77);
  op.cumsum_buffer = filled(DType::i32, {slots + 1}, 77);
  return op;
}

ops::MoeAlignBlockSize no_block() {
  auto op = call({1, 2}, {0, 1}, 4, 2, true, 8);
  op.block_size = 0;
  return op;
}

TEST(MoeAlignBlockSize, IdsStandInWholeBlocksOfTheirExpertAndTheRestIsTheirNumber) {
  for (const Mode mode : all_modes)
    for (const DType type : {DType::i32, DType::i64, DType::i8}) {
      const auto op = ops::run(call({3, 2}, {1, 0, 1, -1, 1, 1}, 4, 3, true, 18, type), in_mode(mode));
      EXPECT_EQ(values_of(op.num_tokens_post_pad), Values{12});
      EXPECT_EQ(values_of(op.sorted_token_ids), (Values{3, 6, 6, 1, 6, 6, 0, 2, 4, 5, 6, 6, 6, 6, 6, 6, 6, 6})) << name(mode);
      EXPECT_EQ(values_of(op.experts_ids), (Values{-1, 0, 1, 1, 77, 77}));
    }
}

TEST(MoeAlignBlockSize, WithoutPaddingWhatIsNoIdIsLeftAsItWas) {
  for (const Mode mode : all_modes) {
    const auto op = ops::run(call({1, 3}, {1, 0, 1}, 3, 2, false, 8), in_mode(mode));
    EXPECT_EQ(values_of(op.sorted_token_ids), (Values{1, 77, 0, 2, 77, 77, 77, 77}));
    EXPECT_EQ(values_of(op.cumsum_buffer), Values(4, 77));
  }
}

TEST(MoeAlignBlockSize, ManySlotsLeaveTheEndsOfTheirIds) {
  for (const Mode mode : all_modes) {
    const auto op = ops::run(call({1, 3}, {63, 0, 63}, 65, 4, true, 8), in_mode(mode));
    Values ends(66, 4);
    ends[0] = 0;
    ends[1] = 1;
    ends[64] = 6;
    ends[65] = 8;
    EXPECT_EQ(values_of(op.cumsum_buffer), ends) << name(mode);
  }
}

TEST(MoeAlignBlockSize, ThereMayBeAsManySlotsAsNewerKernelsHave) {
  for (const Mode mode : all_modes) {
    const auto op = ops::run(call({1, 3}, {8190, 4000, 8190}, 8192, 2, true, 6), in_mode(mode));
    EXPECT_EQ(values_of(op.sorted_token_ids), (Values{1, 3, 0, 2, 3, 3}));
    EXPECT_EQ(values_of(op.experts_ids), (Values{4000, 8190, 77}));
    EXPECT_EQ(values_of(op.cumsum_buffer)[4001], 1);
    EXPECT_EQ(values_of(op.cumsum_buffer)[8192], 4);
  }
}

TEST(MoeAlignBlockSize, TheKernelOfOneBlockDealsIdsOutTo32Threads) {
  // Ids 0 and 32 are those of thread 0.
  const auto op = ops::run(call({1, 34}, Values(34, 0), 2, 64, true, 64), in_mode(Mode::hopper));
  const Values sorted = values_of(op.sorted_token_ids);
  EXPECT_EQ(Values(sorted.begin(), sorted.begin() + 5), (Values{0, 32, 1, 33, 2}));
}

TEST(MoeAlignBlockSize, OneExpertMayTakeAllAndNoTokenIsNothing) {
  for (const Mode mode : all_modes) {
    EXPECT_EQ(values_of(ops::run(call({4, 1}, Values(4, 2), 4, 2, true, 4), in_mode(mode)).sorted_token_ids), (Values{0, 1, 2, 3}));
    EXPECT_EQ(values_of(ops::run(call({0, 8}, {}, 4, 16, true, 16), in_mode(mode)).num_tokens_post_pad), Values{0});
  }
}

TEST(MoeAlignBlockSize, IdsOutOfRangeAndBuffersWithoutRoomAreRefusedByName) {
  const std::pair<ops::MoeAlignBlockSize, const char*> bad[] = {
      {call({1, 2}, {0, 3}, 4, 2, true, 8), "topk_ids holds 3 at element 1, expected -1 to num_experts - 2 = 2"},
      {call({1, 2}, {-2, 0}, 4, 2, true, 8), "topk_ids holds -2 at element 0"},
      {call({1, 2}, {0, 1}, 4, 4, true, 7), "sorted_token_ids has 7 elements, expected at least 8"},
      {call({1, 2}, {0, 1}, 8193, 4, true, 8), "num_experts"},
      {no_block(), "block_size"},
  };
  for (const auto& [op, text] : bad) {
    const Error error = error_from([&op = op] { ops::run(op, in_mode(Mode::fast)); });
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(MoeAlignBlockSize, TheJudgeTakesAnyOrderWithinAnExpertAndNoOther) {
  const NamedOp op{"moe_align_block_size"};
  Arguments inputs = op.case_of("M=9 topk=2 S=32 B=8 --attr num_experts=5 --attr block_size=4 --attr pad_sorted_token_ids=true");
  auto outputs = op.outputs(inputs, in_mode(Mode::golden));
  for (auto& [name, tensor] : outputs)
    if (name == "sorted_token_ids") {
      const Tensor before = tensor.clone();
      // The first expert begins the first block: slot 0 is empty.
      std::swap(tensor.as<std::int32_t>()[0], tensor.as<std::int32_t>()[1]);
      EXPECT_EQ(op.failing(inputs, outputs), 0);
      copy(before, tensor);
      std::swap(tensor.as<std::int32_t>()[0], tensor.as<std::int32_t>()[8]);
      EXPECT_GT(op.failing(inputs, outputs), 0);
    }
}

}  // namespace
}  // namespace dodona
