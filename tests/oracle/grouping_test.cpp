// The judge `grouping`: any order within a group passes, a wrong member is named.
#include "oracle/judge/grouping.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/case_line.h"
#include "oracle/cases/generate.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

/// Ids 10..14 in two groups of tiles of four, padded with 99; the last element is unspecified.
ReferenceOutput sample() {
  ReferenceOutput expected;
  expected.name = "sorted_token_ids";
  expected.exact = {10, 11, 12, 99, 13, 14, 99, 99, 0};
  expected.slack.assign(9, 0.0);
  expected.unspecified = {0, 0, 0, 0, 0, 0, 0, 0, 1};
  expected.grouping = Grouping{"expert", {0, 0, 0, -1, 1, 1, -1, -1, -1}, ""};
  return expected;
}

struct Row {
  const char* what;
  std::vector<std::int64_t> actual;
  std::vector<std::int64_t> wrong;  // elements
  const char* pattern;
};

TEST(Grouping, MembersMayStandInAnyOrderAndAWrongOneIsNamed) {
  const Row table[] = {
      {"golden", {10, 11, 12, 99, 13, 14, 99, 99, 0}, {}, ""},
      {"another order", {12, 10, 11, 99, 14, 13, 99, 99, 7}, {}, ""},
      {"doubled", {10, 11, 10, 99, 13, 14, 99, 99, 0}, {2}, "expert 0 lacks 12 and holds 10 once too often"},
      {"of another group", {10, 11, 13, 99, 13, 14, 99, 99, 0}, {2}, "expert 0 lacks 12 and holds 13, a member of expert 1"},
      {"of no group", {10, 11, 12, 99, 13, 77, 99, 99, 0}, {5}, "expert 1 lacks 14 and holds 77, a member of no expert"},
      {"padding among the members",
       {10, 11, 99, 12, 13, 14, 99, 99, 0},
       {2, 3},
       "expert 0 lacks 12 and holds 99, a member of no expert; padding: element 3 holds 12, expected 99"},
      {"stale padding", {10, 11, 12, 99, 13, 14, 99, 0, 0}, {7}, "padding: element 7 holds 0, expected 99"},
      {"exchanged",
       {10, 11, 13, 99, 12, 14, 99, 99, 0},
       {2, 4},
       "expert 0 lacks 12 and holds 13, a member of expert 1; expert 1 lacks 13 and holds 12, a member of expert 0"},
      {"everything",
       {0, 0, 0, 0, 0, 0, 0, 0, 0},
       {0, 1, 2, 3, 4, 5, 6, 7},
       "expert 0 lacks 10 (and 2 more) and holds 0, a member of no expert; expert 1 lacks 13 (and 1 more) and holds 0, a member of no "
       "expert; padding: element 3 holds 0, expected 99; and 2 more"}};
  for (const Row& row : table) {
    Tensor actual(DType::i32, {9});
    for (std::int64_t i = 0; i < 9; ++i) quant::set(actual, i, static_cast<double>(row.actual[static_cast<std::size_t>(i)]));
    const GroupingReport report = compare_groups(sample(), actual);
    EXPECT_EQ(report.pattern, row.pattern) << row.what;
    std::vector<std::int64_t> wrong;
    for (std::size_t i = 0; i < report.wrong.size(); ++i)
      if (report.wrong[i]) wrong.push_back(static_cast<std::int64_t>(i));
    EXPECT_EQ(wrong, row.wrong) << row.what;
  }
}

TEST(Grouping, AnOrderThatAnotherOutputFixesIsHeldToIt) {
  ReferenceOutput expected = sample();
  expected.grouping->follows = "positions";
  Tensor actual(DType::i32, {9});
  for (std::int64_t i = 0; i < 9; ++i) quant::set(actual, i, expected.exact[static_cast<std::size_t>(i)]);
  EXPECT_EQ(compare_groups(expected, actual).pattern, "");
  quant::set(actual, 4, 14), quant::set(actual, 5, 13);
  EXPECT_EQ(compare_groups(expected, actual).pattern,
            "expert 1: element 4 holds 14 where positions puts 13; expert 1: element 5 holds 13 where positions puts 14");
}

