// What each part of an output was made of, where it is another index, another number or one condition that tells parts apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "oracle/faults/told/units.h"
#include "quant/element.h"
#include "replayed.h"

namespace dodona::oracle {
namespace {

NamedTensors outputs_with(const Case& c, const Arguments& inputs) {
  Arguments arguments = runnable(*c.op, inputs);
  c.op->run(arguments, {});
  return outputs_of(*c.op, arguments);
}
Replayed case_of(const std::string& line) {
  return {make_case(parse_case_line(line), {}, true), {}, {}, {}};
}
/// Element i has the bits of element from(i).
Tensor gathered(const Tensor& t, const std::function<std::int64_t(std::int64_t)>& from) {
  const Tensor changed = t.clone();
  for (std::int64_t i = 0; i < t.elements(); ++i) quant::set_bits(changed, i, quant::get_bits(t, from(i)));
  return changed;
}
Tensor numbers_of(const Tensor& t, const std::function<double(double)>& of) {
  const Tensor changed = t.clone();
  for (std::int64_t i = 0; i < t.elements(); ++i) quant::set(changed, i, of(quant::get(t, i)));
  return changed;
}
std::string first_of(const Replayed& r) {
  return r.explained.found.empty() ? "" : r.explained.found.front().text;
}

LogicalView rows_and_columns(std::int64_t rows, std::int64_t columns) {
  return {{rows, columns}, {"row", "column"}};
}

TEST(Units, ARuleGivesTheNumberOfEachPart) {
  constexpr std::int64_t rows = 12, columns = 16;
  std::vector<std::int64_t> elements;
  std::vector<Bits> matches;
  for (std::int64_t i = columns; i < rows * columns; ++i) {
    elements.push_back(i);
    matches.push_back({std::uint64_t{1} << (i / columns - 1)});
  }
  const LogicalView view = rows_and_columns(rows, columns);
  const auto found = assigned(elements, matches, rows, view);
  ASSERT_TRUE(found);
  std::vector<std::int64_t> numbers(rows);
  for (std::size_t k = 0; k < numbers.size(); ++k) numbers[k] = static_cast<std::int64_t>(k);
  const Told told = words_of(*found, numbers, view);
  EXPECT_EQ(told.words, "i - 1 of row i");
  EXPECT_TRUE(told.by_rule);
}

TEST(Units, WhatChanceGivesSaysNothing) {
  // Each element has one run of sixteen, by no rule, so that every row of two has some.
  constexpr std::int64_t rows = 64, columns = 2;
  std::vector<std::int64_t> elements;
  std::vector<Bits> matches;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    elements.push_back(i);
    matches.push_back({std::uint64_t{0xaaaa} >> (i / columns * 7 % 5)});
  }
  EXPECT_FALSE(assigned(elements, matches, 16, rows_and_columns(rows, columns)));
}

TEST(Units, PartsAreToldApartByTheCoarsestCut) {
  const LogicalView view = rows_and_columns(4, 256);
  std::vector<std::int64_t> some, others, few{1, 258, 514}, rest{2, 257, 515};
  for (std::int64_t i = 0; i < 4 * 256; ++i) (i / 8 % 4 == 2 ? some : others).push_back(i);
  EXPECT_EQ(told_apart(some, others, view).value_or(""), "column 16..23 of every 32");
  EXPECT_FALSE(told_apart(few, rest, view));
  EXPECT_FALSE(told_apart(some, {}, view));
}

TEST(Substituted, TwoOperandsOfAGroupAreTheOneBeforesTogether) {
  Replayed r = case_of("m_grouped_fp8_gemm_nt_masked G=4 M=16 N=16 K=128");
  const Tensor counts = r.c.inputs.find("masked_m")->clone();
  for (std::int64_t g = 0; g < 4; ++g) quant::set(counts, g, static_cast<double>(5 + g));
  r.c.inputs.set("masked_m", counts);
  Arguments inputs = r.c.inputs;
  for (const char* name : {"b", "sfb"}) {
    const Tensor& t = *r.c.inputs.find(name);
    const std::int64_t of_group = t.elements() / 4;
    inputs.set(name, gathered(t, [&](std::int64_t i) { return i / of_group == 2 ? i - of_group : i; }));
  }
  r.actual = outputs_with(r.c, inputs);
  judge_and_explain(r);
  EXPECT_EQ(first_of(r).rfind("b, sfb: along G (groups) another index is read than its own: 1; where it fails: one G: 2 of 4", 0), 0U)
      << r.all();
  ASSERT_FALSE(r.explained.found.empty());
  EXPECT_TRUE(r.explained.found.front().complete);
}

TEST(Substituted, LengthsThatAreTheRequestsOwnNumbers) {
  Replayed r = case_of("xqa_batch_decode_with_kv_cache_mla B=4 N=1 pages=12 P=32 W=3 --attr bmm1_scale=0.07");
  const Tensor lengths = r.c.inputs.find("seq_lens")->clone();
  for (std::int64_t b = 0; b < 4; ++b) quant::set(lengths, b, static_cast<double>(b + 1));
  Arguments inputs = r.c.inputs;
  inputs.set("seq_lens", lengths);
  r.actual = outputs_with(r.c, inputs);
  judge_and_explain(r);
  EXPECT_EQ(first_of(r).rfind("seq_lens: other numbers than the given ones count: i + 1 of B i", 0), 0U) << r.all();
}

TEST(Substituted, AMistakeOfSomeRowsIsSaidToBeTheirs) {
  // Rows that no pattern has a name for.
  Replayed r = case_of("linear T=16 N=64 K=128");
  const NamedTensors right = outputs_with(r.c, r.c.inputs);
  Arguments inputs = r.c.inputs;
  inputs.set("weight", numbers_of(*r.c.inputs.find("weight"), [](double x) { return std::fabs(x); }));
  r.actual = outputs_with(r.c, inputs);
  Tensor& out = r.actual.front().second;
  out = out.clone();
  const auto struck = [](std::int64_t row) { return row == 0 || row == 3 || row == 4 || row == 9 || row == 12; };
  for (std::int64_t i = 0; i < out.elements(); ++i)
    if (!struck(i / 64)) quant::set_bits(out, i, quant::get_bits(right.front().second, i));
  JudgeOptions details;
  details.details = true;
  const GoldenRun golden = run_golden(*r.c.op, r.c.inputs, {});
  r.verdict = judge(*r.c.op, r.c.inputs, golden, r.actual, details);
  r.explained = explain(r.c, golden, r.actual, r.verdict, {}, 1000);
  const Explanation* const found = r.find("operand-sign-lost:weight");
  ASSERT_NE(found, nullptr) << r.all() << r.verdict.outputs.front().pattern;
  EXPECT_NE(found->part.find("0, 3..4, 9, 12"), std::string::npos) << found->part;
}

TEST(Substituted, ANumberThatAFunctionMadeAnotherOf) {
  Replayed r = case_of("int8_scaled_mm M=16 N=64 K=256 --with bias");
  Arguments inputs = r.c.inputs;
  inputs.set("bias", numbers_of(*r.c.inputs.find("bias"), [](double x) { return std::trunc(x); }));
  r.actual = outputs_with(r.c, inputs);
  judge_and_explain(r);
  EXPECT_EQ(first_of(r), "bias: each number is cut to whole numbers, toward zero") << r.all();
}

TEST(Substituted, ScalesThatMoveOnTooOften) {
  Replayed r = case_of("fp8_blockwise_scaled_mm M=8 N=256 K=512");
  const Tensor &a = *r.c.inputs.find("mat_a"), &b = *r.c.inputs.find("mat_b"), &of_a = *r.c.inputs.find("scales_a"),
               &of_b = *r.c.inputs.find("scales_b");
  r.actual = outputs_with(r.c, r.c.inputs);
  Tensor& out = r.actual.front().second;
  out = out.clone();
  constexpr std::int64_t columns = 256, depth = 512, blocks = 4;
  for (std::int64_t i = 0; i < out.elements(); ++i) {
    const std::int64_t m = i / columns, n = i % columns;
    double sum = 0;
    for (std::int64_t k = 0; k < depth; ++k) {
      const std::int64_t at = std::min(n / 128 * blocks + k / 64, 2 * blocks - 1);
      sum += quant::get(a, m * depth + k) * quant::get(b, k * columns + n) * quant::get(of_a, m * blocks + k / 128) *
             quant::get(of_b, at % blocks * 2 + at / blocks);
    }
    quant::set(out, i, sum);
  }
  judge_and_explain(r);
  EXPECT_EQ(first_of(r).rfind("scales_b: scales move on along the depth 2 times as often as they should, with every 64", 0), 0U) << r.all();
}

}  // namespace
}  // namespace dodona::oracle
