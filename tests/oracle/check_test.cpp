// What a check says: figures, patterns, and the pains of customary comparisons that it must not have.
#include "oracle/report/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "oracle/cases/generate.h"
#include "oracle/cases/make_case.h"
#include "oracle/report/report.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// A case and outputs of one's own to break.
struct Sample {
  Case c;
  NamedTensors outputs;
  explicit Sample(const std::string& line) : c(make_case(parse_case_line(line), {}, true)) {
    for (const auto& [name, tensor] : c.outputs) outputs.emplace_back(name, tensor.clone());
  }
  Tensor& output(std::size_t i = 0) { return outputs[i].second; }
  /// Multiplies the elements that `pick` (of row, column) takes.
  Sample& scale(double factor, const std::function<bool(std::int64_t, std::int64_t)>& pick, std::size_t i = 0) {
    Tensor& t = output(i);
    const std::int64_t width = t.size(-1);
    for (std::int64_t k = 0; k < t.elements(); ++k)
      if (pick(k / width, k % width)) quant::set(t, k, factor * quant::get(t, k));
    return *this;
  }
  CheckResult result() const { return check(c, outputs, {}); }
};

OutputCheck checked(const Sample& sample, std::size_t i = 0) {
  return sample.result().outputs.at(i);
}

const auto everywhere = [](std::int64_t, std::int64_t) { return true; };

std::vector<std::int64_t> all_of(const Tensor& tensor) {
  std::vector<std::int64_t> failing;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) failing.push_back(i);
  return failing;
}

/// Numbers from 1 to 4, as the type has them.
Tensor numbers(DType type, const Dims& shape) {
  Tensor tensor(type, shape);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) quant::set(tensor, i, 1.0 + static_cast<double>(i * 37 % 101) * 3.0 / 101);
  return tensor;
}

/// Rows times factors of their own.
Tensor scaled_rows(const Tensor& tensor, const std::vector<double>& factors) {
  Tensor result = tensor.clone();
  for (std::int64_t i = 0; i < result.elements(); ++i)
    quant::set(result, i, quant::get(tensor, i) * factors[static_cast<std::size_t>(i / tensor.size(-1)) % factors.size()]);
  return result;
}

// ---- words ----

TEST(Words, APermutationMovesSomething) {
  const Tensor golden = numbers(DType::f8_e4m3, {6, 64});
  const auto relations = relations_of(all_of(golden), golden, golden.clone(), {}, golden.shape());
  for (const std::string& relation : relations) EXPECT_THAT(relation, Not(HasSubstr("holds golden's row")));
  EXPECT_THAT(relations, Contains(HasSubstr("golden's own bits, but not what follows from the other outputs")));
}

TEST(Words, AFactorIsNotReadFromCodesThatFitNearlyAny) {
  for (const DType type : {DType::f8_e4m3, DType::f8_e5m2}) {
    const Tensor golden = numbers(type, {6, 64});
    for (const std::vector<double>& factors : {std::vector<double>{1.12}, {1.12, 1.31, 0.9}})
      for (const std::string& relation : relations_of(all_of(golden), golden, scaled_rows(golden, factors), {}, golden.shape()))
        EXPECT_THAT(relation, Not(HasSubstr("factor"))) << name(type);
  }
}

TEST(Words, AFactorOfEachRowIsTriedBeforeOneOfAll) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    const Tensor golden = numbers(type, {4, 64});
    EXPECT_THAT(relations_of(all_of(golden), golden, scaled_rows(golden, {1.5, 0.75, 3.0, 1.25}), {}, golden.shape()),
                Contains(HasSubstr("each row has a factor of its own: row 0 = 1.5 x golden's, row 1 = 0.75 x golden's")))
        << name(type);
    EXPECT_THAT(relations_of(all_of(golden), golden, scaled_rows(golden, {1.5}), {}, golden.shape()),
                Contains(HasSubstr("a constant factor: actual = 1.5 x golden")))
        << name(type);
  }
}

TEST(Words, AFewElementsThatAreOffByARoundingHaveNoFactor) {
  const Tensor golden = numbers(DType::bf16, {4, 64}), actual = golden.clone();
  const std::vector<std::int64_t> failing{3, 70, 131, 250};
  for (const std::int64_t i : failing) quant::set(actual, i, 0.995 * quant::get(golden, i));
  for (const std::string& relation : relations_of(failing, golden, actual, {}, golden.shape()))
    EXPECT_THAT(relation, Not(HasSubstr("factor")));
}

