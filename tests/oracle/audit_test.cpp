// The library of faults and the audit: every kind is caught somewhere, nothing gross passes, and what changes nothing does not count.
#include "oracle/trust/audit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "dodona/error.h"
#include "oracle/cases/generate.h"
#include "oracle/judge/judge.h"
#include "oracle/trust/customary.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

Exec one_thread() {
  Exec exec;
  exec.threads = 1;
  return exec;
}

/// Small cases that between them have every role, type and shape that a fault asks for.
const char* const lines[] = {
    "rmsnorm T=20 H=160 --attr eps=0.5",
    "rmsnorm T=3 H=40 --dtype input=f32 --attr eps=0.5",
    "silu_and_mul T=3 D=40 --dtype input=f16 --dist ties",
    "silu_mul_static_tensorwise_quant_for_cutlass_moe R=6 N=256",
    "silu_and_mul_masked_post_per_tensor_quant_fwd E=2 M=5 N=256",
    "apply_rope_with_cos_sin_cache_inplace T=4 P=64 R=16 Nq=3 Nk=1 --attr head_size=16 --attr is_neox=false",
    "concat_mla_k T=2 --dtype k_nope=f8_e4m3",
    "merge_state T=3 N=5 D=24",
    "merge_state_v2 T=5 N=4 D=16 --dialect flashinfer --dist edge --dtype v_a=f32",
    ("moe_fused_gate T=4 E=64 --attr num_expert_group=8 --attr topk_group=4 --attr topk=6 --attr routed_scaling_factor=2.5 "
     "--attr num_fused_shared_experts=1 --attr apply_routed_scaling_factor_on_output=true"),
    "moe_fused_gate T=7 E=64 --attr num_expert_group=4 --attr topk_group=2 --attr topk=4 --dtype input_tensor=bf16 --dist ties",
    "merge_state T=4 N=8 D=16 --dist edge",
    "apply_shuffle_mul_sum M=3 topk=4 R=12 D=40 --dtype input=f16 --dist edge",
    "shuffle_rows R=4 C=48 D=6 --dtype input_tensor=u8",
    "prepare_moe_input M=9 topk=3 --attr num_experts=4 --attr n=8 --attr k=16 --attr blockscale_offsets=true",
    "shuffle_rows R=5 C=40 D=9",
    "apply_shuffle_mul_sum M=3 topk=4 R=12 D=40",
    "bmm_fp8 L=2 M=5 N=32 K=64 --dialect trtllm",
    "scaled_fp4_quant M=40 K=128",
    "sgl_per_token_quant_fp8 M=4 K=64",
    "sgl_per_tensor_quant_fp8 T=8 H=64 --dist wide-exponent",
    "sgl_per_token_group_quant_8bit M=4 K=256 --attr enable_v2=true --attr scale_ue8m0=true --attr fuse_silu_and_mul=true",
    "sgl_per_token_group_quant_fp8 M=4 K=256",
    "sgl_per_token_group_quant_int8 M=4 K=256",
    "nvfp4_block_scale_interleave E=2 R=40 C=6",
    "awq_dequantize K=12 N=16 G=3",
    "moe_sum_reduce T=3 topk=8 D=40 --attr routed_scaling_factor=2.5",
    "trtllm_batch_decode_with_kv_cache_mla B=1 Q=1 N=3 pages=2 P=32 W=1 --attr bmm1_scale=0.0005 --dtype query=f8_e4m3",
    "trtllm_batch_decode_with_kv_cache_mla B=2 Q=1 N=2 pages=4 P=32 W=2 --attr bmm1_scale=0.05",
    "fused_add_rmsnorm T=4 H=320",
    "bmm_fp8 L=2 M=16 N=16 K=16",
    "fp8_blockwise_scaled_mm M=3 N=128 K=256",
    "fp8_gemm_nt M=3 N=136 K=256",
    "matmul_persistent M=3 N=16 K=64 --with bias",
    "log_softmax T=3 N=40",
    "mean_dim M=3 N=40 K=5 --dtype input=f32",
    "hadamard_transform T=3 D=64",
    "fast_topk_v2 B=3 L=2500",
    "fp8_mqa_logits M=2 H=8 D=32 N=40",
    "per_token_quant_int8 M=4 K=64 --attr cal_sum=true",
    "fp4_quantize M=9 K=128",
    "nvfp4_quantize M=32 K=64 --attr do_shuffle=true",
    "mxfp4_quantize M=9 K=128",
    "mxfp8_quantize M=9 K=128",
    "mxfp8_quantize M=129 K=1536 --dtype input=f16",
    "mm_fp4 M=4 N=32 K=640",
    "int8_scaled_mm M=5 N=16 K=64 --with bias",
    "fp8_scaled_mm M=5 N=16 K=64 --with bias",
    "qserve_w4a8_per_chn_gemm M=5 N=64 K=128",
    "qserve_w4a8_per_group_gemm M=5 N=64 K=256",
    "cutlass_scaled_fp4_mm M=4 N=32 K=640",
    "gelu_and_mul T=3 D=40",
    "gelu_tanh_and_mul T=3 D=40",
    "rotary_embedding T=4 P=64 R=16 Nq=3 Nk=1 --attr head_size=16",
    "mla_rope_quantize_fp8 T=2 N=3 Dr=32 Dn=24 P=64",
    "concat_mla_absorb_q X=2 N=3",
    "cutlass_mla_get_workspace_size --attr max_seq_len=1000 --attr num_batches=4",
    "cutlass_mla_decode B=2 N=2 pages=8 P=32 W=4 --attr sm_scale=0.05",
    "set_mla_kv_buffer S=9 T=4 Dn=37 Dr=5 --dtype kv_buffer=f32 --dtype k_nope=f32",
    "cutlass_fp4_group_mm M=40 N=32 K=96 E=3 R=512 --with problem_sizes --with blockscale_offsets",
    "cutlass_fp4_group_mm M=40 N=32 K=96 E=3 R=512",
    "dsv3_fused_a_gemm T=1",
    "dsv3_router_gemm T=2 E=256",
    "linear T=4 K=64 N=32",
    "bmm L=2 M=3 K=64 N=16",
    "scaled_fp4_experts_quant M=9 T=9 K=64 E=2 R=256 --with blockscale_offsets",
    "scaled_fp4_experts_quant M=9 T=12 K=64 E=2 R=256 --with expert_map",
    "apply_shuffle_mul_sum M=3 topk=4 R=12 D=40 --without factors",
    "trtllm_batch_decode_with_kv_cache_mla B=2 Q=1 N=2 pages=4 P=32 W=2 --attr bmm1_scale=0.05 --attr return_lse=true",
    "scaled_fp4_quant M=3 K=80",
    "moe_align_block_size M=130 topk=8 S=2024 B=254 --dtype topk_ids=i64 --attr num_experts=129 --attr block_size=8 --attr "
    "pad_sorted_token_ids=true",
    "post_reorder_for_cutlass_moe R=24 D=64 T=3 topk=8 --attr num_local_experts=4 --attr routed_scaling_factor=2.5",
    "trtllm_bf16_moe T=5 H=128 --attr num_experts=8 --attr top_k=3 --attr n_group=4 --attr topk_group=2 --attr intermediate_size=128 "
    "--attr local_num_experts=8 --attr routing_method_type=DeepSeekV3 --attr routed_scaling_factor=2.5 --attr record_routing=true",
    "trtllm_bf16_moe T=4 H=128 --attr top_k=2 --attr routing_method_type=Default --without routing_bias --dtype routing_logits=bf16 "
    "--attr num_experts=4 --attr intermediate_size=128 --attr local_num_experts=4",
    "cutlass_fused_moe T=5 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64",
    "cutlass_fused_moe T=6 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64 A2=4 --dtype fc1_expert_weights=f8_e4m3 --dtype input=f8_e4m3 "
    "--with fc1_dequant --with fc1_expert_biases --with fc2_dequant --with fc2_expert_biases",
    "cutlass_fused_moe T=5 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64 --with swiglu_limit",
    "weak_ref_tensor S=24",
    "all_reduce R=8 T=3 H=1048 --dtype inp=f32 --attr algorithm=two_stage",
    "reduce_scatter_tensor R=4 T=2 H=512 --attr order=ring",
    "trtllm_allreduce_fusion R=4 T=2 H=512 --attr fp32_acc=true",
    "mla_rope_quantize_fp8 T=3 N=2 Dr=32 Dn=24 P=64 --attr quant_scale_kv=300 --dist outliers --special gaps",
    "ep_scatter T=9 H=128 Hs=1 topk=2 E=3 M=384",
    "cutlass_scaled_fp4_mm M=37 N=32 K=96",
    "sgl_per_token_group_quant_int8 M=8 K=256 --special zero-rows",
    "sgl_per_token_quant_fp8 M=8 K=64 --special zero-rows",
    "moe_fused_gate T=8 E=64 --attr num_expert_group=8 --attr topk_group=4 --attr topk=4 --special nan-elements",
    "rotary_embedding T=4 P=64 R=16 Nq=3 Nk=1 --attr head_size=32",
    "context_attention_fwd T=9 N=4 Nk=2 D=128 B=2",
    "decode_attention_fwd B=4 N=16 Nk=2 S=16 n=4 D=64 --attr v_head_dim=64 --attr sm_scale=0.1 --with sinks",
    "trtllm_batch_decode_with_kv_cache_mla B=3 Q=2 N=2 pages=8 P=32 W=2 --attr bmm1_scale=0.1",
    "top_p_renorm_prob B=3 V=400 --attr top_p=1",
    "linear T=4 K=72 N=32",
    "rmsnorm T=2 H=1024 --attr weight_bias=1",
    "per_token_quant_int8 M=6 K=200",
    "silu_and_mul T=5 D=37 --dtype input=f32",
    "rotary_embedding T=3 P=64 R=22 Nq=4 Nk=2 --attr head_size=23",
    "cutlass_mla_decode B=2 N=2 pages=8 P=32 W=4 --attr sm_scale=5",
    "batch_prefill_with_ragged_kv_cache Tq=8 Tk=160 N=2 Nk=1 D=64 Dv=64 B=1 --attr sm_scale=0.1 --dtype q=f16",
    "fp8_paged_mqa_logits B=3 Q=1 H=32 D=64 pages=7 W=3 --attr max_context_len=150",
    "flash_mla_with_kvcache B=2 Q=1 N=4 pages=5 W=2 parts=4 --attr softmax_scale=0.1 --special edge-lengths",
    "tree_speculative_sampling_target_only B=4 D=8 V=9 S=3 tot=32",
    "extend_attention_fwd T=9 N=4 Nk=2 D=64 Dv=64 B=2 S=90 n=80 --attr sliding_window_size=27 --attr sm_scale=0.125",
    "apply_token_bitmask_inplace_cuda B=4 V=1000 W=32 --special gaps",
    "layernorm T=3 D=111",
};

