#include "ops/speculative/fast_topk.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dodona/error.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

ops::FastTopk call(const Values& row, std::int64_t k, Mode mode, DType type = DType::f32) {
  ops::FastTopk op;
  op.values = tensor_of(type, {1, static_cast<std::int64_t>(row.size())}, row);
  op.topk = k;
  return ops::run(op, in_mode(mode));
}

TEST(FastTopk, TheLargestStandInFallingOrderWithTheirPlaces) {
  for (const Mode mode : all_modes)
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      const auto op = call({1, -3, 4, 2, -infinity, infinity}, 4, mode, type);
      EXPECT_EQ(values_of(op.out_values), (Values{infinity, 4, 2, 1}));
      EXPECT_EQ(values_of(op.indices), (Values{5, 2, 3, 0}));
    }
}

TEST(FastTopk, NotANumberIsLargerThanAnyAndMinusInfinityIsTheLeast) {
  for (const Mode mode : all_modes)
    for (const std::int64_t k : {1, 3}) {
      auto op = call({infinity, -infinity, std::nan(""), 7}, k, mode);
      EXPECT_EQ(quant::get(op.indices, 0), 2) << name(mode);
      EXPECT_TRUE(std::isnan(quant::get(op.out_values, 0)));
    }
}

TEST(FastTopk, OfEqualNumbersTheFirstIsTakenWhereOneIsWanted) {
  for (const Mode mode : all_modes) EXPECT_EQ(values_of(call({1, 5, 2, 5}, 1, mode).indices), Values{1});
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    EXPECT_EQ(values_of(call({1, 5, 2, 5, 5}, 2, mode).indices), (Values{1, 3}));
    EXPECT_EQ(values_of(call({-0.0, 0, -1, 0}, 3, mode).indices), (Values{0, 1, 3}));
  }
}

TEST(FastTopk, FastModeTakesWhatASortTakesInRowsOfAllShapes) {
  for (const std::int64_t width : {1, 63, 64, 65, 1000, 5000})
    for (const std::string dist : {"normal", "ties", "edge"})
      for (const DType type : {DType::f32, DType::bf16})
        for (const std::int64_t k : {std::int64_t{1}, std::int64_t{7}, std::int64_t{64}, width}) {
          if (k > width) continue;
          ops::FastTopk op;
          op.values = Tensor(type, {2, width});
          oracle::fill(op.values, Role::logits, 0, dist, 3, "values");
          op.topk = k;
          EXPECT_TRUE(same_bits(ops::run(op, in_mode(Mode::fast)).indices, ops::run(op, in_mode(Mode::golden)).indices))
              << width << " " << k;
        }
  // Sorted and flat rows fill whole groups with what is wanted.
  for (const double step : {1.0, -1.0, 0.0}) {
    Values row(3000);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = step * static_cast<double>(i);
    EXPECT_TRUE(same_bits(call(row, 40, Mode::fast).indices, call(row, 40, Mode::golden).indices));
  }
}

TEST(FastTopk, TheJudgeTakesAnyPlaceOfAnEqualNumberAndNoOther) {
  const NamedOp op{"fast_topk"};
  Arguments inputs = op.case_of("T=1 V=6 --attr topk=3");
  inputs.set("values", tensor_of(DType::f32, {1, 6}, {2, 7, 2, 9, 2, 1}));
  const auto failing = [&](const Values& indices, const Values& values) {
    return op.failing(inputs, {{"out_values", tensor_of(DType::f32, {1, 3}, values)}, {"indices", tensor_of(DType::i64, {1, 3}, indices)}});
  };
  EXPECT_EQ(failing({3, 1, 0}, {9, 7, 2}), 0);
  EXPECT_EQ(failing({3, 1, 4}, {9, 7, 2}), 0);
  EXPECT_GT(failing({3, 1, 5}, {9, 7, 1}), 0);
  EXPECT_GT(failing({3, 1, 5}, {9, 7, 2}), 0);
  EXPECT_GT(failing({1, 3, 0}, {7, 9, 2}), 0);
  EXPECT_GT(failing({3, 1, 1}, {9, 7, 2}), 0);
  EXPECT_GT(failing({3, 1, 6}, {9, 7, 2}), 0);
  EXPECT_GT(failing({3, 1, -1}, {9, 7, 2}), 0);
}

TEST(FastTopk, MoreThanThereAreAndOtherDimensionsAreRefused) {
  const auto error_of = [](std::int64_t k, std::int64_t dim) -> std::string {
    ops::FastTopk op;
    op.values = Tensor(DType::f32, {3, 4});
    op.topk = k, op.dim = dim;
    return message_in([&] { ops::run(op, in_mode(Mode::fast)); });
  };
  EXPECT_EQ(error_of(4, 1), "");
  EXPECT_EQ(error_of(0, -1), "");
  EXPECT_NE(error_of(5, -1).find("topk is 5, expected at most 4"), std::string::npos) << error_of(5, -1);
  EXPECT_NE(error_of(2, 0).find("dim is 0, expected the last dimension, -1 or 1"), std::string::npos);
}

}  // namespace
}  // namespace dodona