TEST(Words, PartsOfRowsThatHaveAnotherRowsFactorAreNamed) {
  Sample sample("rmsnorm T=32 H=512");
  sample.scale(1.05, [](std::int64_t row, std::int64_t column) { return row == 5 && column >= 64 && column < 128; });
  sample.scale(0.93, [](std::int64_t row, std::int64_t column) { return row == 20 && column >= 256 && column < 320; });
  EXPECT_THAT(likely_cause(sample.result()), HasSubstr("parts of rows have a factor that is not their row's"));
}

TEST(Words, RowsBehindTheReachOf32BitsAreSaidToBeThat) {
  const std::string line = "moe_sum_reduce T=65536 topk=10 D=4096 --attr routed_scaling_factor=1 --window T=52427..52431";
  for (const std::int64_t first : {2, 1}) {
    Sample sample(line);
    sample.scale(-3, [&](std::int64_t row, std::int64_t) { return row >= first; });
    const std::string cause = likely_cause(sample.result());
    // Row 52429 is the first whose ten rows of 4096 numbers begin behind 2^31.
    if (first == 2) EXPECT_THAT(cause, HasSubstr("from row 52429 on, where offsets in input_tensor reach 2^31 elements"));
    if (first == 1) EXPECT_THAT(cause, Not(HasSubstr("2^31")));
  }
}

TEST(Words, AMistakeMadeWithOneOfTheOutputsAloneIsNamed) {
  Sample sample("apply_rope_with_cos_sin_cache_inplace T=8 P=64 R=64 Nq=4 Nk=2 --attr head_size=64");
  const Tensor& before = *sample.c.inputs.find("query");
  for (std::int64_t i = 0; i < before.elements(); ++i) quant::set_bits(sample.output(), i, quant::get_bits(before, i));
  const std::string cause = likely_cause(check(sample.c, sample.outputs, {}, {.on = true, .seconds = 30}));
  EXPECT_THAT(cause, HasSubstr("query: what an argument held before the call"));
}

// ---- pains ----

TEST(Pain, HalfOfTheTruthFailsThoughTolerancesOfOneAndAHalfSigmaPassIt) {
  Sample sample("rmsnorm T=8 H=512");
  sample.scale(0.5, everywhere);
  const OutputCheck output = checked(sample);
  EXPECT_EQ(output.verdict.outcome, Outcome::fail);
  EXPECT_THAT(output.relations, Contains(HasSubstr("a constant factor: actual = 0.5 x golden (half)")));
}

TEST(Pain, OnePercentOnOneHeadFailsThoughAssertCloseAndCosinePassIt) {
  Sample sample("merge_state T=3 N=16 D=128");
  sample.scale(1.01, [](std::int64_t row, std::int64_t) { return row % 16 == 5; });
  const OutputCheck output = checked(sample);
  EXPECT_EQ(output.verdict.outcome, Outcome::fail);
  EXPECT_EQ(output.verdict.pattern, "one head: 5 of 16");
  EXPECT_TRUE(output.statistics.assert_close.passes());
  EXPECT_GT(output.statistics.cosine, 0.9999);
}

TEST(Pain, ZerosNeverPass) {
  for (const char* line : {"rmsnorm T=4 H=64", "silu_and_mul T=4 D=64", "bmm_fp8 L=1 M=4 N=16 K=64", "merge_state T=2 N=3 D=16"}) {
    Sample sample(line);
    sample.output() = Tensor(sample.output().dtype(), sample.output().shape());
    const OutputCheck output = checked(sample);
    EXPECT_EQ(output.verdict.outcome, Outcome::fail) << line;
    EXPECT_THAT(output.relations, Contains(HasSubstr("zeros: not written"))) << line;
  }
}

TEST(Pain, ALargeOutputIsNotHeldToAnAbsoluteToleranceBelowItsOwnUlp) {
  // bf16 near 30 has steps of 0.125: a tolerance of 0.06 fails correct kernels. An fp32 kernel's rounding of a neighbouring sum passes
  // here.
  Sample sample("bmm_fp8 L=1 M=4 N=32 K=512");
  Exec fast;
  Arguments arguments = runnable(*sample.c.op, sample.c.inputs);
  sample.c.op->run(arguments, fast);
  sample.outputs = outputs_of(*sample.c.op, arguments);
  EXPECT_EQ(checked(sample).verdict.outcome, Outcome::pass);
}

