// False alarms: what is right by the contract passes, whoever made it; and the implementations that say so are others than ours.
#include "oracle/trust/alarms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "oracle/alternatives/alternative.h"
#include "oracle/cases/generate.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

Exec one_thread() {
  Exec exec;
  exec.threads = 1;
  return exec;
}

/// Outputs of an alternative, and whether it takes the case.
std::optional<NamedTensors> otherwise(const Op& op, const Arguments& inputs, Way way) {
  Arguments arguments = runnable(op, inputs);
  op.prepare(arguments);
  if (!compute_otherwise(op, arguments, way)) return std::nullopt;
  return outputs_of(op, arguments);
}

/// For each op of the inventory.
class FalseAlarmsOf : public testing::TestWithParam<std::string> {
 protected:
  const Op& op() const { return registry().at(GetParam()); }
};

std::vector<std::string> names_of_ops() {
  std::vector<std::string> names;
  for (const auto& op : registry().all()) names.emplace_back(op->name());
  return names;
}
INSTANTIATE_TEST_SUITE_P(Inventory, FalseAlarmsOf, testing::ValuesIn(names_of_ops()), [](const auto& test) { return test.param; });

TEST_P(FalseAlarmsOf, NothingThatIsRightIsRejected) {
  const auto& all = registry().all();
  const auto place = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one->name() == GetParam(); }) - all.begin();
  // dsv3_fused_a_gemm has fifteen million weights a case: one here, the others are left to the command.
  const int cases = GetParam() == "dsv3_fused_a_gemm" ? 1 : share_out(93)[static_cast<std::size_t>(place)];
  const Alarms alarms = raise_alarms(op(), cases, 5, one_thread());
  EXPECT_EQ(alarms.cases, cases);
  for (const FalseAlarm& alarm : alarms.false_alarms)
    ADD_FAILURE() << name(alarm.producer) << " is rejected in " << alarm.output << " of " << alarm.line;
}

/// What leaves something open has an alternative (src/oracle/alternatives/families.h): nobody else would notice a bound that is too tight.
TEST_P(FalseAlarmsOf, WhatLeavesSomethingOpenIsAlsoComputedOtherwise) {
  if (has_alternative(GetParam())) {
    const auto& lines = op().cases();
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [&](const std::string& rest) {
      return otherwise(op(), generate(parse_case_line(GetParam() + " " + rest)), Way::reversed).has_value();
    })) << "the alternative takes none of the op's own lines";
    return;
  }
  for (int index = 0; index < 6; ++index) {
    const CaseLine line = alarm_case(op(), 1, index);
    const Reference reference = run_golden(op(), generate(line), one_thread()).reference;
    for (const TensorSpec& spec : op().schema().tensors)
      if (const ReferenceOutput* output = reference.find(spec.name))
        EXPECT_TRUE(std::all_of(output->slack.begin(), output->slack.end(), [](double slack) { return slack == 0; }))
            << spec.name << ": " << to_string(line);
  }
}

/// Whether what the mode gives passes.
void expect_accepted(const std::string& text, Mode mode) {
  const CaseLine line = parse_case_line(text);
  const Op& op = registry().at(line.op);
  const Arguments inputs = generate(line);
  Arguments arguments = runnable(op, inputs);
  Exec exec = one_thread();
  exec.mode = mode;
  op.run(arguments, exec);
  const Verdict verdict = judge(op, inputs, outputs_of(op, arguments), {Mode::golden, one_thread()});
  EXPECT_EQ(verdict.outcome, Outcome::pass) << text << ": " << verdict.max_share();
}

/// Two halves of a block that cancel each lose more than the chain over both: a kernel whose tiles are 64 of K is right all the same.
TEST(FalseAlarms, HalvesOfABlockThatCancelAreRight) {
  expect_accepted("fp8_blockwise_scaled_mm K=128 M=3 N=128 --attr kernel=triton_k64 --dist outliers --seed 5412", Mode::hopper);
}

TEST(FalseAlarms, PowersOfGroupsWithInfinitiesAreOpenAsNumbersAndAsExponents) {
  const std::string text =
      "deepep_low_latency_dispatch H=256 R=1 T=6 topk=2 --attr num_max_dispatch_tokens_per_rank=8 --attr num_experts=8"
      " --attr round_scale=true --dist outliers --special infinite-elements --seed 239346";
  expect_accepted(text, Mode::fast);
  expect_accepted(text + " --attr use_ue8m0=true", Mode::fast);
}

TEST(FalseAlarms, StepsOfAnL40sLoseMoreThanThoseOfAnH200) {
  const std::string text = "bmm_fp8 K=32 L=2 M=16 N=32 --dtype A=f8_e5m2 --attr dtype=f16 --dist uniform --seed 384665";
  expect_accepted(text + " --attr accumulator=ada_fp8", Mode::ada);
  expect_accepted(text, Mode::hopper);
}