/// Of one of the lines, made when it is first asked for.
const Audit& audit_of(const std::string& line) {
  static std::map<std::string, Audit> known;
  const auto found = known.find(line);
  return found != known.end() ? found->second : known.emplace(line, audit_case(parse_case_line(line), one_thread())).first->second;
}

/// Kinds of faults that the judges catch on some line; each is tried until it is.
std::set<std::string_view> caught_kinds(const std::function<bool(const Fault&)>& wanted) {
  std::set<std::string_view> caught;
  for (const char* line : lines) {
    const auto note = [&](const Audit& audit) {
      if (!audit.injections.empty() && audit.injections.back().caught == Caught::by_judge) caught.insert(audit.injections.back().fault->id);
    };
    note(audit_case(parse_case_line(line), one_thread(), [&](const Fault& fault, const Audit& so_far) {
      note(so_far);
      return caught.count(fault.id) == 0 && wanted(fault);
    }));
  }
  return caught;
}

TEST(Faults, AreManyAndToldApartByTheirIds) {
  std::set<std::string_view> ids;
  for (const Fault& fault : faults()) {
    EXPECT_TRUE(ids.insert(fault.id).second) << fault.id;
    EXPECT_FALSE(fault.summary.empty());
    const bool in_tensor = fault.strikes == Strikes::output || fault.strikes == Strikes::input;
    EXPECT_EQ(fault.spoil != nullptr, in_tensor) << fault.id;
    EXPECT_TRUE(fault.undo == nullptr || fault.strikes == Strikes::output) << fault.id;
    EXPECT_TRUE(fault.variants != nullptr || fault.strikes != Strikes::attribute) << fault.id;
    EXPECT_EQ(fault.recall != nullptr || fault.rewrite != nullptr || fault.rerun != nullptr || fault.flaw != nullptr,
              fault.strikes == Strikes::call)
        << fault.id;
    EXPECT_EQ(fault.applies == nullptr, fault.strikes == Strikes::kernel) << fault.id;
  }
  EXPECT_GE(ids.size(), 40u);
}