TEST(Pain, MinusInfinityWhereGoldenHasItIsRight) {
  // An empty sequence has the log-sum-exp -inf; harnesses that reject every Inf reject the faithful kernel.
  Sample sample("merge_state_v2 T=8 N=4 D=16 --dist edge --dialect flashinfer");
  bool some = false;
  for (std::int64_t i = 0; i < sample.output(1).elements(); ++i) some = some || std::isinf(quant::get(sample.output(1), i));
  ASSERT_TRUE(some);
  EXPECT_EQ(checked(sample, 1).verdict.outcome, Outcome::pass);
}

TEST(Pain, Fp8OutputsAreJudgedByTheirCodesAndNotByEqualityAlone) {
  Sample sample("sgl_per_token_quant_fp8 M=8 K=512 --seed 2");
  const OutputCheck same = checked(sample);
  EXPECT_EQ(same.verdict.judge, Judge::code);
  EXPECT_EQ(same.statistics.assert_close.rtol, 0) << "torch compares FP8 for equality";
}

TEST(Pain, OneUlpEverywhereTowardZeroIsCalledTruncation) {
  Sample sample("silu_and_mul T=4 D=128");
  const OutputCheck golden = checked(sample);
  Tensor& t = sample.output();
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const double exact = golden.verdict.detail->exact[static_cast<std::size_t>(i)];
    double cut = quant::round_to(DType::bf16, exact);
    if (std::fabs(cut) > std::fabs(exact)) cut = cut > 0 ? quant::next_down(DType::bf16, cut) : quant::next_up(DType::bf16, cut);
    quant::set(t, i, cut);
  }
  const OutputCheck output = checked(sample);
  EXPECT_EQ(output.verdict.outcome, Outcome::fail);
  EXPECT_THAT(output.relations, Contains(HasSubstr("truncated instead of rounded")));
  EXPECT_TRUE(output.statistics.assert_close.passes());
}

// ---- patterns ----

struct Place {
  const char* expected;
  std::function<bool(std::int64_t row, std::int64_t column)> pick;
};

TEST(Pattern, NamesThePlaceOfAnError) {
  const Dims shape{256, 512};
  const std::vector<Place> places{
      {"one element: [3, 7]", [](auto r, auto c) { return r == 3 && c == 7; }},
      {"one row: 9, columns 0..511", [](auto r, auto) { return r == 9; }},
      {"one column: 100", [](auto, auto c) { return c == 100; }},
      {"one tile: rows 128..191, columns 64..127 (tile 2, 1 of 64 x 64)",
       [](auto r, auto c) { return r >= 128 && r < 192 && c >= 64 && c < 128; }},
      {"the tail of the rows: columns 496..511", [](auto, auto c) { return c >= 496; }},
      {"stripes: columns 8..15 of every 16", [](auto, auto c) { return c % 16 >= 8; }},
      {"stripes: columns 1 of every 2", [](auto, auto c) { return c % 2 == 1; }},
      {"stripes: rows 3 of every 4", [](auto r, auto) { return r % 4 == 3; }},
      {"rows 200..255", [](auto r, auto) { return r >= 200; }},
      {"sporadic: 130 elements over 130 rows and 130 columns", [](auto r, auto c) { return r < 130 && c == r * r * 7 % 509; }},
      {"every element", [](auto, auto) { return true; }},
  };
  for (const Place& place : places) {
    std::vector<std::int64_t> failing;
    for (std::int64_t i = 0; i < 256 * 512; ++i)
      if (place.pick(i / 512, i % 512)) failing.push_back(i);
    const std::string found = place_of(failing, 256 * 512, shape);
    if (std::string(place.expected).starts_with("sporadic")) {
      EXPECT_THAT(found, HasSubstr("sporadic: 130 elements"));
    } else {
      EXPECT_EQ(found, place.expected);
    }
  }
}

TEST(Pattern, ManyThatFailInOneTileAloneHaveAPlace) {
  std::vector<std::int64_t> failing;
  for (std::int64_t i = 0; i < 128 * 128; i += 17)
    if (i % 5 < 2) failing.push_back((128 + i / 128) * 256 + 128 + i % 128);
  EXPECT_EQ(place_of(failing, 256 * 256, {256, 256}).rfind("one tile: rows 128..255", 0), 0U) << place_of(failing, 256 * 256, {256, 256});
}

TEST(Pattern, ATermThatIsNotThereInWhatFailsIsSaidToBeSo) {
  Sample sample("fp8_scaled_mm M=64 N=64 K=32 --with bias");
  const Tensor& bias = *sample.c.inputs.find("bias");
  Tensor& out = sample.output();
  for (std::int64_t i = 32 * 64; i < out.elements(); i += 3) quant::set(out, i, quant::get(out, i) - quant::get(bias, i % 64));
  EXPECT_THAT(checked(sample).relations, Contains("bias (a term of each column): it is not there in what fails"));
}

