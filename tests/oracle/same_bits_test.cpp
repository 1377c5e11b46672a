// Runs that should give the same bits: what differs is told by place, and which of them do.
#include "oracle/judge/same_bits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dodona/error.h"
#include "quant/element.h"
#include "tests/errors.h"

namespace dodona::oracle {
namespace {

const std::vector<std::string> names{"a", "b", "c"};

NamedTensors run_of(int rows, int columns = 64) {
  Tensor tensor(DType::bf16, {rows, columns});
  for (std::int64_t i = 0; i < tensor.elements(); ++i) quant::set(tensor, i, static_cast<double>(i % 97) / 8);
  return {{"out", tensor}};
}
void change(const NamedTensors& run, std::int64_t i) {
  quant::set_bits(run.front().second, i, quant::get_bits(run.front().second, i) ^ 1u);
}

TEST(SameBits, HoldWhereAllRunsAgree) {
  const std::vector<NamedTensors> runs{run_of(4), run_of(4), run_of(4)};
  const SameBits result = same_bits(runs);
  EXPECT_TRUE(result.same());
  EXPECT_EQ(result.elements, 256);
  EXPECT_THAT(text_of(result, names), testing::HasSubstr("same bits: pass   (3 runs, 256 elements each)"));
}

TEST(SameBits, NameTheRunThatDiffersTheFirstElementTheirNumberAndWhereTheyLie) {
  const std::vector<NamedTensors> runs{run_of(4), run_of(4), run_of(4)};
  for (int c = 3; c < 64; ++c) change(runs[0], 2 * 64 + c);
  const SameBits result = same_bits(runs);
  ASSERT_FALSE(result.same());
  EXPECT_EQ(result.groups, (std::vector<std::vector<std::size_t>>{{1, 2}, {0}}));
  ASSERT_EQ(result.differences.size(), 1u);
  EXPECT_EQ(result.differences[0].differing, 61);
  EXPECT_EQ(result.differences[0].first, Dims({2, 3}));
  const std::string text = text_of(result, names);
  EXPECT_THAT(text, testing::HasSubstr("agree           b, c\n"));
  EXPECT_THAT(text, testing::HasSubstr("differ          a, from b"));
  EXPECT_THAT(text, testing::HasSubstr("61 of 256 elements, one row: 2"));
  EXPECT_THAT(text, testing::HasSubstr("the first at [2, 3]: "));
  EXPECT_EQ(to_json(result, names)["groups"][0][0], "b");
}

TEST(SameBits, ZerosOfBothSignsAndPayloadsOfNaNAreOtherBits) {
  for (const auto& [one, other] : {std::pair<unsigned, unsigned>{0x0000, 0x8000}, {0x7FC0, 0x7FFF}}) {
    const std::vector<NamedTensors> runs{run_of(1), run_of(1)};
    quant::set_bits(runs[0].front().second, 5, one);
    quant::set_bits(runs[1].front().second, 5, other);
    EXPECT_FALSE(same_bits(runs).same());
  }
}

TEST(SameBits, OfOtherBatchesTheCommonRowsAreCompared) {
  const std::vector<NamedTensors> runs{run_of(1), run_of(8)};
  const SameBits result = same_bits(runs);
  EXPECT_TRUE(result.same());
  EXPECT_EQ(result.elements, 64);
  EXPECT_THAT(result.notes, testing::ElementsAre("out: the first 1 rows are compared, which all runs have"));
  change(runs[1], 63);
  EXPECT_FALSE(same_bits(runs).same());
  change(runs[1], 63);
  change(runs[1], 64);
  EXPECT_TRUE(same_bits(runs).same()) << "a row that the other run does not have";
}

TEST(SameBits, OfNothingAreAnError) {
  const auto refusal = [](const std::vector<NamedTensors>& runs) { return helpers::message_in([&] { same_bits(runs); }); };
  EXPECT_THAT(refusal({run_of(1)}), testing::HasSubstr("two runs or more"));
  EXPECT_THAT(refusal({run_of(0), run_of(3)}), testing::HasSubstr("no element in common"));
  EXPECT_THAT(refusal({run_of(2), run_of(2, 32)}), testing::HasSubstr("only the first dimension may differ"));
  EXPECT_THAT(refusal({run_of(2), {}}), testing::HasSubstr("not of run 2"));
  EXPECT_THAT(refusal({run_of(2), {{"out", Tensor(DType::f16, {2, 64})}}}), testing::HasSubstr("is f16 in run 2"));
}

}  // namespace
}  // namespace dodona::oracle
