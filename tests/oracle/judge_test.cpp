// The judges: what passes, what fails, and what a failure says.
#include "oracle/judge/judge.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/case_line.h"
#include "core/define.h"
#include "dodona/error.h"
#include "oracle/cases/generate.h"
#include "quant/element.h"
#include "tests/errors.h"

namespace dodona::oracle {
namespace {

struct Sample {
  const Op* op;
  Arguments inputs;
  NamedTensors outputs;  // owning copies of golden's

  explicit Sample(const std::string& text) {
    const CaseLine line = parse_case_line(text);
    op = &registry().at(line.op);
    inputs = generate(line);
    run_golden();
  }
  /// Again, for inputs that have been changed.
  void run_golden() {
    outputs.clear();
    Arguments arguments = runnable(*op, inputs);
    Exec exec;
    exec.mode = Mode::golden;
    op->run(arguments, exec);
    for (const auto& [name, tensor] : outputs_of(*op, arguments)) outputs.emplace_back(name, tensor.clone());
  }
  Tensor& output(std::size_t i) { return outputs[i].second; }
  Verdict verdict(Mode mode = Mode::golden) const { return judge(*op, inputs, outputs, {mode, {}}); }
};

/// The value k units in the last place away.
void nudge(const Tensor& t, std::int64_t i, int k) {
  quant::set_bits(t, i, quant::get_bits(t, i) + static_cast<std::uint64_t>(k));
}

TEST(Judge, GoldenPassesWithNothingUsed) {
  const Sample run("rmsnorm T=4 H=512");
  const Verdict verdict = run.verdict();
  EXPECT_EQ(verdict.outcome, Outcome::pass);
  EXPECT_EQ(verdict.max_share(), 0);
  EXPECT_EQ(verdict.outputs[0].differing, 0);
}

TEST(Judge, ACorrectRoundingNeedsNoneOfTheSlackAndAWrongOneFails) {
  // bf16 output, fp32 slack: one unit off is far outside.
  Sample run("rmsnorm T=4 H=512");
  nudge(run.output(0), 700, 1);
  const Verdict verdict = run.verdict();
  EXPECT_EQ(verdict.outcome, Outcome::fail);
  EXPECT_EQ(verdict.outputs[0].failing, 1);
  EXPECT_EQ(verdict.outputs[0].worst[0].index, Dims({1, 188}));
  EXPECT_GT(verdict.outputs[0].worst[0].share, 1);
}

TEST(Judge, AFloatOutputMayMoveWithinItsSlackAndNoFarther) {
  Sample run("rmsnorm T=4 H=512 --dtype input=f32");
  nudge(run.output(0), 5, 2);
  const Verdict near = run.verdict();
  EXPECT_EQ(near.outcome, Outcome::pass);
  EXPECT_GT(near.max_share(), 0);
  nudge(run.output(0), 5, 1000);
  EXPECT_EQ(run.verdict().outcome, Outcome::fail);
}

TEST(Judge, NanWhereGoldenHasNoneFails) {
  Sample run("rmsnorm T=4 H=512");
  quant::set_bits(run.output(0), 9, 0x7FC0);
  const Verdict verdict = run.verdict();
  EXPECT_EQ(verdict.outcome, Outcome::fail);
  EXPECT_TRUE(std::isnan(verdict.outputs[0].worst[0].actual));
  EXPECT_TRUE(std::isinf(verdict.outputs[0].worst[0].share));
}

/// Slots that nobody has written hold codes of 0 and a scale of 0. The sign of such a score is open, the number is not.
TEST(Judge, ZerosUnderAScaleOfZeroAreCompared) {
  Sample run("fp8_paged_mqa_logits B=2 Q=1 H=8 D=32 pages=5 W=2 --attr max_context_len=100");
  for (std::int64_t b = 0; b < 2; ++b) quant::set(*run.inputs.find("context_lens"), b, 100);
  const Tensor& cache = *run.inputs.find("fused_kv_cache");
  for (std::int64_t i = 0; i < cache.elements(); ++i) quant::set_bits(cache, i, 0);
  run.run_golden();
  EXPECT_EQ(run.verdict().outputs[0].compared, 200);
  quant::set(run.output(0), 3, -0.0);
  EXPECT_EQ(run.verdict().outputs[0].failing, 0);
  quant::set(run.output(0), 5, std::nan(""));
  quant::set(run.output(0), 6, 7);
  EXPECT_EQ(run.verdict().outputs[0].failing, 2);
}

TEST(Judge, InfinityForALargeNumberFails) {
  Sample run("rmsnorm T=4 H=512");
  quant::set_bits(run.output(0), 9, 0x7F80);
  EXPECT_EQ(run.verdict().outcome, Outcome::fail);
}

TEST(Judge, PatternsNameARowAColumnATailAndEverything) {
  const auto pattern = [](auto pick) {
    Sample run("rmsnorm T=4 H=64");
    for (std::int64_t i = 0; i < 256; ++i)
      if (pick(i / 64, i % 64)) nudge(run.output(0), i, 40);
    return run.verdict().outputs[0].pattern;
  };
  EXPECT_EQ(pattern([](auto row, auto) { return row == 2; }), "one row: 2, columns 0..63");
  EXPECT_EQ(pattern([](auto, auto column) { return column == 7; }), "one column: 7");
  EXPECT_EQ(pattern([](auto, auto column) { return column >= 48; }), "the tail of the rows: columns 48..63");
  EXPECT_EQ(pattern([](auto row, auto) { return row >= 1 && row < 3; }), "rows 1..2");
  EXPECT_EQ(pattern([](auto, auto) { return true; }), "every element");
}

TEST(Judge, WhatThePaddingHoldsDoesNotMatter) {
  Sample run("scaled_fp4_quant M=3 K=32");
  std::size_t scale = 0;
  while (run.outputs[scale].first != "output_scale") ++scale;
  // Row 3 of the first 128x4 tile is padding: its bytes begin at 3 * 16.
  quant::set_bits(run.output(scale), 3 * 16, 0x55);
  EXPECT_EQ(run.verdict().outcome, Outcome::pass);
  nudge(run.output(scale), 0, 1);
  EXPECT_EQ(run.verdict().outcome, Outcome::fail);
}

TEST(Judge, CodesMayBeNeighboursOnlyAtTheBoundary) {
  Sample run("sgl_per_token_quant_fp8 M=4 K=512");
  EXPECT_EQ(run.verdict().outcome, Outcome::pass);
  std::size_t codes = run.outputs[0].first == "output_q" ? 0 : 1;
  int failing = 0;
  for (std::int64_t i = 0; i < 64; ++i) {
    Sample other("sgl_per_token_quant_fp8 M=4 K=512");
    nudge(other.output(codes), i, 1);
    failing += other.verdict().outcome == Outcome::fail ? 1 : 0;
  }
  EXPECT_GE(failing, 62) << "nearly no random value lies at a boundary";
}

TEST(Judge, CodesKeepTheSignOfWhatBecameZero) {
  Sample run("scaled_fp4_quant M=4 K=512");
  const std::size_t codes = run.outputs[0].first == "output" ? 0 : 1;
  // The code 8 is -0, in the low nibble.
  std::int64_t byte = 0;
  while ((quant::get_bits(run.output(codes), byte) & 0xF) != 8) ++byte;
  nudge(run.output(codes), byte, -8);
  EXPECT_EQ(run.verdict().outcome, Outcome::fail);
}

TEST(Judge, ZeroOfAnIntegerTypeHasNoSign) {
  // 127 / 127 is 1: -0.5 lies between the codes -1 and 0, and both are right.
  Sample run("per_token_quant_int8 M=1 K=16 --dtype x=f16");
  const Tensor& x = *run.inputs.find("x");
  for (std::int64_t k = 0; k < 16; ++k) quant::set(x, k, k == 0 ? 127.0 : k == 1 ? -0.5 : k == 2 ? 0.5 : 100.0);
  run.run_golden();
  const std::size_t codes = run.outputs[0].first == "x_q" ? 0 : 1;
  for (const std::int64_t k : {1, 2}) quant::set_bits(run.output(codes), k, 0);
  EXPECT_EQ(run.verdict().outcome, Outcome::pass);
  quant::set_bits(run.output(codes), 1, 1);
  EXPECT_EQ(run.verdict().outcome, Outcome::fail);
}

TEST(Judge, ExactOutputsMustBeEqualToTheBit) {
  Sample run("concat_mla_k T=2");
  EXPECT_EQ(run.verdict().outcome, Outcome::pass);
  nudge(run.output(0), 1000, 1);
  EXPECT_EQ(run.verdict().outcome, Outcome::fail);
}

TEST(Judge, HopperModeAsksForEqualBits) {
  Sample run("rmsnorm T=4 H=512");
  Arguments arguments = runnable(*run.op, run.inputs);
  Exec exec;
  exec.mode = Mode::hopper;
  run.op->run(arguments, exec);
  run.outputs = {{"output", arguments.find("output")->clone()}};
  EXPECT_EQ(run.verdict(Mode::hopper).outcome, Outcome::pass);
  nudge(run.output(0), 3, 1);
  const Verdict verdict = run.verdict(Mode::hopper);
  EXPECT_EQ(verdict.outcome, Outcome::fail);
  EXPECT_EQ(verdict.outputs[0].judge, Judge::exact);
}

TEST(Judge, AllZeroInputsMakeAVacuousVerdictNotAPass) {
  Sample run("rmsnorm T=4 H=64");
  for (auto& [name, tensor] : run.inputs.tensors)
    if (name == "input")
      for (std::int64_t i = 0; i < tensor.elements(); ++i) quant::set(tensor, i, 1e-39);
  run.outputs[0].second = Tensor(DType::bf16, {4, 64});
  EXPECT_EQ(run.verdict().outcome, Outcome::vacuous);
}

TEST(Judge, KnownDefectsAreNamedAndNotLearnt) {
  Sample run("sgl_per_token_quant_fp8 M=4 K=64");
  for (auto& [name, tensor] : run.inputs.tensors)
    for (std::int64_t i = 0; i < 64; ++i) quant::set_bits(tensor, 64 + i, 0);
  Sample zero_row = run;
  Arguments arguments = runnable(*run.op, run.inputs);
  Exec exec;
  exec.mode = Mode::golden;
  run.op->run(arguments, exec);
  zero_row.outputs.clear();
  for (const auto& [name, tensor] : outputs_of(*run.op, arguments)) zero_row.outputs.emplace_back(name, tensor.clone());
  EXPECT_EQ(zero_row.verdict().outcome, Outcome::pass) << "golden writes zero codes";
  for (auto& [name, tensor] : zero_row.outputs)
    if (name == "output_q")
      for (std::int64_t i = 0; i < 64; ++i) quant::set_bits(tensor, 64 + i, 0x7E);
  const Verdict verdict = zero_row.verdict();
  EXPECT_EQ(verdict.outcome, Outcome::known_defect);
  bool named = false;
  for (const auto& output : verdict.outputs) named = named || output.defect == "zero-row-448";
  EXPECT_TRUE(named);
}

/// An op of this test, whose kernel is known to write sevens, and which counts how often its arguments are checked.
struct Zeros {
  Tensor x, y;
  static constexpr OpInfo info{"zeros", Category::utility, Source::torch};
  static inline int checks = 0;
  void describe(auto& op) {
    op.in("x", x, {DType::u8}, "N").doc("of the length that is wanted");
    op.out("y", y, same_as("x"), "N").doc("zeros");
  }
};

TEST(Judge, ManyFailingElementsCheckTheCallNoMoreOftenThanOne) {
  const auto op =
      define<Zeros>({.contract = "zeros",
                     .golden = [](const Zeros& call, const Exec&, Reference*) { copy(Tensor(DType::u8, call.y.shape()), call.y); },
                     .fast = [](const Zeros&, const Exec&) {},
                     .check = [](const Zeros&) { ++Zeros::checks; },
                     .defects = {{"sevens", "y", "sevens are written",
                                  [](const Zeros& actual, std::string_view output, std::int64_t i) {
                                    return output == "y" && actual.y.as<std::uint8_t>()[i] == 7;
                                  }}},
                     .cases = {"N=1"},
                     .bench_cases = {}});
  const auto checks_with = [&](std::int64_t failing) {
    Arguments inputs;
    inputs.set("x", Tensor(DType::u8, {1000}));
    Tensor y(DType::u8, {1000});
    for (std::int64_t i = 0; i < failing; ++i) y.as<std::uint8_t>()[i] = 7;
    Zeros::checks = 0;
    const Verdict verdict = judge(*op, inputs, {{"y", y}}, {});
    EXPECT_EQ(verdict.outcome, Outcome::known_defect);
    EXPECT_EQ(verdict.outputs[0].defect, "sevens");
    return Zeros::checks;
  };
  EXPECT_EQ(checks_with(1000), checks_with(1));
}

TEST(Judge, WrongNamesTypesAndShapesOfActualOutputsAreErrors) {
  Sample run("rmsnorm T=4 H=64");
  const auto error = [&](const NamedTensors& outputs) { return helpers::message_in([&] { judge(*run.op, run.inputs, outputs, {}); }); };
  EXPECT_NE(error({}).find("output is missing"), std::string::npos);
  EXPECT_NE(error({{"output", Tensor(DType::f16, {4, 64})}}).find("has dtype f16, expected bf16"), std::string::npos);
  EXPECT_NE(error({{"output", Tensor(DType::bf16, {4, 63})}}).find("has shape [4, 63], expected [4, 64]"), std::string::npos);
}

TEST(Generate, IsAPureFunctionOfTheLine) {
  const auto digest = [](const char* text) {
    const Arguments a = generate(parse_case_line(text));
    std::uint64_t hash = 1469598103934665603U;
    for (const auto& [name, tensor] : a.tensors)
      for (std::int64_t i = 0; i < tensor.elements(); ++i) hash = (hash ^ quant::get_bits(tensor, i)) * 1099511628211U;
    return hash;
  };
  EXPECT_EQ(digest("rmsnorm T=4 H=64 --seed 3"), digest("rmsnorm T=4 H=64 --seed 3"));
  EXPECT_NE(digest("rmsnorm T=4 H=64 --seed 3"), digest("rmsnorm T=4 H=64 --seed 4"));
}

TEST(Generate, EdgesOfALogSumExpAreThoseOfNoKeysAtAll) {
  const Arguments a = generate(parse_case_line("merge_state T=8 N=16 D=8 --dist edge"));
  int empty = 0;
  for (std::int64_t i = 0; i < 128; ++i) empty += quant::get(*a.find("s_a"), i) == -INFINITY ? 1 : 0;
  EXPECT_GT(empty, 4);
}

TEST(Generate, ImpossibleSizesAreErrors) {
  for (const char* text : {"rmsnorm H=64", "rmsnorm T=4 H=64 Q=3", "rmsnorm T=4 H=64 --dtype input=i8", "rmsnorm T=4 H=64 --attr epsilon=1",
                           "scaled_fp4_quant M=4 K=17", "rmsnorm T=4000000000 H=4000000000", "rmsnorm T=4 H=64 --dialect cuda"})
    EXPECT_THROW(generate(parse_case_line(text)), Error) << text;
}

/// A convention of some upstreams: products read whole tiles.
TEST(Judge, PaddingOfScalesIsHeldToZerosWhereThatIsAskedFor) {
  for (const char* line : {"scaled_fp4_quant M=9 K=80", "mxfp4_quantize M=5 K=96", "mxfp8_quantize M=5 K=96", "nvfp4_quantize M=5 K=48"})
    for (const bool zeros : {false, true}) {
      Sample sample(std::string(line) + (zeros ? " --attr padding=zeros" : ""));
      EXPECT_EQ(judge(*sample.op, sample.inputs, sample.outputs, {}).outcome, Outcome::pass) << line;
      const Tensor& scales = sample.outputs[1].second;
      quant::set_bits(scales, scales.elements() - 1, 0x55);  // beyond the last row and column
      EXPECT_EQ(judge(*sample.op, sample.inputs, sample.outputs, {}).outcome, zeros ? Outcome::fail : Outcome::pass) << line;
    }
}

/// Two halves of a sequence, stored in bf16 before they are merged by their log-sum-exps: what weights lose that are rounded to bf16 has
/// room for it.
TEST(Dialects, SplitOutputsOfSixteenBitsAreHonest) {
  const std::string line = "trtllm_batch_decode_with_kv_cache_mla B=1 Q=1 N=16 pages=4 P=32 W=4 --attr bmm1_scale=0.02";
  const CaseLine parsed = parse_case_line(line);
  const Op& op = registry().at(parsed.op);
  const Arguments inputs = generate(parsed);
  std::vector<NamedTensors> halves;
  for (const std::int64_t half : {0, 1}) {
    Arguments arguments = inputs;
    arguments.set("block_tables", inputs.find("block_tables")->slice(1, 2 * half, 2 * half + 2).clone());
    const Tensor length(DType::i32, {1});
    quant::set(length, 0, 64);
    arguments.set("seq_lens", length);
    arguments.set_attr("return_lse", true);
    arguments = runnable(op, arguments);
    op.run(arguments, {});
    halves.push_back(outputs_of(op, arguments));
  }
  const Tensor merged = find(halves[0], "out")->clone();
  for (std::int64_t i = 0; i < merged.elements(); ++i) {
    const std::int64_t head = i / 512;
    const double a = quant::get(*find(halves[0], "lse"), head), b = quant::get(*find(halves[1], "lse"), head),
                 weight = 1 / (1 + std::exp2(b - a));
    quant::set(merged, i, weight * quant::get(*find(halves[0], "out"), i) + (1 - weight) * quant::get(*find(halves[1], "out"), i));
  }
  Arguments longest = inputs;
  const Tensor length(DType::i32, {1});
  quant::set(length, 0, 128);
  longest.set("seq_lens", length);
  EXPECT_EQ(judge(op, longest, NamedTensors{{"out", merged}}, {}).outcome, Outcome::pass);
}

}  // namespace
}  // namespace dodona::oracle