TEST(Pattern, OneColumnOfRowsHasAPlaceToo) {
  EXPECT_EQ(place_of({0, 1}, 4, {4, 1}), "rows 0..1");
  EXPECT_EQ(place_of({0, 1, 4, 9, 11}, 16, {16, 1}), "scattered over 5 rows");
  EXPECT_EQ(place_of({4, 5, 6, 7, 16, 17, 18, 19}, 24, {6, 4}), "rows 1, 4");
}

TEST(Pattern, AHeadInsideAFlatRowIsFound) {
  // [T, Nq*head_size]: heads lie side by side.
  Sample sample("rotary_embedding T=4 P=64 R=64 Nq=8 --attr head_size=64 --dtype query=f32");
  sample.scale(-1, [](std::int64_t, std::int64_t column) { return column / 64 == 3; });
  const OutputCheck output = checked(sample);
  EXPECT_EQ(output.verdict.pattern, "one head: 3 of 8");
  EXPECT_THAT(output.relations, Contains(HasSubstr("the sign is wrong")));
}

TEST(Pattern, NanIsReportedWithItsPosition) {
  Sample sample("rmsnorm T=8 H=64");
  for (std::int64_t c = 5; c < 9; ++c) quant::set_bits(sample.output(), 3 * 64 + c, 0x7FC0);
  const OutputCheck output = checked(sample);
  EXPECT_EQ(output.statistics.only_nan, 4);
  EXPECT_THAT(output.relations, Contains("NaN where golden has none: 4 elements, first at [3, 5]"));
  EXPECT_EQ(output.statistics.ulps.back().label, "NaN");
}

TEST(Pattern, DisplacedValuesAreRecognised) {
  const auto relation = [](const std::function<std::int64_t(std::int64_t r, std::int64_t c)>& source) {
    Sample sample("rmsnorm T=8 H=64 --dtype input=f32");
    const Tensor golden = sample.output().clone();
    for (std::int64_t i = 0; i < 512; ++i) quant::set_bits(sample.output(), i, quant::get_bits(golden, source(i / 64, i % 64)));
    const auto relations = checked(sample).relations;
    return relations.empty() ? std::string() : relations.front();
  };
  EXPECT_THAT(relation([](auto r, auto c) { return r * 64 + (c + 32) % 64; }), HasSubstr("halves of each row are swapped"));
  EXPECT_THAT(relation([](auto r, auto c) { return r * 64 + (c ^ 1); }), HasSubstr("neighbours are swapped"));
  EXPECT_THAT(relation([](auto r, auto c) { return r * 64 + std::min<std::int64_t>(c + 1, 63); }), HasSubstr("actual[c] = golden[c +1]"));
  EXPECT_THAT(relation([](auto r, auto c) { return std::max<std::int64_t>(r - 1, 0) * 64 + c; }), HasSubstr("actual[r] = golden[r -1]"));
  EXPECT_THAT(relation([](auto r, auto c) { return r * 64 + c / 2 + c % 2 * 32; }), HasSubstr("interleaved instead of in halves"));
  EXPECT_THAT(relation([](auto r, auto c) { return (r * 3 + 1) % 8 * 64 + c; }), HasSubstr("rows of golden in another place"));
}

TEST(Pattern, ALogarithmInTheOtherBaseIsNamed) {
  Sample sample("merge_state T=3 N=16 D=32");
  sample.scale(0.6931471805599453, everywhere, 1);
  EXPECT_THAT(checked(sample, 1).relations, Contains(HasSubstr("ln 2: a logarithm in the other base")));
}

TEST(Pattern, AConstantOffsetIsNamed) {
  Sample sample("merge_state T=3 N=16 D=32");
  for (std::int64_t i = 0; i < 48; ++i) quant::set(sample.output(1), i, quant::get(sample.output(1), i) + 1);
  EXPECT_THAT(checked(sample, 1).relations, Contains(HasSubstr("a constant offset: actual = golden + 1")));
}

TEST(Pattern, AnExtraRoundingToBf16IsNamed) {
  Sample sample("rmsnorm T=3 H=64 --dtype input=f32");
  for (std::int64_t i = 0; i < 192; ++i) quant::set(sample.output(), i, quant::round_to(DType::bf16, quant::get(sample.output(), i)));
  EXPECT_THAT(checked(sample).relations, Contains(HasSubstr("holds only bf16 values")));
}

