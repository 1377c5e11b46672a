// Explanations: a kernel that makes a well-known mistake is told which one.
#include "oracle/faults/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>

#include "dodona/error.h"
#include "oracle/cases/generate.h"
#include "oracle/cases/make_case.h"
#include "oracle/faults/faults.h"
#include "oracle/faults/variants.h"
#include "quant/e4m3.h"
#include "quant/element.h"
#include "replayed.h"
#include "tests/errors.h"

namespace dodona::oracle {
namespace {

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

constexpr std::array all_strikes{Strikes::output, Strikes::input, Strikes::attribute, Strikes::call, Strikes::kernel};

/// Biases that make all scores of a router negative: what no case line draws.
void lower_bias(Arguments& inputs) {
  for (const char* name : {"bias", "correction_bias"})
    if (const Tensor* bias = inputs.find(name); bias != nullptr)
      for (std::int64_t i = 0; i < bias->elements(); ++i) quant::set(*bias, i, quant::get(*bias, i) - 4);
}

/// The outputs of the fast mode for a call that has the fault, or for the op's own mistakes of golden mode.
Replayed with_fault(const std::string& line, const std::string& id) {
  Replayed r{make_case(parse_case_line(line), {}, true), {}, {}, {}};
  if (id == "dropped-groups-count-as-zero") lower_bias(r.c.inputs);
  if (id == "nan-is-least") quant::set(*r.c.inputs.find("values"), 1, std::nan(""));
  const GoldenRun golden = run_golden(*r.c.op, r.c.inputs, {});
  const FaultCase call{*r.c.op, r.c.inputs, golden, {}};
  for (const Strikes strikes : all_strikes)
    for (const Placed& placed : placements(call, strikes)) {
      if (placed.id() != id) continue;
      if (strikes == Strikes::kernel) {
        r.actual = inject(placed);
        continue;
      }
      Arguments arguments = runnable(*r.c.op, inputs_with(placed));
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

/// A case line, and a mistake.
struct Mistake {
  std::string line, id;
};

/// What was written with the mistake is judged and explained by it.
void expect_named(const Mistake& m, std::initializer_list<Strikes> where) {
  Replayed r{make_case(parse_case_line(m.line), {}, true), {}, {}, {}};
  const GoldenRun golden = run_golden(*r.c.op, r.c.inputs, {});
  const FaultCase call{*r.c.op, r.c.inputs, golden, {}};
  for (const Strikes strikes : where)
    for (const Placed& placed : placements(call, strikes))
      if (placed.id() == m.id) r.actual = inject(placed);
  ASSERT_FALSE(r.actual.empty()) << m.id << " does not apply to " << m.line;
  judge_and_explain(r);
  expect_complete(r, m.id);
}

TEST(Explain, AnotherRecipeIsNamedByItsAttribute) {
  struct Pair {
    const char *asked, *made, *id;
  };
  for (const Pair& p :
       {Pair{"silu_and_mul T=4 D=64", "silu_and_mul T=4 D=64 --dialect trtllm", "other-recipe:gate_order=up_gate"},
        {"silu_and_mul T=4 D=512", "silu_and_mul T=4 D=512 --dialect deepseek", "other-recipe:round_activation=yes"},
        {"rmsnorm T=8 H=512", "rmsnorm T=8 H=512 --attr weight_order=rounded", "other-recipe:weight_order=rounded"},
        {"rmsnorm T=4 H=64 --attr eps=0.01", "rmsnorm T=4 H=64 --attr eps=0", "constant-dropped:eps=0"},
        {"rotary_embedding T=4 P=64 R=64 Nq=4 --attr head_size=64",
         "rotary_embedding T=4 P=64 R=64 Nq=4 --attr head_size=64 --attr is_neox=false", "flag-flipped:is_neox=false"},
        {"fused_add_rmsnorm T=8 H=512", "fused_add_rmsnorm T=8 H=512 --dialect deepseek", "other-dialect:deepseek"},
        {"moe_fused_gate T=32 E=64 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8",
         "moe_fused_gate T=32 E=64 --attr num_expert_group=8 --attr topk_group=3 --attr topk=8", "count-one-less:topk_group=3"}})
    expect_complete(other_recipe(p.asked, p.made), p.id);
}

TEST(Explain, ADialectIsNamed) {
  // Slot 0 kept for padded tokens.
  expect_complete(other_recipe("set_mla_kv_buffer S=9 T=4 Dn=40 Dr=8 --special first-slot",
                               "set_mla_kv_buffer S=9 T=4 Dn=40 Dr=8 --special first-slot --attr slot_zero=reserved"),
                  "other-recipe:slot_zero=reserved");
}

TEST(Explain, OneUnknownNumberIsFitted) {
  struct Pair {
    const char *asked, *made, *id;
  };
  for (const Pair& p : {Pair{"rmsnorm T=8 H=512 --attr eps=1e-6", "rmsnorm T=8 H=512 --attr eps=0.0123", "another-number:eps=0.0123"},
                        {"cutlass_mla_decode B=2 N=4 pages=7 P=16 W=8 --attr sm_scale=0.1",
                         "cutlass_mla_decode B=2 N=4 pages=7 P=16 W=8 --attr sm_scale=0.0277", "another-number:sm_scale=0.0277"}})
    expect_complete(other_recipe(p.asked, p.made), p.id);
}

TEST(Explain, AFactorOnAScaleIsFitted) {
  Replayed r{make_case(parse_case_line("bmm_fp8 L=1 M=16 N=16 K=128"), {}, true), {}, {}, {}};
  Arguments changed = runnable(*r.c.op, r.c.inputs);
  const Tensor scale = changed.find("A_scale")->clone();
  quant::set(scale, 0, 0.37 * quant::get(scale, 0));
  changed.set("A_scale", scale);
  r.c.op->run(changed, {});
  r.actual = outputs_of(*r.c.op, changed);
  judge_and_explain(r);
  expect_complete(r, "another-factor:A_scale=0.37");
  EXPECT_NE(r.all().find("0.37 x the given one"), std::string::npos) << r.all();
}

TEST(Explain, ANumberThatLeavesFailuresIsNotOffered) {
  // A factor on the whole, and one wrong element: no number reproduces both.
  Replayed r{make_case(parse_case_line("rmsnorm T=8 H=512"), {}, true), {}, {}, {}};
  for (const auto& [name, tensor] : r.c.outputs) r.actual.emplace_back(name, tensor.clone());
  const Tensor& output = r.actual[0].second;
  for (std::int64_t i = 0; i < output.elements(); ++i) quant::set(output, i, 0.9 * quant::get(output, i));
  quant::set(output, 5, 17);
  judge_and_explain(r);
  for (const Explanation& e : r.explained.found) EXPECT_NE(e.id.substr(0, 8), "another-") << r.all();
}

TEST(Explain, AMistakenInputIsNamed) {
  for (const Mistake& m :
       {Mistake{"rmsnorm T=4 H=64", "weight-ignored:weight"},
        {"rmsnorm T=4 H=64", "weight-plus-one:weight"},
        {"rmsnorm T=4 H=64", "operand-rows-off-by-one:input"},
        {"silu_and_mul T=4 D=64", "operand-halves-exchanged:input"},
        {"rotary_embedding T=4 P=64 R=64 Nq=4 --attr head_size=64", "cos-and-sin-exchanged:cos_sin_cache"},
        {"rotary_embedding T=4 P=64 R=64 Nq=4 --attr head_size=64", "sine-negated:cos_sin_cache"},
        {"rotary_embedding T=4 P=64 R=64 Nq=4 --attr head_size=64", "position-off-by-one:positions"},
        {"merge_state T=3 N=4 D=32", "inputs-exchanged:v_a,v_b"},
        {"bmm_fp8 L=1 M=4 N=16 K=128", "scale-ignored:A_scale"},
        {"bmm_fp8 L=1 M=4 N=16 K=128", "k-tile-of-32-dropped:A"},
        {"bmm_fp8 L=2 M=16 N=16 K=16", "operand-transposed:A"},
        {"apply_shuffle_mul_sum M=3 topk=5 R=15 D=48 --dtype input=f32 --without factors", "permutation-inverted:permutation"},
        {"fp8_gemm_nt M=4 N=64 K=1024", "k-tile-of-512-dropped:a"},
        {"moe_fused_gate T=32 E=64 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8", "operand-ignored:bias"}})
    expect_complete(with_fault(m.line, m.id), m.id);
}

TEST(Explain, WhereAKernelLookedIsNamed) {
  const std::string mla = "trtllm_batch_decode_with_kv_cache_mla B=3 Q=1 N=4 pages=11 P=32 W=3 --attr bmm1_scale=0.1352337788608801";
  for (const Mistake& m :
       {Mistake{mla, "table-at-other-width:block_tables=11, the last entry"},
        {mla, "table-at-other-width:block_tables=11, from the begin"},
        {mla, "length-of-whole-table:seq_lens=96"},
        {mla, "length-of-the-longest:seq_lens"},
        {mla, "length-cut-to-whole-tiles:seq_lens=32"},
        {"mla_rope_quantize_fp8 T=9 N=2 Dr=64 Dn=128 P=64 --special gaps", "read-at-strides-of-another:q_nope=q_rope"},
        {"bmm L=3 M=16 K=64 N=16", "matrix-stride-of-fixed-rows:mat1=8"},
        {"context_attention_fwd T=9 N=4 Nk=2 D=64 B=2", "heads-in-turn:in turn"},
        {"rotary_embedding T=4 P=64 R=32 Nq=4 Nk=2 --attr head_size=64", "whole-head-rotated:angles repeated"},
        {"rotary_embedding T=4 P=64 R=32 Nq=4 Nk=2 --attr head_size=64", "every-operand:operand-halves-exchanged"},
        {"linear T=6 K=200 N=48", "k-cut-to-multiple:input=128"},
        {"bmm L=3 M=16 K=64 N=16", "dimensions-exchanged:mat1=0"},
        {"cutlass_mla_decode B=3 N=2 pages=14 P=32 W=4 --attr sm_scale=0.1", "pages-beyond-are-zeros:kv_c_and_k_pe_cache=5"},
        {"trtllm_batch_decode_with_kv_cache_mla B=3 Q=2 N=2 pages=8 P=32 W=2 --attr bmm1_scale=0.1",
         "matrix-stride-of-inner-matrix:query=1"},
        {"transfer_kv_per_layer_ph_lf n=9 pages=3 Sd=14 L=3 D=64 --attr layer_id=1 --attr page_size=4 --attr head_num=2",
         "every-operand:dimensions-exchanged=1"},
        {"awq_dequantize K=32 N=16 G=4", "scales-of-coarser-groups:4"},
        {"awq_dequantize K=32 N=16 G=4", "scales-of-coarser-groups:2,qzeros"},
        {"fp8_blockwise_scaled_mm M=3 N=128 K=512", "scales-of-coarser-groups:4"},
        {"qserve_w4a8_per_chn_gemm M=4 N=64 K=256", "twin-read:w_szs=wscales"},
        {"cutlass_mla_decode B=3 N=2 pages=14 P=32 W=4 --attr sm_scale=0.1", "length-of-the-first:seq_lens"},
        {"cutlass_scaled_fp4_mm M=37 N=32 K=96", "scales-read-at-logical-stride:block_scale_a"},
        {"cutlass_scaled_fp4_mm M=37 N=32 K=96", "scale-rows-read-otherwise:block_scale_a=in order"}})
    expect_complete(with_fault(m.line, m.id), m.id);
}

TEST(Explain, HowAKernelConvertedIsNamed) {
  for (const Mistake& m :
       {Mistake{"sgl_per_token_group_quant_int8 M=9 K=256 --special zero-rows", "scale-of-zero-rows:output_s=1"},
        {"sgl_per_token_quant_fp8 M=8 K=64 --special zero-rows", "nan-for-zero-groups:output_q=64"},
        {"mla_rope_quantize_fp8 T=3 N=2 Dr=16 Dn=24 P=64 --attr quant_scale_kv=300 --dist outliers", "nan-beyond:k_nope_out=464"},
        {"mla_rope_quantize_fp8 T=3 N=2 Dr=16 Dn=24 P=64 --attr quant_scale_kv=300 --dist outliers", "saturated-from-256:k_nope_out=448"},
        {"int8_scaled_mm M=5 N=16 K=512", "rounded-before-scale:out=f16"},
        {"topk_sigmoid T=9 E=64 topk=6 --attr renormalize=true", "sum-without-last:topk_weights"},
        {"concat_mla_k T=5", "part-unwritten:k=second"},
        {"linear T=150 K=64 N=32", "half-tile-unwritten:output=128"},
        {"linear T=150 K=64 N=32", "half-tile-again:output=128"}})
    expect_named(m, {Strikes::output});
}

/// Many rows: mistakes are first looked for in a few of them.
TEST(Explain, InLargeCallsToo) {
  for (const Mistake& m : {Mistake{"rmsnorm T=300 H=64", "weight-plus-one:weight"},
                           {"rmsnorm T=300 H=64", "operand-rows-off-by-one:input"},
                           {"rmsnorm T=300 H=64 --attr eps=0.5", "constant-dropped:eps=0"},
                           {"rmsnorm T=300 H=64 --attr eps=0.5", "eps-outside-root"},
                           {"rotary_embedding T=100 P=64 R=16 Nq=2 Nk=1 --attr head_size=16", "position-off-by-one:positions"},
                           {"fp8_blockwise_scaled_mm M=200 N=128 K=256", "scales-transposed:scales_a"},
                           {"fp8_blockwise_scaled_mm M=200 N=128 K=256", "scale-rows-off-by-one:scales_a"},
                           {"bmm_fp8 L=1 M=100 N=16 K=64", "k-tile-dropped:A"}})
    expect_complete(with_fault(m.line, m.id), m.id);
}

/// Where every score is the same any choice is right: that explains a wrong one as little as it does the right one.
TEST(Explain, WhatLeavesEveryChoiceOpenExplainsNone) {
  Replayed r{make_case(parse_case_line("fast_topk_v2 B=1 L=4000"), {}, true), {}, {}, {}};
  quant::set(*r.c.inputs.find("lengths"), 0, 4000);
  const GoldenRun golden = run_golden(*r.c.op, r.c.inputs, {});
  r.actual.emplace_back("topk_indices", golden.outputs[0].second.clone());
  for (std::int64_t i = 0; i < 2048; ++i) quant::set(r.actual[0].second, i, static_cast<double>(i));
  judge_and_explain(r);
  ASSERT_EQ(r.verdict.outcome, Outcome::fail);
  EXPECT_EQ(r.find("operand-ignored:score"), nullptr) << r.all();
}

/// The mistake is one where sums are rounded between ranks too.
TEST(Explain, ASumOfRanksThatIsNotRoundedIsNamed) {
  expect_complete(with_fault("trtllm_allreduce_fusion R=2 T=4 H=512", "sum-not-rounded"), "sum-not-rounded");
}

TEST(Explain, WhatLiesBeyondAnOperandIsNotAskedFor) {
  // The second matrix begins where the third does, the others beyond the end.
  const Replayed r = with_fault("bmm L=4 M=16 K=64 N=16", "matrix-stride-of-fixed-rows:mat1=32");
  ASSERT_FALSE(r.actual.empty());
  Replayed other{r.c, {}, {}, {}};
  for (const auto& [name, tensor] : r.actual) {
    other.actual.emplace_back(name, tensor.clone());
    // Whatever lies there.
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      if (std::isnan(quant::get(tensor, i))) quant::set(other.actual.back().second, i, static_cast<double>(i));
  }
  judge_and_explain(other);
  expect_complete(other, "matrix-stride-of-fixed-rows:mat1=32");
}

TEST(Explain, WhatLiesBeyondAnOperandHidesNoOtherMistake) {
  // Of the second matrix the kernel would know nothing with that stride, and anything at all may be wrong there.
  Replayed r{make_case(parse_case_line("bmm L=2 M=16 K=64 N=16"), {}, true), {}, {}, {}};
  Arguments arguments = runnable(*r.c.op, r.c.inputs);
  r.c.op->run(arguments, {});
  r.actual = outputs_of(*r.c.op, arguments);
  Tensor& out = r.actual.front().second;
  out = out.clone();
  for (std::int64_t i = 256; i < out.elements(); ++i) quant::set(out, i, static_cast<double>(i * 37 % 101));
  judge_and_explain(r);
  EXPECT_EQ(r.find("matrix-stride-of-fixed-rows:mat1=32"), nullptr) << r.all();
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
  EXPECT_EQ(r.explained.found.front().id, "logarithms-in-other-base") << r.all();
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
  expect_complete(r, "scales-not-swizzled:output_scale");
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
  expect_complete(r, "neighbours-exchanged:output");
}

TEST(Explain, WhatWasWrittenWronglyIsNamed) {
  for (const Mistake& m : {Mistake{"sgl_per_token_quant_fp8 M=6 K=256", "truncated:output_q"},
                           {"scaled_fp4_quant M=6 K=64", "truncated:output"},
                           {"rmsnorm T=6 H=64", "rows-off-by-one:output"},
                           {"rmsnorm T=20 H=64", "last-row-tile-skipped:output"},
                           {"rmsnorm T=6 H=64 --dtype input=f32", "through-bf16:output"},
                           {"bmm_fp8 L=1 M=5 N=32 K=64", "partials-rounded:out=2"},
                           {"bmm_fp8 L=1 M=5 N=32 K=64", "partials-rounded:out=4"},
                           {"mxfp8_quantize M=6 K=256 --special fp8-ties", "ties-away:x_q"},
                           {"mxfp4_quantize M=160 K=96", "scales-at-logical-stride:sf"},
                           {"mxfp8_quantize M=9 K=160 --attr is_sf_8x4_layout=true", "scales-not-swizzled:sf"},
                           {"merge_state T=3 N=5 D=32", "one-wrong-head:v_merged"}})
    expect_named(m, {Strikes::output});
}

TEST(Explain, WhatSumsAreKeptInAndWhichScalesBelongToThemIsNamed) {
  for (const Mistake& m :
       {Mistake{"linear T=4 K=256 N=32", "sums-kept-narrow:bf16,1"},
        {"bmm L=2 M=3 K=256 N=16", "sums-kept-narrow:bf16,64"},
        {"fp8_scaled_mm M=5 N=16 K=128 --with bias", "sums-kept-narrow:f16,1"},
        {"cutlass_scaled_fp4_mm M=4 N=32 K=640", "sums-kept-narrow:bf16,16"},
        {"fp8_gemm_nt M=4 N=200 K=256", "scale-blocks-evenly:sfb"},
        {"moe_sum_reduce T=3 topk=8 D=40 --attr routed_scaling_factor=2.5", "slots-rounded:output_tensor sums"},
        {"per_token_quant_int8 M=6 K=512", "int8-conversion:toward-zero"},
        {"per_token_quant_int8 M=8 K=200", "maximum-beyond-the-group:scales"},
        {"silu_and_mul T=5 D=37 --dtype input=f32", "sigmoid-from-tanh"},
        {"kimi_k2_moe_fused_gate T=5 E=384 --attr topk=6", "sigmoid-from-tanh"},
        {"topk_sigmoid T=16 E=128 topk=8", "sigmoid-from-tanh"},
        {"cutlass_mla_decode B=2 N=2 pages=8 P=32 W=4 --attr sm_scale=5", "exponentials-unshifted"},
        {"cutlass_mla_decode B=2 N=2 pages=8 P=32 W=4 --attr sm_scale=0.1", "last-key-hidden"},
        {"rotary_embedding T=4 P=64 R=32 Nq=4 Nk=2 --attr head_size=64", "pairs-half-a-head-apart:half a head"},
        {"decode_attention_fwd B=2 N=4 Nk=2 S=40 n=20 D=64 --attr v_head_dim=64 --attr sm_scale=0.1", "empty-terms:3"},
        {"decode_attention_fwd B=2 N=4 Nk=2 S=40 n=20 D=64 --attr v_head_dim=64 --attr sm_scale=0.1", "empty-terms:tile 64"},
        {"decode_attention_fwd B=2 N=4 Nk=2 S=40 n=20 D=64 --attr v_head_dim=64 --attr sm_scale=0.1 --with sinks", "sinks-mistaken:twice"},
        {"decode_attention_fwd B=2 N=4 Nk=2 S=40 n=20 D=64 --attr v_head_dim=64 --attr sm_scale=0.1 --with sinks", "sinks-mistaken:scaled"},
        {"batch_prefill_with_ragged_kv_cache Tq=8 Tk=160 N=2 Nk=1 D=64 Dv=64 B=1 --attr sm_scale=0.1 --dtype q=f16",
         "attention-sums-narrow:bf16,64"},
        {"batch_prefill_with_ragged_kv_cache Tq=8 Tk=160 N=2 Nk=1 D=64 Dv=64 B=1 --attr sm_scale=0.1 --dtype q=f16",
         "attention-weight-sum-narrow:bf16,1"},
        {"context_attention_fwd T=90 N=4 Nk=2 D=64 B=1", "attention-weights-narrow:f8_e4m3,all"},
        {"mla_rope_quantize_fp8 T=3 N=2 Dr=16 Dn=24 P=64 --attr quant_scale_kv=300 --attr quant_scale_q=300 --dist outliers",
         "every-output:nan-beyond=464"},
        {"mla_rope_quantize_fp8 T=3 N=4 Dr=64 Dn=128 P=64 --attr quant_scale_kv=0.7 --attr quant_scale_q=3.7",
         "every-output:rounded-twice=bf16"},
        {"extend_attention_fwd T=9 N=4 Nk=2 D=64 Dv=64 B=2 S=90 n=80 --attr sliding_window_size=27 --attr sm_scale=0.125",
         "window-of-whole-tiles:16"},
        {"extend_attention_fwd T=9 N=4 Nk=2 D=64 Dv=64 B=2 S=90 n=80 --attr sliding_window_size=27 --attr sm_scale=0.125",
         "window-of-whole-tiles:-32"},
        {"decode_attention_fwd B=2 N=4 Nk=2 S=40 n=20 D=64 --attr v_head_dim=64 --attr sm_scale=0.1 --attr logit_cap=2",
         "empty-terms:cap 32"},
        {"rmsnorm T=6 H=512", "rows-at-another-stride:output 1 zeros"},
        {"apply_token_bitmask_inplace_cuda B=4 V=1000 W=32 --special gaps", "in-place-as-packed:logits"}})
    expect_named(m, {Strikes::call});
}

TEST(Explain, RowsThatAreLookedForElsewhereAreNamed) {
  for (const Mistake& m :
       {Mistake{"m_grouped_fp8_gemm_nt_contiguous M=150 N=24 K=256 G=3", "rows-by-another-number:sfa=at m_indices"},
        {"apply_token_bitmask_inplace_cuda B=6 V=500 W=16 N=3 --with indices", "rows-by-another-number:bitmask=of indices"},
        {"merge_state_v2 T=12 N=4 D=64", "other-order-of-dimensions:s_b=lies"},
        {"apply_shuffle_mul_sum M=6 topk=4 R=24 D=96", "rows-by-a-count:input=6 end"},
        {"tree_speculative_sampling_target_only B=9 D=16 V=8 S=5 tot=150", "first-of-each-matrix:target_probs"},
        {"apply_rope_with_cos_sin_cache_inplace T=16 P=4096 R=64 Nq=4 Nk=1 --attr head_size=64", "whole-numbers-narrowed:positions=bf16"},
        {"fp8_paged_mqa_logits B=3 Q=1 H=32 D=64 pages=7 W=3 --attr max_context_len=150", "read-token-by-token:fused_kv_cache"},
        {"m_grouped_fp8_gemm_nt_contiguous M=150 N=24 K=256 G=3", "of-the-neighbour:b=previous own"},
        {"kimi_k2_moe_fused_gate T=16 E=384 --attr topk=8", "bias-taken-off-again:topk_weights=bf16"},
        {"post_reorder_for_cutlass_moe R=24 D=256 T=6 topk=4 --attr num_local_experts=4 --attr routed_scaling_factor=2.5",
         "absent-for-another:topk_ids=first"},
        {"fp8_mqa_logits M=6 H=32 D=64 N=700 --attr clean_logits=false", "half-columns-of-tiles-unwritten:logits=256"},
        {"transfer_kv_per_layer_pf_lf n=5 Ss=9 Sd=7 L=3 D=128 --attr layer_id=2", "count-not-handed-on:layer_id=0"}})
    expect_named(m, {Strikes::input, Strikes::output, Strikes::attribute});
}

/// The bits of a NaN say nothing: a kernel that keeps the sign has made the same mistake.
TEST(Explain, CodesThatStandForNoNumberAreNamedWhateverTheirBits) {
  Replayed r{
      make_case(parse_case_line("mla_rope_quantize_fp8 T=3 N=2 Dr=16 Dn=24 P=64 --attr quant_scale_kv=300 --dist outliers"), {}, true),
      {},
      {},
      {}};
  const GoldenRun golden = run_golden(*r.c.op, r.c.inputs, {});
  for (const auto& [name, tensor] : golden.outputs) r.actual.emplace_back(name, tensor.clone());
  for (auto& [name, tensor] : r.actual) {
    if (name != "k_nope_out") continue;
    const std::vector<double>& exact = golden.reference.find(name)->exact;
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      if (std::fabs(exact[static_cast<std::size_t>(i)]) > 464)
        quant::set_bits(tensor, i, exact[static_cast<std::size_t>(i)] < 0 ? 0xFF : 0x7F);
  }
  judge_and_explain(r);
  expect_complete(r, "nan-beyond:k_nope_out=464");
}

TEST(Variants, AreJudgedAgainstWhereALineAsksForThem) {
  const std::string line = "sgl_per_token_quant_fp8 M=8 K=64 --special zero-rows",
                    variant = " --variant scale-of-zero-rows:output_s=1/448/512";
  const Case plain = make_variant_case(parse_case_line(line), {}), other = make_variant_case(parse_case_line(line + variant), {});
  EXPECT_EQ(check(plain, plain.outputs, {}).outcome, Outcome::pass);
  EXPECT_EQ(check(other, other.outputs, {}).outcome, Outcome::pass);
  EXPECT_EQ(check(plain, other.outputs, {}).outcome, Outcome::fail);
  EXPECT_EQ(check(other, plain.outputs, {}).outcome, Outcome::fail);
  EXPECT_EQ(to_string(parse_case_line(line + variant)), other.line);
  // Explanations say which one it is.
  ExplainOptions explaining;
  explaining.on = true;
  const CheckResult result = check(plain, other.outputs, {}, explaining);
  ASSERT_TRUE(result.explained);
  EXPECT_THAT(lines_of(*result.explained).front(), testing::HasSubstr("--variant scale-of-zero-rows:output_s=1/448/512"));
}

TEST(Variants, CombineAndReachTiesAndWhatOpsDeclare) {
  for (const char* line :
       {"per_token_quant_int8 M=5 K=64 --special zero-rows --variant scale-of-zero-rows:scales=0 --variant int8-conversion:halves-to-even",
        "top_k_renorm_prob B=3 V=64 --attr top_k=5 --dist ties --variant ties-are-cut"}) {
    const Case c = make_variant_case(parse_case_line(line), {});
    EXPECT_EQ(check(c, c.outputs, {}).outcome, Outcome::pass) << line;
  }
}

TEST(Variants, ThatACallDoesNotHaveAreRefusedWithThoseThatItHas) {
  const Error error = helpers::error_from(
      [&] { make_variant_case(parse_case_line("sgl_per_token_quant_fp8 M=4 K=64 --variant other-sentinel:ids=0"), {}); });
  EXPECT_THAT(error.what(), testing::HasSubstr("scale-of-zero-rows:output_s=1e-10"));
  EXPECT_THROW(make_variant_case(parse_case_line("rmsnorm T=4 H=64 --variant eps-outside-root"), {}, true), Error) << "compact";
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

/// For each op that declares mistakes of its own kernels.
class ExplainOf : public testing::TestWithParam<std::string> {};

std::vector<std::string> ops_with_mistakes() {
  std::vector<std::string> names;
  for (const auto& op : registry().all())
    if (!op->mistakes().empty()) names.emplace_back(op->name());
  return names;
}
INSTANTIATE_TEST_SUITE_P(Inventory, ExplainOf, testing::ValuesIn(ops_with_mistakes()), [](const auto& test) { return test.param; });

/// The op's case lines, and lines in which a mistake shows that hides there.
std::vector<std::string> lines_of_op(const Op& op) {
  static const std::vector<std::string> others{"rmsnorm T=3 H=40 --attr eps=0.5",
                                               "fused_add_rmsnorm T=3 H=40 --attr eps=0.5",
                                               "layernorm T=3 D=40 --attr eps=0.5",
                                               "trtllm_allreduce_fusion R=2 T=3 H=40 --attr rms_eps=0.5",
                                               "sgl_per_token_quant_fp8 M=6 K=64",
                                               "mxfp8_quantize M=129 K=1536 --dtype input=f16",
                                               "sgl_per_tensor_quant_fp8 T=8 H=64 --dist wide-exponent",
                                               "moe_sum_reduce T=3 topk=8 D=40 --attr routed_scaling_factor=2.5",
                                               "moe_fused_gate T=16 E=32 --attr num_expert_group=4 --attr topk_group=2 --attr topk=4",
                                               "moe_fused_gate T=7 E=64 --attr num_expert_group=4 --attr topk_group=2 --attr topk=4 "
                                               "--dtype input_tensor=bf16 --dist ties"};
  const std::string name(op.name());
  std::vector<std::string> lines;
  for (const std::string& rest : op.cases()) lines.push_back(name + " " + rest);
  std::copy_if(others.begin(), others.end(), std::back_inserter(lines),
               [&](const std::string& line) { return line.rfind(name + " ", 0) == 0; });
  return lines;
}

/// Whether outputs with the op's own mistake are caught on the line and would be right with it, so that explain() offers it.
bool is_named(const std::string& line, const std::string& id) {
  Case c = make_case(parse_case_line(line), {}, true);
  if (id == "dropped-groups-count-as-zero") lower_bias(c.inputs);
  if (id == "nan-is-least") quant::set(*c.inputs.find("values"), 1, std::nan(""));
  const GoldenRun golden = run_golden(*c.op, c.inputs, {});
  const FaultCase call{*c.op, c.inputs, golden, {}};
  for (const Placed& placed : placements(call, Strikes::kernel)) {
    if (placed.id() != id) continue;
    const NamedTensors actual = inject(placed);
    const Verdict verdict = judge(*c.op, c.inputs, golden, actual, {});
    if (verdict.outcome != Outcome::fail) return false;
    const auto explanation = replay(placed, actual, verdict, {});
    EXPECT_TRUE(explanation && explanation->complete) << line << " " << id;
    return true;
  }
  return false;
}

TEST_P(ExplainOf, EveryMistakeThatAnOpDeclaresIsNamed) {
  const Op& op = registry().at(GetParam());
  bool first = true;
  for (const KernelMistake& mistake : op.mistakes()) {
    const std::string id(mistake.id);
    const std::vector<std::string> lines = lines_of_op(op);
    const auto shows = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) { return is_named(line, id); });
    ASSERT_NE(shows, lines.end()) << id << " needs a line above in which it shows";
    // Of one the whole search: complete explanations come first.
    if (std::exchange(first, false)) expect_complete(with_fault(*shows, id), id);
  }
}

/// A kernel of its own in plain fp32, as a GPU has it.
TEST(Explain, ABiasThatGotIntoTheWeightsIsNamed) {
  Replayed r{make_case(parse_case_line("moe_fused_gate T=9 E=64 --attr num_expert_group=8 --attr topk_group=4 --attr topk=6"), {}, true),
             {},
             {},
             {}};
  for (const auto& [name, tensor] : r.c.outputs) r.actual.emplace_back(name, tensor.clone());
  const auto *logits = r.c.inputs.find("input_tensor")->as<const float>(), *bias = r.c.inputs.find("bias")->as<const float>();
  auto* const weights = r.actual[0].second.as<float>();
  const auto* const ids = r.actual[1].second.as<const std::int32_t>();
  for (std::int64_t t = 0; t < 9; ++t) {
    float sum = 0;
    for (std::int64_t k = 5; k >= 0; --k) {
      const std::int32_t e = ids[t * 6 + k];
      weights[t * 6 + k] = 1.0f / (1.0f + std::exp(-logits[t * 64 + e])) + bias[e];
      sum += weights[t * 6 + k];
    }
    for (std::int64_t k = 0; k < 6; ++k) weights[t * 6 + k] *= 1.0f / sum;
  }
  judge_and_explain(r);
  expect_complete(r, "bias-in-weights");
  EXPECT_THAT(r.all(), testing::HasSubstr("reproduced by: the weights are made of score + bias"));
}

TEST(Explain, AMaximumWithoutMagnitudeIsNamed) {
  Replayed r{make_case(parse_case_line("sgl_per_token_quant_fp8 M=6 K=256"), {}, true), {}, {}, {}};
  for (const auto& [name, tensor] : r.c.outputs) r.actual.emplace_back(name, tensor.clone());
  const Tensor& x = *r.c.inputs.find("input");
  for (std::int64_t m = 0; m < 6; ++m) {
    double largest = 0;
    for (std::int64_t k = 0; k < 256; ++k) largest = std::max(largest, quant::get(x, m * 256 + k));
    const float scale = static_cast<float>(largest) / 448.0f;
    quant::set(r.actual[1].second, m, scale);
    for (std::int64_t k = 0; k < 256; ++k)
      quant::set_bits(r.actual[0].second, m * 256 + k,
                      quant::to_e4m3_satfinite(static_cast<double>(static_cast<float>(quant::get(x, m * 256 + k)) / scale)));
  }
  judge_and_explain(r);
  expect_complete(r, "maximum-without-magnitude");
}

TEST(Explain, WhatReproducesEverythingLeavesNoRoomForWhatReproducesSome) {
  // With an epsilon of 1e-5 a few elements in a thousand still differ.
  const Replayed r = other_recipe("rmsnorm T=16 H=512 --attr eps=0.01", "rmsnorm T=16 H=512 --attr eps=0");
  ASSERT_FALSE(r.explained.found.empty());
  for (const Explanation& e : r.explained.found) EXPECT_TRUE(e.complete) << e.id;
}

TEST(Explain, ACallWithoutTheWrongOutputExplainsNothing) {
  Replayed r{
      make_case(parse_case_line("prepare_moe_input M=9 topk=3 --attr num_experts=4 --attr n=8 --attr k=16 --attr blockscale_offsets=true"),
                {}, true),
      {},
      {},
      {}};
  for (const auto& [name, tensor] : r.c.outputs) r.actual.emplace_back(name, tensor.clone());
  for (auto& [name, tensor] : r.actual)
    if (name == "blockscale_offsets") quant::set(tensor, 2, 12345);
  judge_and_explain(r);
  ASSERT_EQ(r.verdict.outcome, Outcome::fail);
  EXPECT_EQ(r.find("flag-flipped:blockscale_offsets=false"), nullptr) << r.all();
}

/// With its scale inverted the scores of the first request overflow, and nothing could be wrong there. The second request sees no scores.
TEST(Explain, AMistakeThatLeavesOpenWhatIsWrongExplainsNothing) {
  for (const bool all : {false, true}) {
    Replayed r{
        make_case(parse_case_line("trtllm_batch_decode_with_kv_cache_mla B=2 Q=1 N=2 pages=4 P=32 W=2 --attr bmm1_scale=1e-36"), {}, true),
        {},
        {},
        {}};
    const Tensor& query = *r.c.inputs.find("query");
    for (std::int64_t i = query.elements() / 2; !all && i < query.elements(); ++i) quant::set(query, i, 0);
    r.actual = run_golden(*r.c.op, r.c.inputs, {}).outputs;
    quant::set(r.actual[0].second, 5, 77.0);
    judge_and_explain(r);
    ASSERT_EQ(r.verdict.outcome, Outcome::fail);
    const Explanation* found = r.find("factor-inverted:bmm1_scale=1e+36");
    if (found != nullptr) EXPECT_FALSE(found->complete || !found->outputs.empty()) << r.all();
    for (const std::string& line : lines_of(r.explained)) EXPECT_THAT(line, testing::Not(testing::HasSubstr("bmm1_scale")));
  }
}

TEST(Explain, AMissingYarnFactorOfTheSoftmaxScaleIsNamed) {
  const std::string line = "cutlass_mla_decode B=1 N=2 pages=4 P=32 W=4 --attr sm_scale=";
  const Replayed missing = other_recipe(line + "0.1352337788608801", line + "0.07216878364870323");
  ASSERT_FALSE(missing.explained.found.empty());
  EXPECT_THAT(missing.explained.found.front().text, testing::HasSubstr("(0.1 ln 40 + 1)^2 = 1.874, is missing")) << missing.all();
  EXPECT_THAT(missing.all(), testing::Not(testing::HasSubstr("number of columns")));
  const Replayed twice = other_recipe(line + "0.07216878364870323", line + "0.1352337788608801");
  ASSERT_FALSE(twice.explained.found.empty());
  EXPECT_THAT(twice.explained.found.front().text, testing::HasSubstr("1.874, is in the softmax scale twice")) << twice.all();
}

TEST(Explain, OfSeveralEpsilonsThatReproduceTheLikeliestComesFirst) {
  const Replayed r = other_recipe("rmsnorm T=4 H=512 --attr eps=0.01", "rmsnorm T=4 H=512 --attr eps=1e-6");
  ASSERT_GT(r.explained.found.size(), 1u) << "normal data cannot tell them apart";
  EXPECT_EQ(r.explained.found.front().id, "other-epsilon:eps=1e-06") << r.all();
}

TEST(Explain, EveryOpHasFaultsToTryAndNoneChangesTheCaseItself) {
  for (const auto& op : registry().all()) {
    const Arguments inputs = generate(parse_case_line(std::string(op->name()) + " " + op->cases().front()));
    const GoldenRun golden = run_golden(*op, inputs, {});
    const auto before = digests_of(inputs, golden.outputs);
    const FaultCase call{*op, inputs, golden, {}};
    std::size_t tried = 0;
    for (const Strikes strikes : all_strikes)
      for (const Placed& placed : placements(call, strikes)) {
        ++tried;
        if (placed.site.tensor.defined() && placed.site.tensor.elements() > 5000) continue;
        inputs_with(placed);
        restored(placed, golden.outputs);
      }
    EXPECT_EQ(digests_of(inputs, golden.outputs), before) << op->name();
    EXPECT_GT(tried, 0u) << op->name();
  }
}

TEST(Explain, WhatWasWrittenWronglyIsRestored) {
  for (const char* line : {"rmsnorm T=6 H=32", "merge_state T=3 N=4 D=32", "scaled_fp4_quant M=128 K=128",
                           "prepare_moe_input M=9 topk=3 --attr num_experts=4 --attr n=8 --attr k=16"}) {
    const Case c = make_case(parse_case_line(line), {}, true);
    const GoldenRun golden = run_golden(*c.op, c.inputs, {});
    const FaultCase call{*c.op, c.inputs, golden, {}};
    int restorable = 0;
    for (const Placed& placed : placements(call, Strikes::output)) {
      if (placed.fault->undo == nullptr) continue;
      ++restorable;
      const NamedTensors back = restored(placed, inject(placed));
      EXPECT_EQ(judge(*c.op, c.inputs, golden, back, {}).failing(), 0) << line << " " << placed.id();
    }
    EXPECT_GT(restorable, 0) << line;
  }
}

}  // namespace
}  // namespace dodona::oracle