TEST(Faults, EachKindIsCaughtSomewhere) {
  const std::set<std::string_view> caught = caught_kinds([](const Fault&) { return true; });
  // They show with ties of codes, which no line draws: explanations are tested with such inputs.
  const std::set<std::string_view> unreachable{"ties-away"};
  for (const Fault& fault : faults())
    if (unreachable.count(fault.id) == 0 && (fault.strikes != Strikes::kernel || fault.severity != Severity::gross))
      EXPECT_TRUE(caught.count(fault.id)) << fault.id << " is caught nowhere";
  EXPECT_GE(caught.size(), 130u);
}

/// For each op of the inventory.
class FaultsOf : public testing::TestWithParam<std::string> {};

std::vector<std::string> names_of_ops() {
  std::vector<std::string> names;
  for (const auto& op : registry().all()) names.emplace_back(op->name());
  return names;
}
INSTANTIATE_TEST_SUITE_P(Inventory, FaultsOf, testing::ValuesIn(names_of_ops()), [](const auto& test) { return test.param; });

/// The op's case line of the fewest elements.
CaseLine smallest_line(const Op& op) {
  std::pair<std::int64_t, CaseLine> smallest{std::numeric_limits<std::int64_t>::max(), {}};
  for (const std::string& rest : op.cases()) {
    const CaseLine line = parse_case_line(std::string(op.name()) + " " + rest);
    std::int64_t elements = 0;
    for (const InputPlan& input : plan_inputs(line)) elements += element_count(input.shape);
    if (elements < smallest.first) smallest = {elements, line};
  }
  return smallest.second;
}