TEST(Pattern, OneUlpToAndFroIsNoConstantFactor) {
  Sample sample("rmsnorm T=8 H=64");
  for (std::int64_t i = 0; i < 512; ++i) quant::set_bits(sample.output(), i, quant::get_bits(sample.output(), i) + (i % 3 == 0 ? 1 : -1));
  EXPECT_THAT(checked(sample).relations, IsEmpty());
}

TEST(Pattern, TheGroupOrTheExpertWhoseRowsFailIsNamed) {
  OpSchema schema;
  schema.tensors.resize(2);
  schema.tensors[0].name = "expert_offsets", schema.tensors[0].role = Role::indptr;
  schema.tensors[1].name = "topk_ids", schema.tensors[1].role = Role::expert_ids;
  Tensor offsets(DType::i32, {4}), ids(DType::i32, {6, 2});
  for (const auto& [i, value] : {std::pair(1, 2), {2, 5}, {3, 6}}) quant::set(offsets, i, value);
  // Tokens 1 and 4 go to expert 7.
  for (std::int64_t i = 0; i < 12; ++i) quant::set(ids, i, i == 2 || i == 9 ? 7 : static_cast<double>(i % 4));
  Arguments inputs;
  inputs.set("expert_offsets", offsets);
  inputs.set("topk_ids", ids);
  EXPECT_THAT(owners_of(schema, inputs, {2 * 8, 3 * 8 + 1, 4 * 8}, {6, 8}),
              testing::ElementsAre("only group 1 of 3 by expert_offsets (rows 2..4)"));
  EXPECT_THAT(owners_of(schema, inputs, {1 * 8, 4 * 8 + 3}, {6, 8}), testing::ElementsAre("exactly the rows of expert 7 by topk_ids"));
  EXPECT_THAT(owners_of(schema, inputs, {0, 5 * 8}, {6, 8}), IsEmpty());
}

TEST(Pattern, UnrelatedNumbersHaveNoRelation) {
  Sample sample("rmsnorm T=8 H=64");
  fill(sample.output(), Role::values, 0, "normal", 99, "noise");
  EXPECT_THAT(checked(sample).relations, IsEmpty());
}

// ---- figures ----

TEST(Figures, UlpDistanceCountsRepresentableNumbersAcrossZero) {
  EXPECT_EQ(ulp_distance(DType::bf16, 0x3F80, 0x3F81), 1);
  EXPECT_EQ(ulp_distance(DType::bf16, 0x0001, 0x8001), 2);
  EXPECT_EQ(ulp_distance(DType::bf16, 0x0000, 0x8000), 0);
  EXPECT_EQ(ulp_distance(DType::f8_e4m3, 0x7F, 0x70), -1) << "NaN";
  EXPECT_EQ(ulp_distance(DType::i8, 0xFF, 0x01), 2) << "-1 and 1";
  EXPECT_EQ(ulp_distance(DType::u8, 0xFF, 0x01), 254);
  EXPECT_EQ(ulp_distance(DType::f4_e2m1, 0x7, 0xF), 14);
}

TEST(Figures, AssertCloseIsTorchs) {
  Sample sample("rmsnorm T=2 H=64");
  // 1 % of a bf16 value lies within rtol = 1.6e-2, 2 % does not.
  EXPECT_TRUE(checked(Sample(sample).scale(1.01, everywhere)).statistics.assert_close.passes());
  EXPECT_FALSE(checked(Sample(sample).scale(1.03, everywhere)).statistics.assert_close.passes());
}

TEST(Figures, RelativeL2AndCosineOfAScaledOutputAreKnown) {
  Sample sample("rmsnorm T=4 H=256 --dtype input=f32");
  const ErrorStatistics s = checked(sample.scale(1.5, everywhere)).statistics;
  EXPECT_NEAR(s.relative_l2, 0.5, 1e-6);
  EXPECT_NEAR(s.cosine, 1, 1e-9);
  EXPECT_NEAR(s.max_rel, 0.5, 1e-6);
}

TEST(Figures, QuantilesOfTheBudgetAreInOrder) {
  Sample sample("rmsnorm T=4 H=256 --dtype input=f32");
  Exec fast;
  Arguments arguments = runnable(*sample.c.op, sample.c.inputs);
  sample.c.op->run(arguments, fast);
  sample.outputs = outputs_of(*sample.c.op, arguments);
  const ErrorStatistics s = checked(sample).statistics;
  EXPECT_LE(s.share_median, s.share_p999);
  EXPECT_LE(s.share_p999, s.share_max);
  EXPECT_LE(s.share_max, 1);
}

