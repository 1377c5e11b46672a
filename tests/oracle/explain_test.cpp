// Explanations: a kernel that makes a well-known mistake is told which one.
#include "oracle/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "oracle/make_case.h"
#include "oracle/mistakes.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

struct Replayed {
  Case c;
  NamedTensors actual;
  Verdict verdict;
  Explained explained;

  std::string all() const {
    std::string text;
    for (const std::string& line : lines_of(explained)) text += line + "\n";
    return text;
  }
  /// The mistake of this id among what was found; nullptr when it is not.
  const Explanation* find(const std::string& id) const {
    const auto found = std::find_if(explained.found.begin(), explained.found.end(), [&](const Explanation& e) { return e.id == id; });
    return found == explained.found.end() ? nullptr : &*found;
  }
};

void judge_and_explain(Replayed& r, double seconds = 1000) {
  r.verdict = judge(*r.c.op, r.c.inputs, r.actual, {});
  r.explained = explain(r.c, r.actual, r.verdict, {}, seconds);
}

/// The outputs of the fast mode for `made` judged as those of `asked`: the same inputs, another recipe.
Replayed other_recipe(const std::string& asked, const std::string& made) {
  Replayed r{make_case(parse_case_line(asked), {}, true), {}, {}, {}};
  const Case other = make_case(parse_case_line(made), {}, true);
  Arguments arguments = runnable(*other.op, other.inputs);
  other.op->run(arguments, {});
  r.actual = outputs_of(*other.op, arguments);
  judge_and_explain(r);
  return r;
}

/// The outputs of the fast mode for a call in which one input was mistaken.
Replayed mistaken_input(const std::string& line, const std::string& id) {
  Replayed r{make_case(parse_case_line(line), {}, true), {}, {}, {}};
  NamedTensors none;
  for (const Mistake& mistake : mistakes_of(*r.c.op, r.c.inputs, r.c.outputs)) {
    if (mistake.id != id) continue;
    Arguments inputs = r.c.inputs;
    mistake.apply(inputs, none);
    Arguments arguments = runnable(*r.c.op, inputs);
    r.c.op->run(arguments, {});
    r.actual = outputs_of(*r.c.op, arguments);
  }
  if (r.actual.empty()) return r;
  judge_and_explain(r);
  return r;
}

void expect_complete(const Replayed& r, const std::string& id) {
  ASSERT_FALSE(r.actual.empty()) << id << " does not apply";
  ASSERT_EQ(r.verdict.outcome, Outcome::fail) << id;
  const Explanation* found = r.find(id);
  ASSERT_NE(found, nullptr) << id << "\n" << r.all();
  EXPECT_TRUE(found->complete) << id << "\n" << r.all();
  EXPECT_TRUE(r.explained.found.front().complete) << "complete explanations come first";
}

TEST(Explain, AnotherRecipeIsNamedByItsAttribute) {
  struct Pair {
    const char *asked, *made, *id;
  };
  for (const Pair& p : {Pair{"silu_and_mul T=4 D=64", "silu_and_mul T=4 D=64 --dialect trtllm", "attr:gate_order=up_gate"},
                        {"silu_and_mul T=4 D=512", "silu_and_mul T=4 D=512 --dialect deepseek", "attr:round_activation=yes"},
                        {"rmsnorm T=8 H=512", "rmsnorm T=8 H=512 --attr weight_order=rounded", "attr:weight_order=rounded"},
                        {"rmsnorm T=4 H=64 --attr eps=0.01", "rmsnorm T=4 H=64 --attr eps=0", "attr:eps=0"},
                        {"rotary_embedding T=4 P=64 R=64 Nq=4 --attr head_size=64",
                         "rotary_embedding T=4 P=64 R=64 Nq=4 --attr head_size=64 --attr is_neox=false", "attr:is_neox=false"},
                        {"fused_add_rmsnorm T=8 H=512", "fused_add_rmsnorm T=8 H=512 --dialect deepseek", "dialect:deepseek"},
                        {"moe_fused_gate T=32 E=64 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8",
                         "moe_fused_gate T=32 E=64 --attr num_expert_group=8 --attr topk_group=3 --attr topk=8", "attr:topk_group=3"}})
    expect_complete(other_recipe(p.asked, p.made), p.id);
}

TEST(Explain, AMistakenInputIsNamed) {
  struct Pair {
    const char *line, *id;
  };
  for (const Pair& p : {Pair{"rmsnorm T=4 H=64", "weight-omitted:weight"},
                        {"rmsnorm T=4 H=64", "weight-plus-one:weight"},
                        {"rmsnorm T=4 H=64", "next-row:input"},
                        {"silu_and_mul T=4 D=64", "halves-swapped:input"},
                        {"rotary_embedding T=4 P=64 R=64 Nq=4 --attr head_size=64", "cos-sin-exchanged:cos_sin_cache"},
                        {"rotary_embedding T=4 P=64 R=64 Nq=4 --attr head_size=64", "sine-negated:cos_sin_cache"},
                        {"rotary_embedding T=4 P=64 R=64 Nq=4 --attr head_size=64", "off-by-plus-one:positions"},
                        {"merge_state T=3 N=4 D=32", "exchanged:v_a,v_b"},
                        {"bmm_fp8 L=1 M=4 N=16 K=128", "scale-ignored:A_scale"},
                        {"bmm_fp8 L=1 M=4 N=16 K=128", "tail-dropped-32:A"},
                        {"bmm_fp8 L=2 M=16 N=16 K=16", "transposed:A"},
                        {"moe_fused_gate T=32 E=64 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8", "bias-ignored:bias"}})
    expect_complete(mistaken_input(p.line, p.id), p.id);
}

