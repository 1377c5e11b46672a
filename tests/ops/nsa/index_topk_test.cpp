// Rules of the ops that choose 2048 positions: fast_topk_v2 and its fused forms.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>

#include "core/random.h"
#include "dodona/error.h"
#include "ops/nsa/fast_topk_transform_fused.h"
#include "ops/nsa/fast_topk_transform_ragged_fused.h"
#include "ops/nsa/fast_topk_v2.h"
#include "ops/rows/order/score_order.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr std::int64_t topk = ops::index_topk;
using Whole = std::vector<std::int64_t>;

Tensor ints(const Whole& values, Dims shape = {}) {
  if (shape.rank() == 0) shape = {static_cast<std::int64_t>(values.size())};
  Tensor t(DType::i32, shape);
  for (std::size_t i = 0; i < values.size(); ++i) t.as<std::int32_t>()[i] = static_cast<std::int32_t>(values[i]);
  return t;
}
Whole row_of(const Tensor& t, std::int64_t b) {
  const auto* const row = t.as<const std::int32_t>() + b * topk;
  return {row, row + topk};
}
ops::FastTopkV2 call(const Tensor& score, const Whole& lengths) {
  ops::FastTopkV2 op;
  op.score = score;
  op.lengths = ints(lengths);
  return op;
}
Tensor scores(std::int64_t n, double (*score)(std::int64_t)) {
  Tensor t(DType::f32, {1, n});
  for (std::int64_t i = 0; i < n; ++i) t.as<float>()[i] = static_cast<float>(score(i));
  return t;
}
/// By a full sort: the k-th largest, and the positions above it.
std::set<std::int64_t> above_the_bound(const Tensor& score, std::int64_t n) {
  Whole order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  const auto* const x = score.as<const float>();
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return x[a] > x[b]; });
  std::set<std::int64_t> above;
  for (std::int64_t k = 0; k < topk; ++k)
    if (x[order[static_cast<std::size_t>(k)]] > x[order[topk - 1]]) above.insert(order[static_cast<std::size_t>(k)]);
  return above;
}
TEST(IndexTopk, ShortRowsAreTheirPositionsInOrderWhateverTheScores) {
  for (const Mode mode : all_modes) {
    const auto op = ops::run(call(filled(DType::f32, {5, 3000}, std::nan("")), {0, -7, 1, 2047, 2048}), in_mode(mode));
    for (const auto& [b, length] : {std::pair{0, 0}, {1, 0}, {2, 1}, {3, 2047}, {4, 2048}}) {
      Whole expected(topk, -1);
      std::iota(expected.begin(), expected.begin() + length, 0);
      EXPECT_EQ(row_of(op.topk_indices, b), expected) << b;
    }
  }
}

TEST(IndexTopk, ARowLongerThanScoreIsAnErrorOnlyWhereItIsRead) {
  EXPECT_EQ(error_of(call(Tensor(DType::f32, {1, 64}), {2048})), "");
  const std::string error = error_of(call(Tensor(DType::f32, {2, 3000}), {3000, 3001}));
  EXPECT_NE(error.find("lengths holds 3001 at element 1, expected at most the columns of score from the row's start on, 3000"),
            std::string::npos)
      << error;
  auto op = call(Tensor(DType::f32, {1, 3000}), {2900});
  op.row_starts = ints({101});
  EXPECT_NE(error_of(op).find("2899"), std::string::npos) << error_of(op);
  op.row_starts = ints({-1});
  EXPECT_NE(error_of(op).find("row_starts holds -1"), std::string::npos) << error_of(op);
}