/// Special inputs are drawn too: this one raised an alarm over an alternative that rounded its least magnitude to the input's type.
TEST(FalseAlarms, LeastMagnitudesAreThoseOfTheContract) {
  const CaseLine line = parse_case_line(
      "silu_and_mul_masked_post_quant_fwd E=4 M=3 N=128 --attr quant_group_size=64 --dist ties --special zero-rows --seed 210013");
  const Op& op = registry().at(line.op);
  const Arguments inputs = generate(line);
  for (const Way way : {Way::reversed, Way::strided}) {
    const std::optional<NamedTensors> outputs = otherwise(op, inputs, way);
    ASSERT_TRUE(outputs.has_value());
    EXPECT_EQ(judge(op, inputs, *outputs, {Mode::golden, one_thread()}).failing(), 0);
  }
}

/// A token whose logits are no numbers may go anywhere, and the rows of others lie behind its own.
TEST(FalseAlarms, BesideATokenThatGoesAnywhereRowsMayLieAnywhere) {
  const std::string sizes =
      " --attr num_experts=4 --attr local_num_experts=4 --attr intermediate_size=128 --attr do_finalize=false --special nan-elements";
  for (const std::string& text :
       {"trtllm_bf16_moe H=128 T=3 --attr top_k=3 --attr routing_method_type=Renormalize --dist edge --seed 708112" + sizes,
        "trtllm_fp8_per_tensor_scale_moe H=128 T=3 --attr top_k=3 --attr routing_method_type=Default --attr record_routing=true --attr "
        "gated=true --attr use_shuffled_weight=true --dist outliers --seed 836161" +
            sizes}) {
    const CaseLine line = parse_case_line(text);
    const Op& op = registry().at(line.op);
    const Arguments inputs = generate(line);
    for (const Way way : {Way::reversed, Way::strided}) {
      const std::optional<NamedTensors> outputs = otherwise(op, inputs, way);
      ASSERT_TRUE(outputs.has_value());
      EXPECT_EQ(judge(op, inputs, *outputs, {Mode::golden, one_thread()}).failing(), 0) << text;
    }
  }
}

/// Rows that arrive in another order are held to their own codes, 6 for NaN among them, and to scales that may be NaN.
TEST(FalseAlarms, RowsOfNanMayArriveInAnotherOrder) {
  const std::string op_name = "deepep_low_latency_dispatch_nvfp4",
                    sizes = " R=2 T=5 --attr num_max_dispatch_tokens_per_rank=8 --attr num_experts=8";
  for (const std::string& text : {op_name + " H=48 topk=3 --dist ties --special nan-rows --seed 567398" + sizes,
                                  op_name + " H=16 topk=1 --dist uniform --special nan-elements --seed 697529" + sizes}) {
    const CaseLine line = parse_case_line(text);
    const Op& op = registry().at(line.op);
    const Arguments inputs = generate(line);
    const std::optional<NamedTensors> outputs = otherwise(op, inputs, Way::strided);
    ASSERT_TRUE(outputs.has_value());
    EXPECT_EQ(judge(op, inputs, *outputs, {Mode::golden, one_thread()}).failing(), 0) << text;
  }
}

TEST(FalseAlarms, AlternativesSumInOrdersOfTheirOwn) {
  for (const char* text :
       {"linear T=4 N=64 K=512 --dtype input=f32 --dtype weight=f32 --attr out_dtype=f32", "rmsnorm T=4 H=1024 --dtype input=f32",
        "merge_state_v2 T=2 N=8 D=64 --dtype v_a=f32", "apply_shuffle_mul_sum M=3 topk=8 R=24 D=64 --dtype input=f32",
        "moe_sum_reduce T=3 topk=8 D=64 --dtype input_tensor=f32 --attr routed_scaling_factor=2.5",
        "cutlass_mla_decode B=1 N=2 pages=4 P=32 W=4 --attr sm_scale=0.125 --dtype q_nope=f32",
        "cutlass_scaled_fp4_mm M=4 N=32 K=1024 --attr out_dtype=f32 --dist wide-exponent"}) {
    const CaseLine line = parse_case_line(text);
    const Op& op = registry().at(line.op);
    const Arguments inputs = generate(line);
    Arguments ours = runnable(op, inputs);
    op.run(ours, one_thread());
    const auto reversed = otherwise(op, inputs, Way::reversed), strided = otherwise(op, inputs, Way::strided);
    ASSERT_TRUE(reversed && strided) << text;
    const auto differ = [](const Tensor& a, const Tensor& b) {
      for (std::int64_t i = 0; i < a.elements(); ++i)
        if (quant::get_bits(a, i) != quant::get_bits(b, i)) return true;
      return false;
    };
    const Tensor fast = outputs_of(op, ours).front().second;
    EXPECT_TRUE(differ(fast, reversed->front().second)) << text;
    EXPECT_TRUE(differ(reversed->front().second, strided->front().second)) << text;
  }
}

