// Judging a random subset of rows.
#include "oracle/judge/sample.h"

#include <gtest/gtest.h>

#include <set>

#include "oracle/cases/generate.h"
#include "oracle/report/check.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

const char* const prefill =
    "trtllm_ragged_attention_deepseek Tq=40 Tk=40 N=4 Nk=4 D=192 Dv=128 B=2 --attr bmm1_scale=0.0721687836 --attr return_lse=true";

struct Call {
  Case content;

  explicit Call(const char* text) {
    const CaseLine line = parse_case_line(text);
    content.op = &registry().at(line.op);
    content.inputs = generate(line);
    content.contract_version = content.op->contract_version();
    content.outputs = run_golden(*content.op, content.inputs, {}).outputs;
  }
  CheckResult check(std::int64_t rows, Mode mode = Mode::golden) const {
    return oracle::check(content, content.outputs, {.mode = mode}, {}, {rows, 1});
  }
  /// Rows of the first output that are judged.
  std::set<std::int64_t> rows(std::int64_t count, std::uint64_t seed) const {
    const SampledGolden some = run_golden(*content.op, content.inputs, {}, {count, seed});
    const std::vector<std::uint8_t>& open = some.golden.reference.find(content.outputs.front().first)->unspecified;
    std::set<std::int64_t> found;
    for (std::size_t i = 0; i < open.size(); ++i)
      if (open[i] == 0) found.insert(static_cast<std::int64_t>(i) / content.outputs.front().second.size(-1));
    return found;
  }
};

TEST(Sample, SoManyRowsAreJudgedAndTheVerdictSaysSo) {
  const Call call(prefill);
  const CheckResult result = call.check(7);
  EXPECT_EQ(result.outcome, Outcome::pass);
  EXPECT_EQ(result.outputs[0].sample, "7 of 160 rows, seed 1");
  EXPECT_EQ(result.outputs[0].verdict.compared, 7 * 128);
  EXPECT_EQ(result.outputs[1].sample, "7 of 160 rows, seed 1");
  EXPECT_EQ(result.outputs[1].verdict.compared, 7);
}

TEST(Sample, TheSeedSaysWhichRows) {
  const Call call(prefill);
  EXPECT_EQ(call.rows(7, 3).size(), 7u);
  EXPECT_EQ(call.rows(7, 3), call.rows(7, 3));
  EXPECT_NE(call.rows(7, 3), call.rows(7, 4));
  EXPECT_EQ(call.rows(1000, 1).size(), 160u);
}

TEST(Sample, RowsThatAreJudgedHaveTheBudgetsOfTheWhole) {
  const Call call(prefill);
  const GoldenRun whole = run_golden(*call.content.op, call.content.inputs, {});
  const SampledGolden part = run_golden(*call.content.op, call.content.inputs, {}, {5, 1});
  for (const char* name : {"out", "lse"}) {
    const ReferenceOutput &all = *whole.reference.find(name), &some = *part.golden.reference.find(name);
    for (std::size_t i = 0; i < all.exact.size(); ++i)
      if (some.unspecified[i] == 0) {
        EXPECT_EQ(all.exact[i], some.exact[i]);
        EXPECT_EQ(all.slack[i], some.slack[i]);
      }
  }
}

TEST(Sample, AWrongRowFailsWhereItIsJudged) {
  Call call(prefill);
  const std::int64_t judged = *call.rows(3, 1).begin();
  Tensor& out = call.content.outputs.front().second;
  out = out.clone();
  for (std::int64_t row = 0; row < 160; ++row)
    if (row != judged) quant::set(out, row * 128, quant::get(out, row * 128) + 1);
  EXPECT_EQ(call.check(1000).outputs[0].verdict.failing, 159);
  EXPECT_EQ(call.check(3).outputs[0].verdict.failing, 2);
  quant::set(out, judged * 128, quant::get(out, judged * 128) + 1);
  EXPECT_EQ(call.check(3).outputs[0].verdict.failing, 3);
}

TEST(Sample, OtherOpsCompareNoMoreEither) {
  const CheckResult result = Call("rmsnorm T=50 H=64").check(4);
  EXPECT_EQ(result.outputs[0].sample, "4 of 50 rows, seed 1");
  EXPECT_EQ(result.outputs[0].verdict.compared, 4 * 64);
}

TEST(Sample, BitsOfAGpuAreComparedInTheSameRows) {
  Call call("context_attention_fwd T=30 N=2 Nk=2 D=64 B=1");
  Arguments arguments = runnable(*call.content.op, call.content.inputs);
  Exec exec;
  exec.mode = Mode::hopper;
  call.content.op->run(arguments, exec);
  call.content.outputs = outputs_of(*call.content.op, arguments);
  const CheckResult result = call.check(9, Mode::hopper);
  EXPECT_EQ(result.outcome, Outcome::pass);
  EXPECT_EQ(result.outputs[0].verdict.compared, 9 * 64);
}

}  // namespace
}  // namespace dodona::oracle