/// Five tokens of three experts each, out of four: golden's outputs, to be changed and judged.
struct Routed {
  const Op& op = registry().at("prepare_moe_input");
  Arguments inputs = generate(parse_case_line("prepare_moe_input M=5 topk=3 --attr num_experts=4 --attr n=8 --attr k=16"));
  NamedTensors outputs;

  Routed() {
    Arguments arguments = runnable(op, inputs);
    op.run(arguments, {});
    for (const auto& [name, tensor] : outputs_of(op, arguments)) outputs.emplace_back(name, tensor.clone());
  }
  Tensor output(std::string_view name) const {
    for (const auto& [key, tensor] : outputs)
      if (key == name) return tensor;
    return {};
  }
  /// What a run in which two flat ids of one expert came in the other order gives.
  void exchange(std::int64_t i, std::int64_t j, bool rows_too) {
    const Tensor rows = output("output_permutation"), tokens = output("input_permutation");
    const auto at_i = static_cast<std::int64_t>(quant::get(rows, i)), at_j = static_cast<std::int64_t>(quant::get(rows, j));
    quant::set(rows, i, static_cast<double>(at_j)), quant::set(rows, j, static_cast<double>(at_i));
    if (!rows_too) return;
    quant::set(tokens, at_j, static_cast<double>(i / 3)), quant::set(tokens, at_i, static_cast<double>(j / 3));
  }
  /// Two flat ids of one expert, and of different tokens.
  std::pair<std::int64_t, std::int64_t> pair_of_one_expert() const {
    const Tensor& ids = *inputs.find("topk_ids");
    for (std::int64_t j = 3; j < 15; ++j)
      if (quant::get(ids, j) == quant::get(ids, 0)) return {0, j};
    return {-1, -1};
  }
  OutputVerdict verdict(std::string_view name, Mode mode = Mode::golden) const {
    for (const OutputVerdict& output : judge(op, inputs, outputs, {mode, {}}).outputs)
      if (output.name == name) return output;
    return {};
  }
};

TEST(Grouping, APermutationAndItsInverseMayChooseAnyOrderTogether) {
  Routed run;
  const auto [i, j] = run.pair_of_one_expert();
  ASSERT_GT(j, 0);
  run.exchange(i, j, true);
  for (const Mode mode : {Mode::golden, Mode::fast, Mode::hopper})
    for (const char* name : {"input_permutation", "output_permutation"})
      EXPECT_EQ(run.verdict(name, mode).outcome, Outcome::pass) << name << ": " << run.verdict(name, mode).pattern;
  EXPECT_GT(run.verdict("output_permutation").differing, 0) << "the order is another";
}

TEST(Grouping, OneGoldenRunServesManyOrders) {
  Routed run, other;
  const auto [i, j] = run.pair_of_one_expert();
  other.exchange(i, j, true);
  const GoldenRun golden = run_golden(run.op, run.inputs, {});
  for (const auto* outputs : {&run.outputs, &other.outputs, &run.outputs})
    EXPECT_EQ(judge(run.op, run.inputs, golden, *outputs, {}).outcome, Outcome::pass)
        << "what one order conditions must not reach the next";
}

TEST(Grouping, APermutationThatItsInverseContradictsFails) {
  Routed run;
  const auto [i, j] = run.pair_of_one_expert();
  run.exchange(i, j, false);
  for (const Mode mode : {Mode::golden, Mode::hopper}) {
    EXPECT_EQ(run.verdict("output_permutation", mode).outcome, Outcome::pass) << "alone it is a legitimate choice";
    const OutputVerdict tokens = run.verdict("input_permutation", mode);
    EXPECT_EQ(tokens.failing, 2);
    EXPECT_NE(tokens.pattern.find("where output_permutation puts"), std::string::npos) << tokens.pattern;
  }
}

TEST(Grouping, ARowOfAnotherExpertFailsInEveryMode) {
  Routed run;
  const Tensor rows = run.output("output_permutation");
  quant::set(rows, 0, 14), quant::set(rows, 1, 14);
  for (const Mode mode : {Mode::golden, Mode::fast, Mode::hopper}) {
    const OutputVerdict verdict = run.verdict("output_permutation", mode);
    EXPECT_EQ(verdict.outcome, Outcome::fail);
    EXPECT_EQ(verdict.judge, Judge::grouping);
    EXPECT_NE(verdict.pattern.find("lacks"), std::string::npos) << verdict.pattern;
  }
}

}  // namespace
}  // namespace dodona::oracle
