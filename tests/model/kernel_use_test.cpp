// Kernels chosen by name, and caches of fp8.
#include <cmath>

#include "helpers.h"
#include "model/layer/kernel_use.h"
#include "model/run.h"
#include "quant/e4m3.h"

namespace dodona::model {
namespace {

using testing::expect_error;

struct Asked {
  std::string preset = "tiny";
  std::int64_t layer = 1;
  std::vector<std::string> uses = {};
  std::string backend = "";
  KvCacheType cache = KvCacheType::activations;
  std::vector<std::int64_t> lengths{20, 7}, fresh = {};
  Forward forward = Forward::decode;
  AttentionPath path = AttentionPath::by_backend;
  Rounding rounding = Rounding::bf16;
};

LayerRequest request_of(const Asked& a) {
  LayerRequest r;
  r.config = preset(a.preset);
  r.setting.layer = a.layer;
  r.setting.backend = a.backend;
  r.setting.kv_cache = a.cache;
  r.setting.path = a.path;
  r.setting.rounding = a.rounding;
  r.lengths = a.lengths;
  r.new_tokens = a.fresh;
  r.forward = a.forward;
  r.exec.threads = 1;
  const Batch batch = batch_of(r);
  std::vector<KernelUse> uses;
  for (const std::string& use : a.uses) uses.push_back(parse_use(use));
  apply_uses(r.config, r.setting, uses, {.batch = &batch});
  return r;
}

std::string kernels_of(const LayerRun::Result& run, const std::string& op) {
  for (const OpRecord& record : run.records)
    if (record.op == op) return record.kernels;
  return "";
}

std::vector<float> values(const Tensor& tensor) {
  std::vector<float> all(static_cast<std::size_t>(tensor.elements()));
  quant::to_f32(tensor.dtype(), tensor.data(), all.data(), tensor.elements());
  return all;
}
double distance(const Tensor& a, const Tensor& b) {
  const std::vector<float> x = values(a), y = values(b);
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    difference += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
    size += std::pow(static_cast<double>(y[i]), 2);
  }
  return std::sqrt(difference / size);
}

TEST(KernelUse, NamesAreTheGraphsAndWrongOnesAreAnsweredByThoseThatThereAre) {
  EXPECT_EQ(parse_use("self.q_b_proj()=linear").op, "q_b_proj");
  EXPECT_EQ(parse_use("shared_experts=int8_scaled_mm").op, "shared_experts");
  EXPECT_EQ(parse_use("shared_experts=gelu_and_mul").op, "shared_experts.act_fn");
  EXPECT_EQ(parse_use("attn_mha=merge_state").op, "merge_state_v2");
  for (const char* text : {"", "q_b_proj", "=linear", "q_b_proj="})
    expect_error([&] { parse_use(text); }, ErrorCode::bad_option, {"--use", "OP=KERNEL", text});
  expect_error([] { parse_use("q_c_proj=linear"); }, ErrorCode::bad_option, {"q_c_proj", "fused_qkv_a_proj_with_mqa", "experts"});
  expect_error([] { parse_use("q_b_proj=rmsnorm"); }, ErrorCode::bad_option, {"q_b_proj of 'rmsnorm'", "int8_scaled_mm", "linear"});
  expect_error([] { parse_use("shared_experts=rmsnorm"); }, ErrorCode::bad_option, {"int8_scaled_mm", "gelu_tanh_and_mul"});
}

TEST(KernelUse, WhatCannotBeIsRefusedWithItsReasonAndWhatIsPossible) {
  const auto refuses = [](const Asked& a, const std::vector<std::string>& parts) {
    expect_error([&] { LayerRun run(request_of(a)); }, ErrorCode::bad_option, parts);
  };
  refuses({.uses = {"q_b_proj=fp8_blockwise_scaled_mm"}}, {"K is 192", "multiple of 128", "possible here: int8_scaled_mm"});
  refuses({.uses = {"q_proj=linear"}}, {"layer 1 of tiny has none", "possible here: none"});
  refuses({.uses = {"kv_a_proj_with_mqa=linear"}}, {"a part of fused_qkv_a_proj_with_mqa"});
  refuses({.uses = {"gate_up_proj=linear"}}, {"has none"});
  refuses({.layer = 0, .uses = {"topk=topk_softmax"}}, {"layer 0 is dense"});
  refuses({.uses = {"act_fn=gelu_and_mul"}}, {"mixture of experts"});
  refuses({.uses = {"fused_qkv_a_proj_with_mqa=dsv3_fused_a_gemm"}}, {"DeepSeek V3's sizes"});
  refuses({.layer = 0, .uses = {"input_layernorm=fused_add_rmsnorm"}}, {"no residual", "possible here: rmsnorm"});
  refuses({.uses = {"input_layernorm=trtllm_allreduce_fusion"}}, {"a layer alone is given a sum", "generate --tp"});
  refuses({.uses = {"rotary_emb=mla_rope_quantize_fp8"}}, {"fp8_e4m3", "trtllm_mla", "rotary_embedding"});
  refuses({.uses = {"topk=kimi_k2_moe_fused_gate"}}, {"comes to moe_fused_gate"});
  refuses({.uses = {"_concat_and_cast_mha_k=concat_mla_k"}, .path = AttentionPath::mha_chunked}, {"128 heads"});
  refuses({.uses = {"q_b_proj=int8_scaled_mm"}, .rounding = Rounding::off}, {"roundings are off", "possible here: linear"});
  refuses({.uses = {"attn_mqa=decode_attention_fwd"}, .fresh = {4, 4}, .forward = Forward::verify}, {"one new token"});
  refuses({.uses = {"q_b_proj=linear", "q_b_proj=int8_scaled_mm"}}, {"of linear and of int8_scaled_mm"});
  refuses({.uses = {"kv_b_proj=linear"}}, {"nothing runs kv_b_proj"});
  refuses({.uses = {"attn_mha=extend_attention_fwd"}, .path = AttentionPath::mha_chunked}, {"requests have a prefix"});
  refuses({.uses = {"attn_mha=trtllm_ragged_attention_deepseek"}}, {"nothing runs attn_mha", "path mla", "possible here: none"});
}

TEST(KernelUse, NormsThatAddUpTermsAreChosenForWholeModelsOfRanksAlone) {
  ModelConfig config = preset("tiny");
  for (const char* const norm : {"input_layernorm", "post_attention_layernorm"}) {
    const std::vector<KernelUse> uses{{norm, "trtllm_allreduce_fusion"}};
    const auto applied = [&](std::int64_t tensor) {
      LayerSetting setting;
      apply_uses(config, setting, uses, {.any_layer = true, .tensor = tensor});
      return setting;
    };
    EXPECT_TRUE(reduces_in_norm(applied(2).use, norm));
    expect_error([&] { applied(1); }, ErrorCode::bad_option, {norm, "2, 4, 8 or 16 ranks", "here 1 is"});
    expect_error([&] { applied(6); }, ErrorCode::bad_option, {norm, "here 6 are"});
  }
}

TEST(KernelUse, OfACheckpointTheStoredFormDecides) {
  ModelConfig config = preset("tiny-fp8");
  LayerSetting setting{.layer = 1};
  const std::vector<KernelUse> use{parse_use("q_b_proj=int8_scaled_mm")};
  expect_error([&] { apply_uses(config, setting, use, {.stored = true}); }, ErrorCode::bad_option,
               {"self_attn.q_b_proj is stored as fp8-block", "possible here: fp8_blockwise_scaled_mm, fp8_gemm_nt"});
  const std::vector<KernelUse> other{parse_use("q_b_proj=fp8_gemm_nt")};
  apply_uses(config, setting, other, {.stored = true});
  EXPECT_EQ(config.form_of("model.layers.1.self_attn.q_b_proj"), WeightForm::fp8_block);
}

TEST(KernelUse, OtherOpsKeepTheirKernelsAndModulesTheirForms) {
  const LayerRequest r = request_of({.preset = "tiny-fp8", .uses = {"q_b_proj=int8_scaled_mm"}});
  EXPECT_EQ(r.config.form_of("model.layers.1.self_attn.q_b_proj"), WeightForm::int8);
  EXPECT_EQ(r.config.form_of("model.layers.1.self_attn.o_proj"), WeightForm::fp8_block);
  EXPECT_EQ(r.config.form_of("model.layers.1.mlp.experts.3.up_proj"), WeightForm::fp8_block);
  LayerRun layer(r), plain(request_of({.preset = "tiny-fp8"}));
  const LayerRun::Result run = layer.run(), other = plain.run();
  EXPECT_EQ(kernels_of(run, "self.q_b_proj()"), "per_token_quant_int8 + int8_scaled_mm");
  EXPECT_EQ(kernels_of(run, "self.o_proj()"), kernels_of(other, "self.o_proj()"));
  EXPECT_NE(digest_of(run.output), digest_of(other.output));
}

TEST(KernelUse, TheKernelThatRunsAnywayChangesNothing) {
  const std::string digest = digest_of(LayerRun(request_of({})).run().output);
  for (const char* use :
       {"fused_qkv_a_proj_with_mqa=linear", "o_proj=cutlass_scaled_fp4_mm", "input_layernorm=fused_add_rmsnorm", "gate=linear",
        "rotary_emb=apply_rope_with_cos_sin_cache_inplace", "attn_mqa=cutlass_mla_decode", "topk=moe_fused_gate", "bmm_fp8=bmm",
        "experts=cutlass_fp4_group_mm", "shared_experts=silu_and_mul", "attn_mqa=cutlass_mla_get_workspace_size"})
    EXPECT_EQ(digest_of(LayerRun(request_of({.uses = {use}})).run().output), digest) << use;
}

/// What attention gives before o_proj, which quantizes, and before a router that would go another way.
Tensor attended(const Asked& asked) {
  LayerRun layer(request_of(asked));
  Tensor last;
  layer.run([&](const OpRecord& record, const NamedTensors& outputs) {
    if (record.op == "self.attn_mha()" || record.op == "merge_state_v2()" || record.note == "attn_output * w_vc")
      last = outputs.front().second.clone();
  });
  return last;
}

/// Another kernel of the same numbers gives nearly the same: a few roundings of bf16 apart.
TEST(KernelUse, AnotherKernelOfTheSameNumbersGivesNearlyTheSame) {
  const Tensor plain = attended({});
  for (const char* use : {"input_layernorm=rmsnorm", "rotary_emb=rotary_embedding", "attn_mqa=trtllm_batch_decode_with_kv_cache_mla",
                          "attn_mqa=flash_mla_with_kvcache", "attn_mqa=batch_mla_paged_attention", "attn_mqa=decode_attention_fwd",
                          "attn_mqa=xqa_batch_decode_with_kv_cache_mla", "attn_mqa=decode_attention_fwd_grouped_rope"})
    EXPECT_LT(distance(attended({.uses = {use}}), plain), 0.03) << use;
  Asked chunks{.lengths = {20, 9}, .fresh = {3, 3}, .forward = Forward::extend, .path = AttentionPath::mha_chunked};
  const Tensor merged = attended(chunks);
  for (const char* use : {"attn_mha=merge_state", "attn_mha=batch_prefill_with_ragged_kv_cache"}) {
    chunks.uses = {use};
    EXPECT_LT(distance(attended(chunks), merged), 0.03) << use;
  }
}

TEST(KernelUse, AnotherKernelOfTheSameExpertsGivesNearlyTheSame) {
  const auto hidden = [](const char* preset, const std::string& kernel) {
    return LayerRun(request_of({.preset = preset, .uses = {"experts=" + kernel}})).run().output.hidden;
  };
  // With one input scale for all experts as with each expert's own, which are equal here; what is quantized between them is rounded before
  // or not.
  EXPECT_LT(distance(hidden("tiny", "trtllm_fp4_block_scale_moe"), hidden("tiny", "cutlass_fp4_group_mm")), 0.1);
  EXPECT_LT(distance(hidden("tiny-fp8", "es_fp8_blockwise_scaled_grouped_mm"), hidden("tiny-fp8", "fp8_blockwise_scaled_grouped_mm")),
            0.01);
}

TEST(KernelUse, TrtllmsExpertsInBf16AreNearTheOthersOfTheseWeights) {
  const auto hidden = [](const std::string& kernel) {
    LayerRequest r = request_of({.preset = "tiny-fp8"});
    r.config = with_scheme(r.config, scheme_named("bf16"));
    const Batch batch = batch_of(r);
    const std::vector<KernelUse> uses{parse_use("experts=" + kernel)};
    apply_uses(r.config, r.setting, uses, {.batch = &batch});
    return LayerRun(r).run().output.hidden;
  };
  EXPECT_LT(distance(hidden("trtllm_bf16_moe"), hidden("linear")), 0.02);
}

/// Experts one by one, by the product that their form has.
TEST(KernelUse, PlainExpertsOfNvfp4RunThatFormsProduct) {
  LayerRequest r = request_of({});
  const Tensor grouped = LayerRun(r).run().output.hidden;
  r.setting.experts = "plain";
  const LayerRun::Result run = LayerRun(r).run();
  EXPECT_NE(kernels_of(run, "self.experts()").find("cutlass_scaled_fp4_mm"), std::string::npos);
  EXPECT_LT(distance(run.output.hidden, grouped), 0.02);
  const Plan plan = plan_layer(r);
  const auto experts = std::find_if(plan.ops.begin(), plan.ops.end(), [](const OpRecord& op) { return op.op == "self.experts()"; });
  ASSERT_NE(experts, plan.ops.end());
  EXPECT_EQ(experts->kernels, "cutlass_scaled_fp4_mm");
}

TEST(KernelUse, ABackendThatDoesNotTakeTheFormIsAnsweredByThoseThatDo) {
  struct Wrong {
    const char *preset, *scheme, *experts;
    std::int64_t layer;
    ExpertWeights weights;
    std::vector<std::string> parts;
  };
  for (const Wrong& w :
       {Wrong{"tiny-fp8",
              "bf16",
              "cutlass",
              1,
              ExpertWeights::stored,
              {"experts",
               "of layer 1 are bf16, which cutlass does not multiply; expected, as they are stored, one of plain, triton, trtllm, or, as "
               "blocks of fp8 made of that, one of cutlass, triton"}},
        Wrong{"tiny-fp8",
              "fp8-block",
              "plain",
              1,
              ExpertWeights::fp8,
              {"are fp8-block, which plain does not multiply; expected one of cutlass, triton"}},
        Wrong{"tiny",
              "nvfp4",
              "plain",
              1,
              ExpertWeights::fp8,
              {"are nvfp4, which plain does not multiply as blocks of fp8; expected, as they are stored, one of cutlass, plain"}},
        Wrong{"tiny", "nvfp4", "cutlass", 3, ExpertWeights::stored, {"of layer 3 are bf16, which cutlass does not multiply"}}}) {
    LayerRequest r = request_of({.preset = w.preset, .layer = w.layer});
    if (r.config.num_nextn_predict_layers == 0 || w.layer < 3) r.config = with_scheme(preset(w.preset), scheme_named(w.scheme));
    r.setting.experts = w.experts;
    r.setting.expert_weights = w.weights;
    expect_error([&] { plan_layer(r); }, ErrorCode::unsupported, w.parts);
    expect_error([&] { LayerRun run(r); }, ErrorCode::unsupported, w.parts);
  }
}

/// kv_b_proj in rows of fp8 is multiplied by bmm_fp8, whose activations are quantized as on the GPU; its weights by the loader.
TEST(KernelUse, AbsorbedProductsOfFp8HaveAHopperMode) {
  LayerRequest r = request_of({.preset = "tiny-fp8", .backend = "flashmla", .lengths = {9, 9}});
  r.config = with_scheme(r.config, scheme_named("fp8"));
  const auto absorbed = [&](Mode mode) {
    r.exec.mode = mode;
    LayerRun layer(r);
    Tensor queries;
    const LayerRun::Result run = layer.run([&](const OpRecord& record, const NamedTensors& outputs) {
      if (record.note == "q_nope * w_kc") queries = outputs.front().second.clone();
    });
    EXPECT_EQ(kernels_of(run, "bmm_fp8()"), "sgl_per_tensor_quant_fp8 + bmm_fp8");
    return queries;
  };
  // A code here and there falls the other way.
  EXPECT_LT(distance(absorbed(Mode::hopper), absorbed(Mode::fast)), 0.01);
  // Of a prefill nothing runs it.
  r.exec.mode = Mode::hopper, r.forward = Forward::extend, r.new_tokens = {9, 9};
  EXPECT_EQ(kernels_of(LayerRun(r).run(), "bmm_fp8()"), "");
}

/// Before weights are made, and by the plan as by the run.
TEST(KernelUse, SizesThatTheAttentionKernelDoesNotTakeAreAnsweredByThoseThatDo) {
  struct Sizes {
    std::int64_t latent, rope, value;
    Forward forward;
    std::vector<std::string> parts, uses;
  };
  for (const Sizes& s :
       {Sizes{
            512,
            128,
            256,
            Forward::decode,
            {"cutlass_mla_decode takes kv_lora_rank 512 and qk_rope_head_dim 64", "has 512 and 128", "--use attn_mqa=decode_attention_fwd"},
            {"attn_mqa=decode_attention_fwd"}},
        Sizes{256,
              64,
              128,
              Forward::decode,
              {"cutlass_mla_decode takes", "has 256 and 64", "--use attn_mqa=decode_attention_fwd, --use attn_mqa=extend_attention_fwd"},
              {"attn_mqa=decode_attention_fwd", "attn_mqa=extend_attention_fwd"}},
        Sizes{512,
              64,
              64,
              Forward::extend,
              {"trtllm_ragged_attention_deepseek takes qk_nope_head_dim + qk_rope_head_dim and v_head_dim of 192 and 128", "has 192 and 64",
               "them with --use attn_mha=extend_attention_fwd"},
              {"attn_mha=extend_attention_fwd"}},
        Sizes{1024, 64, 128, Forward::decode, {"has 1024 and 64; no other kernel takes these here"}, {}}}) {
    const auto request = [&](const std::string& use) {
      LayerRequest r;
      r.config = preset("tiny");
      r.config.quant = {};
      r.config.kv_lora_rank = s.latent, r.config.qk_rope_head_dim = s.rope, r.config.v_head_dim = s.value;
      r.setting.layer = 0;
      r.lengths = {6}, r.forward = s.forward, r.exec.threads = 1;
      if (s.forward == Forward::extend) r.new_tokens = {6};
      const Batch batch = batch_of(r);
      if (!use.empty()) apply_uses(r.config, r.setting, std::vector<KernelUse>{parse_use(use)}, {.batch = &batch});
      return r;
    };
    expect_error([&] { plan_layer(request("")); }, ErrorCode::unsupported, s.parts);
    expect_error([&] { LayerRun run(request("")); }, ErrorCode::unsupported, s.parts);
    for (const std::string& use : s.uses) EXPECT_FALSE(LayerRun(request(use)).run().records.empty()) << use;
  }
}

// ---- caches of fp8

TEST(Fp8Cache, RowsAreCastAsTheyAreStored) {
  const LayerRequest wide = request_of({.backend = "flashinfer"}),
                     narrow = request_of({.backend = "flashinfer", .cache = KvCacheType::e4m3});
  LayerRun a(wide), b(narrow);
  EXPECT_EQ(plan_layer(narrow).cache_bytes * 2, plan_layer(wide).cache_bytes);
  Tensor bf16, codes;
  for (const auto& [name, tensor] : a.inputs())
    if (name == "kv_cache") bf16 = tensor;
  for (const auto& [name, tensor] : b.inputs())
    if (name == "kv_cache") codes = tensor;
  ASSERT_EQ(codes.dtype(), DType::f8_e4m3);
  EXPECT_LT(distance(codes, bf16), 0.04);  // half a step of three bits
  EXPECT_GT(distance(codes, bf16), 0.01);
}

/// Every backend that reads such a cache, in every phase, is near the same with a cache in bf16, and not equal to it.
TEST(Fp8Cache, BackendsAreNearWhatTheyGiveWithBf16) {
  for (const char* backend : {"trtllm_mla", "flashinfer", "flashmla", "triton"})
    for (const Forward forward : {Forward::decode, Forward::verify, Forward::extend}) {
      SCOPED_TRACE(std::string(backend) + " " + std::to_string(static_cast<int>(forward)));
      Asked a{.backend = backend, .lengths = {40, 27}, .forward = forward};
      a.fresh = forward == Forward::decode ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{4, 4};
      if (forward == Forward::extend && a.backend == "trtllm_mla") a.path = AttentionPath::mha_chunked;
      const Tensor wide = attended(a);
      a.cache = KvCacheType::e4m3;
      const Tensor narrow = attended(a);
      EXPECT_LT(distance(narrow, wide), 0.12);
      EXPECT_GT(distance(narrow, wide), 1e-3);
    }
}

TEST(Fp8Cache, TrtllmQuantizesWhereItRotates) {
  Asked a{.backend = "trtllm_mla", .cache = KvCacheType::e4m3};
  const LayerRun::Result run = LayerRun(request_of(a)).run();
  EXPECT_EQ(kernels_of(run, "self.rotary_emb()"), "mla_rope_quantize_fp8");
  EXPECT_EQ(kernels_of(run, "self.attn_mqa()"), "trtllm_batch_decode_with_kv_cache_mla");
  a.forward = Forward::extend;
  a.fresh = {4, 4};
  EXPECT_EQ(kernels_of(LayerRun(request_of(a)).run(), "self.rotary_emb()"), "apply_rope_with_cos_sin_cache_inplace");
}

TEST(Fp8Cache, WhatCannotReadItIsRefused) {
  const auto refuses = [](Asked a, const std::vector<std::string>& parts) {
    a.cache = KvCacheType::e4m3;
    expect_error(
        [&] {
          LayerRun run(request_of(a));
          run.run();
        },
        ErrorCode::unsupported, parts);
  };
  refuses({}, {"cutlass_mla_decode", "a cache in bf16"});
  refuses({.backend = "fa3"}, {"fa3"});
  refuses({.backend = "flashinfer", .rounding = Rounding::off}, {"roundings are off"});
  refuses({.backend = "triton", .path = AttentionPath::mla_fused_rope}, {"mla-fused-rope"});
}

}  // namespace
}  // namespace dodona::model