TEST(IndexTopk, TheLargestAreThereAndTiesFillUp) {
  struct Row {
    const char* what;
    std::int64_t n;
    double (*score)(std::int64_t);
  };
  const Row rows[] = {
      {"random", 70000, [](std::int64_t i) { return static_cast<double>(normal(Stream(1, "x"), static_cast<std::uint64_t>(i))); }},
      {"barely more", 2049, [](std::int64_t i) { return static_cast<double>((i * 7919) % 2049); }},
      {"three values", 65536, [](std::int64_t i) { return static_cast<double>(i * 7919 % 3); }},
      {"flat", 65536, [](std::int64_t) { return 0.25; }},
      {"one hot", 65536, [](std::int64_t i) { return i == 40000 ? 1.0 : 0.0; }},
      {"rising", 65536, [](std::int64_t i) { return static_cast<double>(i); }},
      {"falling", 65536, [](std::int64_t i) { return -static_cast<double>(i); }},
      {"largest in a run", 65536, [](std::int64_t i) { return i / 2100 == 17 ? 2.0 : 1.0 / static_cast<double>(i + 1); }},
      {"a half is -inf", 65536, [](std::int64_t i) { return i % 2 == 0 ? -infinity : std::sin(static_cast<double>(i)); }},
      {"all but some are -inf", 65536, [](std::int64_t i) { return i % 100 == 0 ? 1.0 : -infinity; }},
      {"every sampled one is large", 65536, [](std::int64_t i) { return i % 64 == 0 ? 9.0 : static_cast<double>(i % 1000); }}};
  for (const Row& row : rows) {
    const Tensor score = scores(row.n, row.score);
    const std::set<std::int64_t> above = above_the_bound(score, row.n);
    for (const Mode mode : {Mode::golden, Mode::fast}) {
      const Whole chosen = row_of(ops::run(call(score, {row.n}), in_mode(mode)).topk_indices, 0);
      const std::set<std::int64_t> distinct(chosen.begin(), chosen.end());
      EXPECT_EQ(distinct.size(), static_cast<std::size_t>(topk)) << row.what;
      EXPECT_GE(*distinct.begin(), 0) << row.what;
      EXPECT_LT(*distinct.rbegin(), row.n) << row.what;
      EXPECT_TRUE(std::includes(distinct.begin(), distinct.end(), above.begin(), above.end())) << row.what;
      float least = score.as<const float>()[chosen[0]];
      for (const std::int64_t i : chosen) least = std::min(least, score.as<const float>()[i]);
      for (std::int64_t i = 0; i < row.n; ++i)
        if (score.as<const float>()[i] > least) ASSERT_EQ(distinct.count(i), 1u) << row.what << " " << i;
    }
  }
}

TEST(IndexTopk, ScoresOrderAsUpstreamsKeysDo) {
  const float nan = std::nanf(""), minus_nan = std::copysign(nan, -1.0f), inf = std::numeric_limits<float>::infinity();
  const float rising[] = {-inf, -3e38f, -1.0f, -0x1p-149f, -0.0f, 0.0f, 0x1p-149f, 1.0f, 3e38f, inf, minus_nan, nan};
  for (std::size_t i = 0; i + 1 < std::size(rising); ++i) EXPECT_LT(ops::score_order(rising[i]), ops::score_order(rising[i + 1])) << i;
  EXPECT_LT(ops::score_order(inf), ops::first_nan_in_order);
  EXPECT_GE(ops::score_order(minus_nan), ops::first_nan_in_order);
}

TEST(IndexTopk, NaNsAndZerosOfBothSignsAreChosenInThatOrder) {
  // 1000 NaNs of each sign, 60 infinities and zeros: 48 of them and zeros of no sign are what is left of 2048.
  const Tensor score = scores(70000, [](std::int64_t i) {
    if (i % 70 == 3) return std::nan("");
    if (i % 70 == 5) return std::copysign(std::nan(""), -1.0);
    if (i < 1000 && i % 25 == 0) return infinity;
    return i % 2 == 0 ? 0.0 : -0.0;
  });
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    std::int64_t nans = 0, infinities = 0, zeros = 0;
    for (const std::int64_t i : row_of(ops::run(call(score, {70000}), in_mode(mode)).topk_indices, 0)) {
      const float x = score.as<const float>()[i];
      nans += std::isnan(x) ? 1 : 0;
      infinities += std::isinf(x) ? 1 : 0;
      zeros += x == 0 && !std::signbit(x) ? 1 : 0;
    }
    EXPECT_EQ(nans, 2000);
    EXPECT_EQ(nans + infinities + zeros, topk) << "no -0 while there is a +0";
    EXPECT_GT(infinities, 0);
  }
}