TEST_P(FaultsOf, NoGrossOnePasses) {
  const Audit audit = audit_case(smallest_line(registry().at(GetParam())), one_thread());
  if (audit.injected() > 0) EXPECT_GT(audit.caught(), 0);
  for (const Injection& injection : audit.injections)
    EXPECT_FALSE(injection.vacuous()) << injection.fault->id << " in " << injection.site << " of " << injection.line;
}

/// For each op that declares mistakes of its own kernels.
class OwnMistakes : public testing::TestWithParam<std::string> {};

std::vector<std::string> ops_with_mistakes() {
  std::vector<std::string> names;
  for (const auto& op : registry().all())
    if (!op->mistakes().empty()) names.emplace_back(op->name());
  return names;
}
INSTANTIATE_TEST_SUITE_P(Inventory, OwnMistakes, testing::ValuesIn(ops_with_mistakes()), [](const auto& test) { return test.param; });

TEST_P(OwnMistakes, AreCaughtOnItsOwnCaseLines) {
  const Op& op = registry().at(GetParam());
  std::set<std::string_view> left;
  for (const KernelMistake& mistake : op.mistakes())
    if (!mistake.may_hide) left.insert(mistake.id);
  for (const std::string& rest : op.cases()) {
    const CaseLine line = parse_case_line(GetParam() + " " + rest);
    const Arguments inputs = generate(line);
    for (auto it = left.begin(); it != left.end();) {
      Arguments arguments = runnable(op, inputs);
      Reference ignored;
      op.mistaken_reference(*it, arguments, one_thread(), ignored);
      it = judge(op, inputs, outputs_of(op, arguments), {Mode::golden, one_thread()}).failing() > 0 ? left.erase(it) : std::next(it);
    }
    if (left.empty()) return;
  }
  for (const std::string_view id : left) ADD_FAILURE() << id << " is caught on no case line of the op";
}