TEST(Figures, QuantilesCountTheElementsThatTookNothing) {
  // Two elements of three are golden's own, so that the median takes nothing, and the last thousandth is among the others.
  Sample sample("rmsnorm T=6 H=4096 --dtype input=f32");
  Tensor& output = sample.output();
  for (std::int64_t i = 0; i < output.elements(); i += 3) quant::set_bits(output, i, quant::get_bits(output, i) + 2);
  const ErrorStatistics s = checked(sample).statistics;
  EXPECT_EQ(s.compared, output.elements());
  EXPECT_EQ(s.share_median, 0);
  EXPECT_GT(s.share_p999, 0);
}

TEST(Figures, AreTheSameOfPiecesAndOnAnyNumberOfThreads) {
  Sample sample("rmsnorm T=9 H=4096 --dtype input=f32");
  sample.scale(1.25, [](std::int64_t row, std::int64_t column) { return row == 5 && column == 4000; });
  sample.scale(0.5, [](std::int64_t row, std::int64_t) { return row == 8; });
  JudgeOptions one, three;
  one.exec.threads = 1, three.exec.threads = 3;
  const ErrorStatistics s = check(sample.c, sample.outputs, one).outputs[0].statistics,
                        other = check(sample.c, sample.outputs, three).outputs[0].statistics;
  EXPECT_EQ(s.relative_l2, other.relative_l2);
  EXPECT_EQ(s.cosine, other.cosine);
  EXPECT_EQ(s.compared, 9 * 4096);
  EXPECT_EQ(s.assert_close.mismatched, 4097);
  // A row halved, of nine about as long: a quarter of a ninth of the squares.
  EXPECT_NEAR(s.relative_l2 * s.relative_l2, 0.25 / 9, 0.002);
  EXPECT_EQ(s.ulps.front().count, 8 * 4096 - 1);
}

TEST(Figures, OfAnOutputThatIsGoldensOwnAreThoseOfNoError) {
  const ErrorStatistics s = checked(Sample("rmsnorm T=9 H=4096")).statistics;
  EXPECT_EQ(s.cosine, 1);
  EXPECT_EQ(s.relative_l2, 0);
  EXPECT_EQ(s.ulps.front().count, 9 * 4096);
}

TEST(Figures, ThePaddingIsNotCounted) {
  const OutputCheck output = checked(Sample("scaled_fp4_quant M=3 K=32"), 1);
  EXPECT_EQ(output.statistics.compared, output.verdict.compared);
  EXPECT_LT(output.statistics.compared, output.verdict.elements);
}

// ---- reports ----

TEST(Report, PagesAreSelfContainedAndEscaped) {
  Sample sample("scaled_fp4_quant M=130 K=64");
  quant::set_bits(sample.output(), 70, 0x77);
  CheckResult result = sample.result();
  result.case_name = "<script>alert(1)</script>";
  const std::string page = html_page(result);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);
  EXPECT_THAT(page, HasSubstr("compared as f4_e2m1 codes [130, 64]"));
  EXPECT_THAT(page, HasSubstr("class=\"mark\"")) << "failing cells are marked, not only coloured";
}

TEST(Report, EveryOpsOutputsCanBeReported) {
  for (const auto& op : registry().all()) {
    Sample sample(std::string(op->name()) + " " + op->cases().front());
    for (auto& [name, tensor] : sample.outputs)
      if (const std::int64_t i = tensor.elements() / 2; tensor.elements() > 0)
        // The bit below the sign: beyond any budget.
        quant::set_bits(tensor, i, quant::get_bits(tensor, i) ^ std::uint64_t{1} << (bits(tensor.dtype()) - 2));
    const CheckResult result = sample.result();
    EXPECT_EQ(result.outcome, Outcome::fail) << op->name();
    EXPECT_THAT(html_page(result), HasSubstr("</html>"));
    EXPECT_THAT(junit_xml(result, 0), HasSubstr("<failure"));
    EXPECT_EQ(to_json(result).at("outcome"), "FAIL");
  }
}

TEST(Report, JunitEscapesWhatXmlForbids) {
  EXPECT_EQ(escaped("a<b>&\"'\x01"), "a&lt;b&gt;&amp;&quot;&#39;?");
}

}  // namespace
}  // namespace dodona::oracle