TEST(Explain, ALogarithmInTheOtherBaseIsNamed) {
  // Read and written in base 2 where natural ones are given: what merge_state gives for merge_state_v2's inputs.
  Replayed r{make_case(parse_case_line("merge_state_v2 T=3 N=4 D=32 --dtype v_a=bf16"), {}, true), {}, {}, {}};
  const Op& base2 = registry().at("merge_state");
  Arguments arguments = runnable(base2, r.c.inputs);
  base2.run(arguments, {});
  r.actual = outputs_of(base2, arguments);
  judge_and_explain(r);
  ASSERT_EQ(r.verdict.outcome, Outcome::fail);
  ASSERT_FALSE(r.explained.found.empty());
  EXPECT_EQ(r.explained.found.front().id, "lse-base-2") << r.all();
}

TEST(Explain, ScalesWrittenRowByRowAreNamed) {
  Replayed r{make_case(parse_case_line("scaled_fp4_quant M=128 K=128"), {}, true), {}, {}, {}};
  for (const auto& [name, tensor] : r.c.outputs) r.actual.emplace_back(name, tensor.clone());
  const Tensor& golden = r.c.outputs[1].second;
  for (std::int64_t row = 0; row < 128; ++row)
    for (std::int64_t c = 0; c < 8; ++c) {
      const std::int64_t swizzled = c / 4 * 512 + row % 32 * 16 + row / 32 * 4 + c % 4;
      quant::set_bits(r.actual[1].second, row * 8 + c, quant::get_bits(golden, swizzled));
    }
  judge_and_explain(r);
  expect_complete(r, "written-linear:output_scale");
}

TEST(Explain, SwappedNibblesAreNamedAndOnlyThatOutputFails) {
  Replayed r{make_case(parse_case_line("scaled_fp4_quant M=4 K=64"), {}, true), {}, {}, {}};
  for (const auto& [name, tensor] : r.c.outputs) r.actual.emplace_back(name, tensor.clone());
  Tensor& codes = r.actual[0].second;
  for (std::int64_t i = 0; i < codes.elements(); ++i) {
    const std::uint64_t byte = quant::get_bits(codes, i);
    quant::set_bits(codes, i, (byte >> 4 | byte << 4) & 0xFF);
  }
  judge_and_explain(r);
  expect_complete(r, "nibbles-swapped:output");
}

TEST(Explain, WhatNoMistakeReproducesIsSaidToBeSo) {
  Replayed r{make_case(parse_case_line("rmsnorm T=4 H=64"), {}, true), {}, {}, {}};
  r.actual.emplace_back("output", r.c.outputs[0].second.clone());
  for (std::int64_t i = 0; i < 256; ++i) quant::set_bits(r.actual[0].second, i, 0x3F80 + i % 5);
  judge_and_explain(r);
  EXPECT_TRUE(r.explained.found.empty()) << r.all();
  EXPECT_GT(r.explained.tried, 10);
  EXPECT_THAT(r.all(), testing::HasSubstr("well-known mistakes"));
}

TEST(Explain, WhenTheTimeIsUpItSaysHowManyWereNotTried) {
  Replayed r = other_recipe("silu_and_mul T=4 D=64", "silu_and_mul T=4 D=64 --dialect trtllm");
  judge_and_explain(r, -1);
  EXPECT_EQ(r.explained.tried, 0);
  EXPECT_GT(r.explained.left, 0);
  EXPECT_THAT(r.all(), testing::HasSubstr("time was up"));
}

TEST(Explain, EveryOpHasMistakesAndNoneChangesTheCaseItself) {
  for (const auto& op : registry().all()) {
    const Case c = make_case(parse_case_line(std::string(op->name()) + " " + op->cases().front()), {}, true);
    const auto before = digests_of(c.inputs, c.outputs);
    for (const Mistake& mistake : mistakes_of(*op, c.inputs, c.outputs)) {
      Arguments inputs = c.inputs;
      NamedTensors actual = c.outputs;
      mistake.apply(inputs, actual);
    }
    EXPECT_EQ(digests_of(c.inputs, c.outputs), before) << op->name();
    if (op->info().category != Category::utility) EXPECT_FALSE(mistakes_of(*op, c.inputs, c.outputs).empty()) << op->name();
  }
}

}  // namespace
}  // namespace dodona::oracle