TEST(Faults, HoldWhatKernelsAreKnownToGetWrong) {
  struct Known {
    const char *what, *id;
  };
  const std::vector<Known> all{{"dropped K tile", "k-tile-dropped"},
                               {"doubled K tile", "k-tile-doubled"},
                               {"last partial tile of rows skipped", "last-row-tile-skipped"},
                               {"last partial tile of columns skipped", "last-column-tile-skipped"},
                               {"scale row off by one", "scale-rows-off-by-one"},
                               {"scales transposed", "scales-transposed"},
                               {"scales written linear", "scales-not-swizzled"},
                               {"scales read linear", "scales-read-row-by-row"},
                               {"nibbles swapped where read", "nibbles-exchanged"},
                               {"nibbles swapped where written", "neighbours-exchanged"},
                               {"truncation instead of rounding", "truncated"},
                               {"extra rounding", "through-bf16"},
                               {"missing rounding", "scale-not-rounded"},
                               {"rounding in another place", "other-recipe"},
                               {"accumulation in bf16", "partials-rounded"},
                               {"fp16 overflow", "through-f16"},
                               {"saturate instead of NaN", "saturated-nan"},
                               {"rope pairs", "pairs-for-halves"},
                               {"rope sign", "sine-negated"},
                               {"cos and sin swapped", "cos-and-sin-exchanged"},
                               {"page index off by one", "index-off-by-one"},
                               {"causal off by one", "length-one-less"},
                               {"base of a log-sum-exp read", "logarithm-misread"},
                               {"base of a log-sum-exp written", "other-logarithm"},
                               {"softmax scale of 576 instead of 192", "constant-of-other-width"},
                               {"gate and up swapped", "operand-halves-exchanged"},
                               {"missed expert", "expert-missed"},
                               {"duplicated expert", "expert-duplicated"},
                               {"weight not renormalized", "weights-not-renormalized"},
                               {"routed scaling twice", "constant-twice"},
                               {"bias used as weight", "bias-in-weights"},
                               {"tie to the higher index", "ties-to-the-higher-index"},
                               {"stale padding", "length-one-more"},
                               {"unwritten tail", "tail-unwritten"},
                               {"one wrong head", "one-wrong-head"},
                               {"one wrong row", "one-wrong-row"},
                               {"race-like sporadic elements", "sporadically-stale"},
                               {"NaN in place of zero", "nan-for-zero"},
                               {"zeros", "zeros"},
                               {"half scale", "half-scale"}};
  const std::set<std::string_view> caught = caught_kinds(
      [&](const Fault& fault) { return std::any_of(all.begin(), all.end(), [&](const Known& known) { return known.id == fault.id; }); });
  for (const Known& known : all) EXPECT_TRUE(caught.count(known.id)) << known.what << ": " << known.id;
}

/// What golden mode meets on its way is where the mistake can be made, whether or not it shows behind a rounding to a few bits.
TEST(Faults, InsideOfSharedFunctionsApplyWhereGoldenModeMeetsThem) {
  struct Place {
    const char *line, *id;
    bool applies;
  };
  for (const Place& p :
       {Place{"silu_and_mul_scaled_fp4_grouped_quant L=2 M=5 K=32", "sigmoid-from-tanh", true},
        {"silu_mul_static_tensorwise_quant_for_cutlass_moe R=6 N=256", "sigmoid-from-tanh", true},
        {"cutlass_fused_moe T=5 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64", "sigmoid-from-tanh", true},
        {"select_experts T=4 E=48 --with correction_bias --attr top_k=4 --attr scoring_func=sigmoid", "sigmoid-from-tanh", true},
        {"select_experts T=4 E=48 --attr top_k=4 --attr scoring_func=softmax", "sigmoid-from-tanh", false},
        {"topk_softmax T=3 E=64 topk=4", "exponentials-unshifted", true},
        {"linear T=4 K=64 N=32", "sigmoid-from-tanh", false},
        {"context_attention_fwd T=9 N=4 Nk=2 D=128 B=2", "attention-sums-narrow", true},
        {"merge_state T=3 N=5 D=24", "attention-sums-narrow", false}}) {
    const CaseLine line = parse_case_line(p.line);
    const Op& op = registry().at(line.op);
    const Arguments inputs = generate(line);
    const GoldenRun golden = run_golden(op, inputs, one_thread());
    const auto all = placements(FaultCase{op, inputs, golden, one_thread()}, Strikes::call);
    EXPECT_EQ(std::any_of(all.begin(), all.end(), [&](const Placed& placed) { return placed.fault->id == p.id; }), p.applies)
        << p.line << " " << p.id;
  }
}