/// Judges one way, or hopper mode, on one line.
Verdict verdict_of(const char* text, std::optional<Way> way) {
  const CaseLine line = parse_case_line(text);
  const Op& op = registry().at(line.op);
  const Arguments inputs = generate(line);
  Exec exec = one_thread();
  exec.mode = Mode::hopper;
  Arguments arguments = runnable(op, inputs);
  if (!way) op.run(arguments, exec);
  return judge(op, inputs, way ? *otherwise(op, inputs, *way) : outputs_of(op, arguments), {Mode::golden, one_thread()});
}

TEST(FalseAlarms, ADenormalFactorMayBeFlushedHoweverLargeItsRow) {
  for (const char* line : {"apply_shuffle_mul_sum D=157 M=2 R=24 topk=2 --dist edge --seed 586366",
                           "apply_shuffle_mul_sum D=37 M=3 R=27 topk=3 --dtype input=f32 --dist edge --seed 845230"})
    EXPECT_EQ(verdict_of(line, std::nullopt).failing(), 0) << line;
}

/// Random roundings cancel and use a few percent of a bound for the worst. Equal products do not cancel: the worst is not far.
TEST(FalseAlarms, TheBudgetOfASumIsUsedWhereEveryRoundingGoesOneWay) {
  const Op& op = registry().at("linear");
  double largest = 0;
  for (int i = 1; i < 12; ++i) {
    Arguments inputs;
    inputs.set("input", Tensor(DType::bf16, {1, 8192}));
    inputs.set("weight", Tensor(DType::bf16, {1, 8192}));
    inputs.set_attr("out_dtype", std::string("f32"));
    for (std::int64_t k = 0; k < 8192; ++k) {
      quant::set(*inputs.find("input"), k, (129 + 2 * i) / 256.0);
      quant::set(*inputs.find("weight"), k, (255 - 4 * i) / 256.0);
    }
    for (const Way way : {Way::reversed, Way::tensor_core}) {
      const Verdict verdict = judge(op, inputs, *otherwise(op, inputs, way), {Mode::golden, one_thread()});
      EXPECT_EQ(verdict.failing(), 0);
      largest = std::max(largest, verdict.max_share());
    }
  }
  EXPECT_GT(largest, 0.15) << largest;
}

TEST(FalseAlarms, TensorCoresTakeTheTypesThatTheyHave) {
  const auto takes = [](const char* text) {
    const CaseLine line = parse_case_line(text);
    return otherwise(registry().at(line.op), generate(line), Way::tensor_core).has_value();
  };
  EXPECT_TRUE(takes("linear T=2 N=8 K=64"));
  EXPECT_TRUE(takes("bmm_fp8 L=1 M=2 N=16 K=64"));
  EXPECT_FALSE(takes("linear T=2 N=8 K=64 --dtype weight=f32"));
  EXPECT_FALSE(takes("rmsnorm T=2 H=64"));
}

TEST(FalseAlarms, CasesAreSmallVariedAndAlwaysTheSame) {
  const Op& op = registry().at("bmm_fp8");
  std::set<std::string> lines;
  for (int index = 0; index < 48; ++index) {
    const CaseLine line = alarm_case(op, 3, index);
    EXPECT_EQ(to_string(line), to_string(alarm_case(op, 3, index)));
    EXPECT_EQ(to_string(parse_case_line(to_string(line))), to_string(line));
    EXPECT_LE(line.symbols.at("K"), 1168) << "the largest K of its own lines";
    lines.insert(to_string(line));
  }
  EXPECT_EQ(lines.size(), 48u);
  for (const char* word : {"--dist edge", "--dist ties", "accumulator=fp32", "f8_e5m2", "dtype=f16"})
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [&](const std::string& line) { return line.find(word) != std::string::npos; }))
        << word;
  EXPECT_NE(to_string(alarm_case(op, 4, 0)), to_string(alarm_case(op, 3, 0)));
}

TEST(FalseAlarms, TheCasesOfAllOpsAddUpToWhatWasAskedFor) {
  const std::vector<int> counts = share_out(10500);
  EXPECT_EQ(counts.size(), registry().all().size());
  EXPECT_GE(std::accumulate(counts.begin(), counts.end(), 0), 10500);
  EXPECT_GE(*std::min_element(counts.begin(), counts.end()), 6);
}

}  // namespace
}  // namespace dodona::oracle