TEST(IndexTopk, FastModeChoosesWhatGoldenModeDoesOnEveryTier) {
  // The bound lies among numbers, ties, NaNs of either sign and infinities; rows end within a vector.
  const auto random = [](std::int64_t i) { return static_cast<double>(normal(Stream(3, "x"), static_cast<std::uint64_t>(i))); };
  for (const int nans : {0, 1, 3, 9}) {
    for (const std::int64_t n : {2050, 4099, 20003}) {
      Tensor score = scores(n, [](std::int64_t) { return 0.0; });
      for (std::int64_t i = 0; i < n; ++i) {
        const auto payload = static_cast<std::uint32_t>(1 + i * 7919 % 0x7FFFFF);
        const double number = i % 11 == 0 ? infinity : i % 3 == 0 ? 1.5 : random(i);
        const auto nan = (i % 2 == 0 ? 0x7F800000u : 0xFF800000u) | payload;
        score.as<std::uint32_t>()[i] = i % 10 < nans ? nan : std::bit_cast<std::uint32_t>(static_cast<float>(number));
      }
      const Whole expected = row_of(ops::run(call(score, {n}), in_mode(Mode::golden)).topk_indices, 0);
      for (const Isa isa : available_isas())
        EXPECT_EQ(row_of(ops::run(call(score, {n}), in_mode(Mode::fast, 1, isa)).topk_indices, 0), expected)
            << name(isa) << " " << nans << " " << n;
    }
  }
}

TEST(IndexTopk, FusedFormsSayTheSameOfTableAndOffset) {
  const Tensor score = helpers::normal(DType::f32, {4, 5000}, "score");
  const Whole lengths{4000, 3000, 2048, 5}, starts{1000, 7, 0, 4000};
  auto plain = call(score, lengths);
  plain.row_starts = ints(starts);
  for (const Mode mode : all_modes) {
    const Tensor positions = ops::run(plain, in_mode(mode)).topk_indices;
    ops::FastTopkTransformRaggedFused ragged;
    ragged.score = score, ragged.lengths = ints(lengths), ragged.row_starts = ints(starts),
    ragged.topk_indices_offset = ints({10, 20, 30, -40});
    ops::FastTopkTransformFused paged;
    paged.score = score, paged.lengths = ints(lengths), paged.row_starts = ints(starts), paged.cu_seqlens_q = ints({0, 3, 4});
    paged.page_table_size_1 = Tensor(DType::i32, {2, 4100});
    for (std::int64_t i = 0; i < 2 * 4100; ++i) paged.page_table_size_1.as<std::int32_t>()[i] = static_cast<std::int32_t>(8200 - i);
    const Tensor shifted = ops::run(ragged, in_mode(mode)).topk_indices_ragged, slots = ops::run(paged, in_mode(mode)).dst_page_table;
    for (std::int64_t b = 0; b < 4; ++b) {
      const Whole from = row_of(positions, b), to = row_of(shifted, b), slot = row_of(slots, b);
      const std::int64_t offset = Whole{10, 20, 30, -40}[static_cast<std::size_t>(b)];
      for (std::size_t k = 0; k < from.size(); ++k) {
        ASSERT_EQ(to[k], from[k] < 0 ? -1 : from[k] + offset);
        ASSERT_EQ(slot[k], from[k] < 0 ? -1 : 8200 - (b / 3 * 4100 + from[k])) << "the start is not added to the place in the table";
      }
    }
  }
}

TEST(IndexTopk, AsManyRequestsAsRowsWithoutStartsMeansOneEach) {
  ops::FastTopkTransformFused op;
  op.score = Tensor(DType::f32, {2, 8}), op.lengths = ints({2, 1}), op.page_table_size_1 = ints({5, 6, 7, 8}, {2, 2});
  op.cu_seqlens_q = ints({9, 9, 9});
  const Tensor out = ops::run(op, in_mode(Mode::fast)).dst_page_table;
  EXPECT_EQ(row_of(out, 0)[1], 6);
  EXPECT_EQ(row_of(out, 1)[0], 7);
  EXPECT_EQ(row_of(out, 1)[1], -1);
}

