#include "model/weights/synthetic.h"

#include <cmath>
#include <map>

#include "core/random.h"
#include "helpers.h"
#include "model/weights/weights.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/half.h"

namespace dodona::model {
namespace {

using testing::bytes;
using testing::expect_error;

std::unique_ptr<WeightSource> tiny(std::uint64_t seed = 7, const Exec& exec = {}) {
  return synthetic_weights(preset("tiny"), seed, exec);
}

double rms(const Tensor& bf16) {
  double sum = 0;
  for (std::int64_t i = 0; i < bf16.elements(); ++i) {
    const double x = quant::bf16_to_f32(bf16.as<std::uint16_t>()[i]);
    sum += x * x;
  }
  return std::sqrt(sum / static_cast<double>(bf16.elements()));
}

TEST(Synthetic, BytesAreThoseOfTheWrittenFormulas) {
  const auto source = tiny();
  const std::string module = "model.layers.1.mlp.experts.3.up_proj";
  const Tensor weight = source->get(module + ".weight"), scale = source->get(module + ".weight_scale");
  const Tensor plain = source->get("model.layers.1.self_attn.kv_b_proj.weight"),
               norm = source->get("model.layers.1.input_layernorm.weight");
  const Tensor bias = source->get("model.layers.1.mlp.gate.e_score_correction_bias");
  const auto byte = [](const std::string& name, std::uint64_t i) { return word({7, name}, i / 4) >> (i % 4 * 8) & 0xFF; };
  const auto half = [](const std::string& name, std::uint64_t i) {
    return static_cast<float>(static_cast<std::int16_t>(word({7, name}, i / 2) >> (i % 2 * 16)));
  };
  for (const std::uint64_t i : {0, 1, 2, 1023, 16383}) {
    EXPECT_EQ(weight.as<std::uint8_t>()[i], byte(module + ".weight", i)) << i;
    if (i < 2048) EXPECT_EQ(scale.as<std::uint8_t>()[i], 0x68 + byte(module + ".weight_scale", i) % 16) << i;
    const float factor = static_cast<float>(std::sqrt(3.0) / std::sqrt(512.0) / 32768);
    EXPECT_EQ(plain.as<std::uint16_t>()[i], quant::f32_to_bf16(half("model.layers.1.self_attn.kv_b_proj.weight", i) * factor)) << i;
    if (i < 256)
      EXPECT_EQ(norm.as<std::uint16_t>()[i], quant::f32_to_bf16(1 + half("model.layers.1.input_layernorm.weight", i) / 262144)) << i;
  }
  EXPECT_EQ(bias.as<float>()[5],
            static_cast<float>(static_cast<std::int32_t>(word({7, "model.layers.1.mlp.gate.e_score_correction_bias"}, 5))) *
                static_cast<float>(0x1p-31 / 20));
}

TEST(Synthetic, TheSameBytesOnEveryTierAndThreadCount) {
  for (const char* name : {"model.layers.1.self_attn.q_b_proj.weight", "model.layers.1.mlp.experts.3.up_proj.weight", "lm_head.weight",
                           "model.layers.1.mlp.experts.3.up_proj.weight_scale", "model.layers.1.mlp.gate.e_score_correction_bias"}) {
    const std::string expected = bytes(tiny(7, {.threads = 1, .isa = Isa::generic})->get(name));
    for (const Isa isa : available_isas())
      for (const int threads : {1, 3}) EXPECT_TRUE(bytes(tiny(7, {.threads = threads, .isa = isa})->get(name)) == expected) << name;
  }
}

TEST(Synthetic, TensorsOfOtherNamesAndSeedsDiffer) {
  const std::string a = bytes(tiny()->get("model.layers.1.mlp.experts.3.up_proj.weight"));
  EXPECT_TRUE(a != bytes(tiny()->get("model.layers.1.mlp.experts.4.up_proj.weight")));
  EXPECT_TRUE(a != bytes(tiny(8)->get("model.layers.1.mlp.experts.3.up_proj.weight")));
}

TEST(Synthetic, LinearsKeepARmsOfOneUpToTheirGain) {
  const auto source = tiny();
  const std::map<std::string, double> gains{{"self_attn.q_b_proj", 1},
                                            {"self_attn.o_proj", 2},
                                            {"mlp.experts.0.gate_proj", 1},
                                            {"mlp.experts.0.down_proj", 1.7},
                                            {"mlp.gate", 1}};
  for (const auto& [module, gain] : gains) {
    const Linear linear = source->linear("model.layers.1." + module);
    const Tensor dense = dequantize(linear, 2);
    EXPECT_NEAR(rms(dense) * std::sqrt(static_cast<double>(linear.columns)), gain, 0.03 * gain) << module;
  }
}

TEST(Synthetic, ScalesAreOrdinaryPositiveNumbers) {
  const Tensor scale = tiny()->get("model.layers.1.mlp.experts.3.up_proj.weight_scale");
  for (std::int64_t i = 0; i < scale.elements(); ++i) {
    const float value = quant::e4m3_to_f32(scale.as<std::uint8_t>()[i]);
    ASSERT_TRUE(value >= 64 && value <= 240) << value;
  }
}

TEST(Weights, DequantizationIsCodeTimesBlockScaleTimesTensorScale) {
  const Linear linear = tiny()->linear("model.layers.1.mlp.experts.3.up_proj");
  ASSERT_EQ(linear.form, WeightForm::nvfp4);
  EXPECT_EQ(to_string(linear.weight.shape()), "[128, 128]");
  EXPECT_EQ(to_string(linear.weight_scale.shape()), "[128, 16]");
  EXPECT_EQ(linear.bytes(), 128 * 128 + 128 * 16);
  const Tensor dense = dequantize(linear, 1);
  const std::int64_t row = 77, column = 201;
  const unsigned code = linear.weight.as<std::uint8_t>()[row * 128 + column / 2] >> 4;
  const float scale = quant::e4m3_to_f32(linear.weight_scale.as<std::uint8_t>()[row * 16 + column / 16]);
  EXPECT_EQ(dense.as<std::uint16_t>()[row * 256 + column], quant::f32_to_bf16(quant::e2m1_to_f32(code) * scale * linear.weight_scale_2));
}

TEST(Weights, FusedLinearsAreTheRowsOfTheirParts) {
  const auto source = tiny();
  const std::vector<std::string> experts{"model.layers.1.mlp.experts.3.gate_proj", "model.layers.1.mlp.experts.3.up_proj"};
  const Linear gate_up = source->fused(experts);
  EXPECT_EQ(gate_up.rows, 256);
  EXPECT_EQ(bytes(gate_up.weight), bytes(source->linear(experts[0]).weight) + bytes(source->linear(experts[1]).weight));
  EXPECT_EQ(bytes(gate_up.weight_scale), bytes(source->linear(experts[0]).weight_scale) + bytes(source->linear(experts[1]).weight_scale));
  const std::vector<std::string> latents{"model.layers.1.self_attn.q_a_proj", "model.layers.1.self_attn.kv_a_proj_with_mqa"};
  const Linear qkv_a = source->fused(latents);
  EXPECT_EQ(to_string(qkv_a.weight.shape()), "[768, 256]");
  EXPECT_EQ(bytes(qkv_a.weight), bytes(source->linear(latents[0]).weight) + bytes(source->linear(latents[1]).weight));
}

TEST(Weights, WhatCannotBeFusedIsRefused) {
  const auto source = tiny();
  const auto fuse = [&](const std::string& a, const std::string& b) {
    source->fused(std::vector<std::string>{"model.layers.1." + a, "model.layers.1." + b});
  };
  expect_error([&] { fuse("self_attn.q_a_proj", "self_attn.q_b_proj"); }, ErrorCode::bad_shape, {"q_b_proj", "192 columns", "256"});
  expect_error([&] { fuse("self_attn.q_a_proj", "mlp.experts.0.up_proj"); }, ErrorCode::unsupported, {"up_proj", "nvfp4", "bf16"});
}

TEST(Weights, UnknownNamesAreNamed) {
  expect_error([] { tiny()->get("model.layers.1.mlp.experts.16.up_proj.weight"); }, ErrorCode::missing_argument,
               {"model.layers.1.mlp.experts.16.up_proj.weight", "tiny"});
  expect_error([] { tiny()->linear("model.layers.0.mlp.gate"); }, ErrorCode::missing_argument, {"model.layers.0.mlp.gate", "no linear"});
  EXPECT_FALSE(tiny()->has("model.layers.01.input_layernorm.weight"));
  EXPECT_FALSE(tiny()->has("model.layers.1.input_layernorm.weight2"));
  EXPECT_FALSE(tiny()->has(""));
}

TEST(TensorList, EveryListedTensorIsFoundByItsName) {
  const ModelConfig config = preset("tiny");
  std::vector<TensorInfo> all = outer_tensors(config);
  for (std::int64_t layer = 0; layer < config.total_layers(); ++layer)
    for (TensorInfo& info : layer_tensors(config, layer)) all.push_back(std::move(info));
  for (const TensorInfo& info : all) {
    const auto found = find_tensor_info(config, info.name);
    ASSERT_TRUE(found) << info.name;
    EXPECT_TRUE(found->shape == info.shape && found->dtypes == info.dtypes) << info.name;
  }
}

TEST(TensorList, R1HasTheReleasedCheckpointsShapes) {
  const ModelConfig config = preset("r1-nvfp4");
  const auto shape = [&](const std::string& name) {
    const auto info = find_tensor_info(config, name);
    return info ? std::string(safetensors_name(info->dtypes.front())) + " " + to_string(info->shape) : "none";
  };
  EXPECT_EQ(shape("model.layers.3.self_attn.o_proj.weight"), "U8 [7168, 8192]");
  EXPECT_EQ(shape("model.layers.3.self_attn.o_proj.weight_scale"), "F8_E4M3 [7168, 1024]");
  EXPECT_EQ(shape("model.layers.3.self_attn.q_a_proj.weight"), "BF16 [1536, 7168]");
  EXPECT_EQ(shape("model.layers.0.mlp.gate_proj.weight"), "U8 [18432, 3584]");
  EXPECT_EQ(shape("model.layers.0.mlp.down_proj.weight_scale"), "F8_E4M3 [7168, 1152]");
  EXPECT_EQ(shape("model.layers.60.mlp.experts.255.up_proj.weight_scale"), "F8_E4M3 [2048, 448]");
  EXPECT_EQ(shape("model.layers.60.mlp.experts.255.down_proj.weight"), "U8 [7168, 1024]");
  EXPECT_EQ(shape("model.layers.60.mlp.experts.255.down_proj.input_scale"), "F32 []");
  EXPECT_EQ(shape("model.layers.3.mlp.gate.e_score_correction_bias"), "F32 [256]");
  EXPECT_EQ(shape("model.layers.3.self_attn.k_proj.k_scale"), "F32 []");
  EXPECT_EQ(shape("model.layers.61.mlp.experts.0.up_proj.weight"), "BF16 [2048, 7168]");
  EXPECT_EQ(shape("model.layers.61.eh_proj.weight"), "BF16 [7168, 14336]");
  EXPECT_EQ(shape("model.layers.2.mlp.gate.weight"), "none");
  EXPECT_EQ(shape("model.layers.60.mlp.experts.256.up_proj.weight"), "none");
}

}  // namespace
}  // namespace dodona::model