TEST(Faults, StrikePagesLengthsAndTheScaleOfAttention) {
  const Audit& audit = audit_of("trtllm_batch_decode_with_kv_cache_mla B=2 Q=1 N=2 pages=4 P=32 W=2 --attr bmm1_scale=0.05");
  std::set<std::pair<std::string_view, std::string>> caught;
  for (const Injection& injection : audit.injections)
    if (injection.caught == Caught::by_judge) caught.emplace(injection.fault->id, injection.site);
  for (const auto& [fault, site] : {std::pair{"index-off-by-one", "block_tables"},
                                    {"length-one-less", "seq_lens"},
                                    {"length-one-more", "seq_lens"},
                                    {"constant-of-other-width", "bmm1_scale"}})
    EXPECT_TRUE(caught.count({fault, site})) << fault << " in " << site;
}

TEST(Faults, OfAnOpsOwnKernelBelongToThatOp) {
  for (const char* text : lines) {
    const CaseLine line = parse_case_line(text);
    const Op& op = registry().at(line.op);
    const Arguments inputs = generate(line);
    const GoldenRun golden = run_golden(op, inputs, one_thread());
    const std::vector<KernelMistake> own = op.mistakes();
    for (const Placed& placed : placements(FaultCase{op, inputs, golden, one_thread()}, Strikes::kernel))
      EXPECT_TRUE(std::any_of(own.begin(), own.end(), [&](const KernelMistake& m) { return m.id == placed.fault->id; })) << text;
  }
  const Op& op = registry().at("rmsnorm");
  Arguments arguments = generate(parse_case_line("rmsnorm T=1 H=8"));
  Reference reference;
  EXPECT_THROW(op.mistaken_reference("bias-in-weights", arguments, one_thread(), reference), Error);
}

/// For each of the lines.
class FaultsOn : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Lines, FaultsOn, testing::ValuesIn(lines), [](const auto& test) {
  const std::string line = test.param;
  return line.substr(0, line.find(' ')) + "_" + std::to_string(test.index);
});

TEST_P(FaultsOn, NoGrossOnePasses) {
  for (const Injection& injection : audit_of(GetParam()).injections)
    EXPECT_FALSE(injection.vacuous()) << GetParam() << ": " << injection.fault->id << " in " << injection.site;
}

TEST(Faults, SpoilACopyAndNeverTheCase) {
  const CaseLine line = parse_case_line("moe_fused_gate T=4 E=64 --attr num_expert_group=8 --attr topk_group=4 --attr topk=6");
  const Arguments inputs = generate(line), again = generate(line);
  const Op& op = registry().at(line.op);
  const GoldenRun golden = run_golden(op, inputs, one_thread()), fresh = run_golden(op, again, one_thread());
  const FaultCase call{op, inputs, golden, one_thread()};
  for (const Strikes strikes : {Strikes::output, Strikes::input, Strikes::attribute, Strikes::call, Strikes::kernel})
    for (const Placed& placed : placements(call, strikes)) {
      try {
        restored(placed, inject(placed));
      } catch (const Error&) {
      }
    }
  const auto same = [](const auto& a, const auto& b) {
    for (std::size_t k = 0; k < a.size(); ++k)
      for (std::int64_t i = 0; i < a[k].second.elements(); ++i)
        if (quant::get_bits(a[k].second, i) != quant::get_bits(b[k].second, i)) return false;
    return a.size() == b.size();
  };
  EXPECT_TRUE(same(inputs.tensors, again.tensors));
  EXPECT_TRUE(same(golden.outputs, fresh.outputs));
}

TEST(Audit, WhatChangesNothingIsNotCounted) {
  // No output of a norm of finite rows is infinite, and position 0 for all is what a table of one row gives anyway.
  const Audit audit = audit_case(parse_case_line("rmsnorm T=2 H=16"), one_thread());
  int idle = 0;
  for (const Injection& injection : audit.injections) {
    if (injection.fault->id == "saturated-infinity") EXPECT_EQ(injection.caught, Caught::no_change);
    idle += injection.counts() ? 0 : 1;
  }
  EXPECT_GT(idle, 0);
  EXPECT_EQ(audit.injected() + idle, static_cast<int>(audit.injections.size()));
  EXPECT_EQ(audit.injected(), audit.caught() + audit.within() + audit.vacuous());
}