TEST(IndexTopk, RowsWithoutARequestAndLengthsBeyondTheTableAreErrors) {
  ops::FastTopkTransformFused op;
  op.score = Tensor(DType::f32, {3, 8}), op.lengths = ints({2, 1, 1}), op.page_table_size_1 = ints({5, 6, 7, 8}, {2, 2});
  for (const Whole& begins : {Whole{0, 1, 2}, Whole{1, 2, 3}, Whole{-1, 1, 3}}) {
    op.cu_seqlens_q = ints(begins);
    EXPECT_NE(error_of(op).find("cu_seqlens_q"), std::string::npos) << error_of(op);
  }
  op.cu_seqlens_q = ints({0, 1, 3});
  EXPECT_EQ(error_of(op), "");
  op.lengths = ints({3, 1, 1});
  EXPECT_NE(error_of(op).find("expected at most the columns of page_table_size_1, 2"), std::string::npos) << error_of(op);
}

// ---- what the judge allows

struct Judged {
  const Op& op = registry().at("fast_topk_v2");
  Arguments inputs;
  Tensor out;
  oracle::Outcome outcome(Mode mode = Mode::golden) const {
    return oracle::judge(op, inputs, {{"topk_indices", out}}, {.mode = mode, .exec = in_mode(Mode::golden)}).outcome;
  }
};
Judged judged(const Tensor& score) {
  Judged j;
  j.inputs.set("score", score);
  j.inputs.set("lengths", ints({score.size(1)}));
  j.out = ops::run(call(score, {score.size(1)}), in_mode(Mode::fast)).topk_indices;
  return j;
}

TEST(IndexTopk, OrderAndChoiceAmongTiesAreOpenAndNothingElse) {
  const Tensor score = scores(4000, [](std::int64_t i) { return i < 1000 ? 5.0 : i < 3000 ? 1.0 : 0.0; });
  Judged j = judged(score);
  auto* const row = j.out.as<std::int32_t>();
  for (const Mode mode : {Mode::golden, Mode::hopper}) EXPECT_EQ(j.outcome(mode), oracle::Outcome::pass);
  std::reverse(row, row + topk);
  for (std::int64_t k = 0; k < topk; ++k)
    if (row[k] >= 1000) row[k] = static_cast<std::int32_t>(2999 - (row[k] - 1000));
  for (const Mode mode : {Mode::golden, Mode::hopper}) EXPECT_EQ(j.outcome(mode), oracle::Outcome::pass) << "other ties, another order";
  const std::int32_t first = row[0];
  for (const std::int32_t wrong : {3500, row[1], -1, 4000}) {
    row[0] = wrong;
    for (const Mode mode : {Mode::golden, Mode::hopper}) EXPECT_EQ(j.outcome(mode), oracle::Outcome::fail) << wrong;
  }
  row[0] = first;
  *std::find(row, row + topk, 17) = 1500;
  EXPECT_EQ(j.outcome(), oracle::Outcome::fail) << "one that is certain is missing";
}

TEST(IndexTopk, TooManyCandidatesAreAKnownDefectWithoutBitsOfAGpu) {
  // Quarters of an octave share a bin: 20000 scores in [1, 1.25), 100 above.
  const Tensor score = scores(20100, [](std::int64_t i) { return i % 201 == 0 ? 8.0 : 1.0 + static_cast<double>(i) / 100000.0; });
  Judged j = judged(score);
  auto* const row = j.out.as<std::int32_t>();
  EXPECT_EQ(j.outcome(), oracle::Outcome::pass);
  EXPECT_TRUE(j.op.refusal(j.inputs, Mode::hopper).has_value());
  *std::find(row, row + topk, 20099) = 7;
  EXPECT_EQ(j.outcome(), oracle::Outcome::known_defect);
  *std::find(row, row + topk, 201) = 8;
  EXPECT_EQ(j.outcome(), oracle::Outcome::fail) << "scores above the bin are not among the candidates";
}

}  // namespace
}  // namespace dodona
