// A layer with sparse attention: the same as a dense one up to 2048 tokens, and what must not matter beyond.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "helpers.h"
#include "model/run.h"
#include "model/weights/tensor_list.h"
#include "quant/e4m3.h"
#include "quant/half.h"

namespace dodona::model {
namespace {

using testing::expect_error;

LayerRequest request(const char* preset_name, std::vector<std::int64_t> lengths, int threads = 2, std::uint64_t page_seed = 0) {
  LayerRequest request{.config = preset(preset_name), .weights = {}, .setting = {.layer = 1}, .lengths = std::move(lengths), .seed = 3};
  request.page_seed = page_seed;
  request.exec.threads = threads;
  return request;
}
std::string digest(const LayerRequest& request) {
  return digest_of(LayerRun(request).run().output);
}
const OpRecord* find(const std::vector<OpRecord>& records, const char* op) {
  const auto found = std::find_if(records.begin(), records.end(), [&](const OpRecord& record) { return record.op == op; });
  return found == records.end() ? nullptr : &*found;
}

TEST(SparseLayer, UpTo2048TokensItIsTheDenseLayer) {
  EXPECT_EQ(digest(request("tiny-v32", {2048, 1, 700})), digest(request("tiny", {2048, 1, 700})));
}

TEST(SparseLayer, BeyondThatItAttendsToLess) {
  EXPECT_NE(digest(request("tiny-v32", {2500})), digest(request("tiny", {2500})));
}

TEST(SparseLayer, NeitherPagesNorThreadsMatter) {
  const std::string plain = digest(request("tiny-v32", {2500, 30}));
  EXPECT_EQ(digest(request("tiny-v32", {2500, 30}, 1)), plain);
  EXPECT_EQ(digest(request("tiny-v32", {2500, 30}, 2, 9)), plain);
}

TEST(SparseLayer, RunsAgainWithTheSameResult) {
  LayerRun run(request("tiny-v32", {2100}));
  const std::string first = digest_of(run.run().output);
  EXPECT_EQ(digest_of(run.run().output), first);
}

Tensor input_of(const LayerRun& run, const char* wanted) {
  for (const auto& [name, tensor] : run.inputs())
    if (name == wanted) return tensor;
  return {};
}

TEST(SparseLayer, ReadsTheIndexersKeysAsAnInput) {
  LayerRun run(request("tiny-v32", {2500, 30}));
  const Tensor keys = input_of(run, "index_k");
  ASSERT_EQ(keys.shape(), Dims({2, 2500, 132}));
  const std::string plain = digest_of(run.run().output);
  // Others choose otherwise, and the same ones again bring back what was.
  const Tensor others = keys.clone();
  for (std::int64_t i = 0; i < 132 * 1000; ++i) others.as<std::uint8_t>()[i] = keys.as<const std::uint8_t>()[i + 132 * 1000];
  run.replace_input("index_k", others, "the test");
  EXPECT_EQ(std::memcmp(input_of(run, "index_k").data(), others.data(), 132 * 2499), 0);
  EXPECT_NE(digest_of(run.run().output), plain);
  run.replace_input("index_k", keys, "the test");
  EXPECT_EQ(digest_of(run.run().output), plain);
}

TEST(SparseLayer, TheIndexerIsAStepOfTheTraceAndOfThePlan) {
  const LayerRequest sparse = request("tiny-v32", {2100});
  const auto result = LayerRun(sparse).run();
  const OpRecord* const indexer = find(result.records, "self.indexer()");
  ASSERT_NE(indexer, nullptr);
  EXPECT_EQ(indexer->shapes, "x:[B, 256], q_lora:[B, 192] -> [B, 2048]");
  for (const char* kernel : {"hadamard_transform", "act_quant", "fp8_paged_mqa_logits", "fast_topk_transform_fused"})
    EXPECT_NE(indexer->kernels.find(kernel), std::string::npos) << kernel;
  const Plan plan = plan_layer(sparse);
  ASSERT_NE(find(plan.ops, "self.indexer()"), nullptr);
  EXPECT_EQ(find(plan.ops, "self.indexer()")->work.bytes, indexer->work.bytes);
  EXPECT_GT(plan.cache_bytes, plan_layer(request("tiny", {2100})).cache_bytes);
}

// ---- rows of fp8 with scales

LayerRequest of_scaled_rows(LayerRequest request) {
  request.setting.kv_cache = KvCacheType::e4m3;
  return request;
}

/// A row of 656 bytes, written out: 512 codes, 4 scales, which FlashMLA rounds to bf16, 64 elements of bf16.
void decode_row(const std::byte* bytes, std::uint16_t* out) {
  for (int i = 0; i < 512; ++i) {
    float scale = 0;
    std::memcpy(&scale, bytes + 512 + i / 128 * 4, 4);
    scale = quant::bf16_to_f32(quant::f32_to_bf16(scale));
    out[i] = quant::f32_to_bf16(quant::e4m3_to_f32(static_cast<std::uint8_t>(bytes[i])) * scale);
  }
  std::memcpy(out + 512, bytes + 528, 128);
}

Tensor attended(LayerRun& run) {
  Tensor out;
  run.run([&](const OpRecord& record, const NamedTensors& outputs) {
    if (record.op == "self.attn_mqa()") out = outputs.front().second.clone();
  });
  return out;
}

TEST(SparseLayer, RowsOfFp8AreAttendedToAsTheNumbersThatTheyStandFor) {
  const LayerRequest bf16 = request("tiny-v32", {2100});
  LayerRun scaled(of_scaled_rows(bf16)), plain(bf16);
  Tensor bytes, numbers;
  for (const auto& [name, tensor] : scaled.inputs())
    if (name == "kv_cache") bytes = tensor;
  for (const auto& [name, tensor] : plain.inputs())
    if (name == "kv_cache") numbers = tensor;
  ASSERT_EQ(bytes.size(2), 656);
  for (std::int64_t i = 0; i < 2099; ++i) decode_row(bytes.as<std::byte>() + i * 656, numbers.as<std::uint16_t>() + i * 576);
  const Tensor unlike = attended(plain);
  plain.replace_input("kv_cache", numbers, "the test");
  const Tensor a = attended(scaled), b = attended(plain);
  const auto distance = [&](const Tensor& x, const Tensor& y) {
    double difference = 0, norm = 0;
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      const double u = quant::bf16_to_f32(x.as<std::uint16_t>()[i]), v = quant::bf16_to_f32(y.as<std::uint16_t>()[i]);
      difference += (u - v) * (u - v), norm += v * v;
    }
    return std::sqrt(difference / norm);
  };
  // The new token's own row is rounded in the one and not in the other; rows that were not made for these numbers are much farther off.
  EXPECT_LT(distance(a, b), 0.005);
  EXPECT_GT(distance(a, unlike), 0.015);
}

TEST(SparseLayer, RowsOfFp8DependNeitherOnPagesNorOnThreads) {
  const std::string plain = digest(of_scaled_rows(request("tiny-v32", {2500, 30})));
  EXPECT_EQ(digest(of_scaled_rows(request("tiny-v32", {2500, 30}, 1))), plain);
  EXPECT_EQ(digest(of_scaled_rows(request("tiny-v32", {2500, 30}, 2, 9))), plain);
  EXPECT_NE(digest(request("tiny-v32", {2500, 30})), plain);
}

TEST(SparseLayer, RowsOfFp8AreMadeAndReadByTheirKernels) {
  const LayerRequest scaled = of_scaled_rows(request("tiny-v32", {2100, 5}));
  const auto result = LayerRun(scaled).run();
  EXPECT_EQ(find(result.records, "set_mla_kv_buffer()")->kernels, "quantize_k_cache + set_mla_kv_buffer");
  EXPECT_NE(find(result.records, "self.attn_mqa()")->kernels.find("flash_mla_sparse_decode"), std::string::npos);
  const Plan plan = plan_layer(scaled);
  EXPECT_EQ(find(plan.ops, "self.attn_mqa()")->work.bytes, find(result.records, "self.attn_mqa()")->work.bytes);
  EXPECT_EQ(plan.cache_bytes, 18 * 128 * (656.0 + 132));
}

/// With the cache in bf16 and in scaled rows of fp8 by FlashMLA's two kernels; sgl-kernel's for SM100 has no bits of an H100, and beyond
/// 2048 tokens an fp32 product of cuBLAS's decides which are attended to.
TEST(SparseLayer, BehindFlashMlaItRunsInHopperModeWhileAllTokensAreChosen) {
  const auto in_mode = [](Mode mode, const std::string& backend, KvCacheType cache, std::int64_t tokens) {
    LayerRequest step = request("tiny-fp8", {tokens, 5});
    const ModelConfig sparse = preset("tiny-v32");
    step.config.index_n_heads = sparse.index_n_heads, step.config.index_head_dim = sparse.index_head_dim;
    step.config.index_topk = sparse.index_topk;
    step.setting.backend = backend;
    step.setting.kv_cache = cache;
    step.setting.experts = "triton";
    step.exec.mode = mode;
    return step;
  };
  for (const auto& [cache, kernel] :
       {std::pair{KvCacheType::activations, "flash_mla_sparse_fwd"}, {KvCacheType::e4m3, "flash_mla_sparse_decode"}}) {
    LayerRequest alone = in_mode(Mode::hopper, "flashmla", cache, 300);
    const auto hopper = LayerRun(alone).run();
    alone.exec.threads = 1;
    EXPECT_EQ(digest(alone), digest_of(hopper.output));
    EXPECT_EQ(find(hopper.records, "self.attn_mqa()")->not_finite, 0);
    EXPECT_NE(find(hopper.records, "self.attn_mqa()")->kernels.find(kernel), std::string::npos);
    EXPECT_NE(find(hopper.records, "self.indexer()")->kernels.find("fp8_gemm_nt"), std::string::npos) << "wk's bits are those of every run";
  }
  EXPECT_NO_THROW(plan_layer(in_mode(Mode::hopper, "flashmla", KvCacheType::e4m3, 2048)));
  LayerRequest full = in_mode(Mode::hopper, "flashmla", KvCacheType::e4m3, 5000);
  full.config = preset("v3.2"), full.setting.layer = 3;
  EXPECT_NO_THROW(plan_layer(full)) << "of V3.2's size cuBLAS's order is known";
  expect_error([&] { plan_layer(in_mode(Mode::hopper, "flashmla", KvCacheType::e4m3, 2049)); }, ErrorCode::unsupported,
               {"mode is hopper", "linear in fp32, by cuBLAS", "weights_proj of self.indexer()", "expected fast or golden for this layer"});
  expect_error([&] { plan_layer(in_mode(Mode::hopper, "", KvCacheType::activations, 300)); }, ErrorCode::unsupported,
               {"mode is hopper", "do not have: cutlass_mla_decode (self.attn_mqa())"});
}

TEST(SparseLayer, AtFullSizeItIsPlannedWithTheIndexersWeights) {
  const Plan plan = plan_layer(request("deepseek_v32", {100000}));
  ASSERT_NE(find(plan.ops, "self.indexer()"), nullptr);
  EXPECT_EQ(find(plan.ops, "self.indexer()")->work.weight_bytes, 2.0 * (64 * 128 * 1536 + 128 * 7168 + 64 * 7168));
  // Attention reads 2048 rows of the cache, the dense layer all of them.
  EXPECT_LT(find(plan.ops, "self.attn_mqa()")->work.bytes,
            find(plan_layer(request("r1-nvfp4", {100000})).ops, "self.attn_mqa()")->work.bytes / 10);
}

TEST(SparseLayer, AnIndexerNeedsItsRoundingsAndItsSizes) {
  LayerRequest off = request("tiny-v32", {3});
  off.setting.rounding = Rounding::off;
  expect_error([&] { LayerRun run(off); }, ErrorCode::unsupported, {"rounding", "sparse attention"});
  ModelConfig config = preset("tiny-v32");
  config.index_topk = 1024;
  expect_error([&] { config.validate(); }, ErrorCode::bad_value, {"index_topk is 1024, expected 2048"});
  config = preset("tiny-v32");
  config.index_n_heads = 12;
  expect_error([&] { config.validate(); }, ErrorCode::bad_value, {"index_n_heads is 12"});
}

TEST(SparseLayer, ItsTensorsStandInTheCheckpoint) {
  const ModelConfig config = preset("deepseek_v32");
  const auto shape_of = [&](const std::string& name) {
    const auto info = find_tensor_info(config, "model.layers.5.self_attn.indexer." + name);
    return info ? to_string(info->shape) : "none";
  };
  EXPECT_EQ(shape_of("wq_b.weight"), "[8192, 1536]");
  EXPECT_EQ(shape_of("wk.weight"), "[128, 7168]");
  EXPECT_EQ(shape_of("k_norm.weight"), "[128]");
  EXPECT_EQ(shape_of("k_norm.bias"), "[128]");
  EXPECT_EQ(shape_of("weights_proj.weight"), "[64, 7168]");
  EXPECT_FALSE(find_tensor_info(preset("r1-nvfp4"), "model.layers.5.self_attn.indexer.wk.weight").has_value());
}

}  // namespace
}  // namespace dodona::model