TEST(Audit, CallsThatTheOpRefusesAreNotCounted) {
  // Half of one group is none.
  const Audit audit =
      audit_case(parse_case_line("moe_fused_gate T=2 E=32 --attr num_expert_group=2 --attr topk_group=2 --attr topk=4"), one_thread());
  bool refused = false;
  for (const Injection& injection : audit.injections)
    refused = refused || (injection.fault->id == "count-one-more" && injection.site == "topk_group" && injection.caught == Caught::refused);
  EXPECT_TRUE(refused);
}

TEST(Audit, AGrossFaultThatPassesMakesACheckVacuousAndAFineOneDoesNot) {
  Audit audit;
  for (const std::string_view id : {"zeros", "truncated"})
    for (const Fault& fault : faults())
      if (fault.id == id) audit.injections.push_back({&fault, "y", "some case", Caught::within});
  EXPECT_TRUE(audit.injections[0].vacuous());
  EXPECT_FALSE(audit.injections[1].vacuous());
  EXPECT_EQ(audit.injected(), 2);
  EXPECT_EQ(audit.vacuous(), 1);
  EXPECT_EQ(audit.within(), 1);
}

const Injection* find(const Audit& audit, std::string_view fault) {
  for (const Injection& injection : audit.injections)
    if (injection.fault->id == fault) return &injection;
  return nullptr;
}

TEST(Customary, CosineSimilarityMissesHalfOfEverything) {
  const Injection* half = find(audit_of("bmm_fp8 L=2 M=5 N=32 K=64 --dialect trtllm"), "half-scale");
  EXPECT_EQ(half->caught, Caught::by_judge);
  EXPECT_FALSE(half->customary);
}

TEST(Customary, ZerosAreNoticedByEveryRecordedCheckOfAFloatOutput) {
  for (const char* line : {lines[0], lines[2], lines[3], lines[5], lines[10], lines[11]})
    EXPECT_TRUE(find(audit_of(line), "zeros")->customary) << line;
}

TEST(Customary, ARoundTripDoesNotLookAtTheExperts) {
  // Ids that are off by one expert still come home, if offsets are not looked at: here they are, so the check notices.
  const Audit& audit = audit_of("prepare_moe_input M=9 topk=3 --attr num_experts=4 --attr n=8 --attr k=16 --attr blockscale_offsets=true");
  for (const Injection& injection : audit.injections)
    if (injection.site == "problem_sizes1" && injection.counts()) EXPECT_FALSE(injection.customary) << "upstream's test does not read them";
}

TEST(Customary, GoldenItselfPassesEveryCheck) {
  for (const char* text : lines) {
    const CaseLine line = parse_case_line(text);
    const Op& op = registry().at(line.op);
    const GoldenRun golden = run_golden(op, generate(line), one_thread());
    EXPECT_TRUE(customary_pass(op, golden, golden.outputs)) << text;
  }
}

TEST(Customary, RecordedChecksNameTheirSourceAndAnArgument) {
  for (const auto& op : registry().all())
    for (const Customary& check : op->customary()) {
      EXPECT_FALSE(check.source.empty()) << op->name();
      if (check.output != "*") EXPECT_NE(op->schema().find_tensor(check.output), nullptr) << op->name() << " " << check.output;
    }
}

TEST(Customary, AnOpWithoutARecordedTestGetsTheFrameworksDefaults) {
  const Op& without = registry().at("linear");
  ASSERT_TRUE(without.customary().empty());
  EXPECT_EQ(customary_check(without, "output", DType::bf16).rtol, 1.6e-2);
  EXPECT_EQ(customary_check(without, "output", DType::i32).atol, 0);
  const Op& rmsnorm = registry().at("rmsnorm");
  EXPECT_EQ(customary_check(rmsnorm, "output", DType::bf16).rtol, 1.6e-2) << "upstream's test runs f16 alone";
  EXPECT_EQ(customary_check(rmsnorm, "output", DType::f16).rtol, 1e-3);
}

}  // namespace
}  // namespace dodona::oracle
