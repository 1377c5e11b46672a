// Forms of quantized weights: the layouts of their checkpoints, what their numbers are, and the products and layers made of them.
#include <cmath>
#include <map>

#include "core/random.h"
#include "helpers.h"
#include "model/layer/decoder.h"
#include "model/layer/experts/experts.h"
#include "model/layer/linear/method.h"
#include "model/run.h"
#include "model/weights/checkpoint_writer.h"
#include "model/weights/tensor_list.h"
#include "model/weights/weights.h"
#include "quant/e4m3.h"
#include "quant/element.h"
#include "quant/half.h"

namespace dodona::model {
namespace {

namespace fs = std::filesystem;
using testing::bytes;
using testing::expect_error;
using testing::TempFolder;

/// tiny, whose rank of q suits every form, in that scheme.
ModelConfig in_scheme(std::string_view scheme) {
  return with_scheme(preset("tiny-fp8"), scheme_named(scheme));
}
std::vector<std::string> all_schemes() {
  std::vector<std::string> names;
  for (const QuantScheme& scheme : quant_schemes()) names.emplace_back(scheme.name);
  return names;
}
std::string identifier(const ::testing::TestParamInfo<std::string>& info) {
  std::string id = info.param;
  std::replace(id.begin(), id.end(), '-', '_');
  return id;
}

class Scheme : public ::testing::TestWithParam<std::string> {};

/// Of o_proj [256, 512] and of an expert's up_proj [128, 256], each tensor's suffix with type and shape as releases have them.
const std::map<std::string, std::pair<std::string, std::string>> layouts{
    {"bf16", {".weight BF16 [256, 512]", ".weight BF16 [128, 256]"}},
    {"nvfp4",
     {".weight U8 [256, 256] .weight_scale F8_E4M3 [256, 32] .weight_scale_2 F32 [] .input_scale F32 []",
      ".weight U8 [128, 128] .weight_scale F8_E4M3 [128, 16] .weight_scale_2 F32 [] .input_scale F32 []"}},
    {"fp8-block", {".weight F8_E4M3 [256, 512] .weight_scale_inv F32 [2, 4]", ".weight F8_E4M3 [128, 256] .weight_scale_inv F32 [1, 2]"}},
    {"fp8", {".weight F8_E4M3 [256, 512] .weight_scale F32 [256, 1]", ".weight F8_E4M3 [128, 256] .weight_scale F32 [128, 1]"}},
    {"int8", {".weight I8 [256, 512] .weight_scale F32 [256, 1]", ".weight I8 [128, 256] .weight_scale F32 [128, 1]"}},
    {"qserve-channel", {".qweight I8 [256, 256] .s1_scales F16 [256] .s1_szeros F16 [256]", ".weight BF16 [128, 256]"}},
    {"qserve-group",
     {".qweight I8 [256, 256] .s1_scales F16 [256] .s2_scales I8 [4, 256] .s2_zeros I8 [4, 256]", ".weight BF16 [128, 256]"}},
    {"w4a8",
     {".weight F8_E4M3 [256, 512] .weight_scale_inv F32 [2, 4]",
      ".weight I8 [128, 128] .weight_scale_inv F32 [128, 2] .input_scale F32 []"}}};

std::string layout_of(const io::SafetensorsFile& file, const ModelConfig& config, const std::string& module) {
  std::string text;
  for (const TensorInfo& info : layer_tensors(config, 1)) {
    if (!info.name.starts_with(module + ".")) continue;
    const io::SafetensorsEntry* const entry = file.find(info.name);
    if (entry == nullptr) return "no " + info.name;
    text += (text.empty() ? "" : " ") + info.name.substr(module.size()) + " " + std::string(entry->dtype_name) + " [";
    for (std::size_t i = 0; i < entry->shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(entry->shape[i]);
    text += "]";
  }
  return text;
}

TEST_P(Scheme, ACheckpointHasTheReleasesLayoutAndReadsBackTheSame) {
  const TempFolder folder;
  const ModelConfig config = in_scheme(GetParam());
  write_checkpoint(folder.file("model"), config, {.first_layer = 1, .last_layer = 1, .seed = 7}, {});
  const auto file = io::SafetensorsFile::open(folder.file("model/model-00001-of-00001.safetensors"));
  EXPECT_EQ(layout_of(file, config, "model.layers.1.self_attn.o_proj"), layouts.at(GetParam()).first);
  EXPECT_EQ(layout_of(file, config, "model.layers.1.mlp.experts.3.up_proj"), layouts.at(GetParam()).second);
  EXPECT_EQ(layout_of(file, config, "model.layers.1.mlp.gate"), ".weight BF16 [16, 256] .e_score_correction_bias F32 [16]");
  const ModelConfig read = load_config(folder.file("model"));
  EXPECT_EQ(read.quant.algo, config.quant.algo);
  const auto disk = open_checkpoint(folder.file("model"), read), memory = synthetic_weights(config, 7, {});
  disk->check_layer(1);
  for (const TensorInfo& info : layer_tensors(read, 1)) EXPECT_EQ(bytes(disk->get(info.name)), bytes(memory->get(info.name))) << info.name;
}

/// What W[n, k] is, from the tensors alone.
double element(const WeightSource& source, const std::string& module, WeightForm form, std::int64_t n, std::int64_t k,
               std::int64_t columns) {
  const auto tensor = [&](const char* suffix) { return source.get(module + suffix); };
  const auto at = [&](const char* suffix, std::int64_t row, std::int64_t column) {
    const Tensor t = tensor(suffix);
    return quant::get(t, row * (t.shape().rank() == 2 ? t.size(1) : 1) + column);
  };
  const auto nibble = [&](const char* suffix, std::int64_t byte, bool high) {
    return tensor(suffix).as<std::uint8_t>()[byte] >> (high ? 4 : 0) & 15;
  };
  const auto tile = [&] {
    const std::int64_t byte =
        (n / 32 * (columns / 32) + k / 32) * 512 + n % 8 * 64 + k % 16 / 4 * 16 + k % 32 / 16 * 8 + n % 16 / 8 * 4 + k % 4;
    return nibble(".qweight", byte, n % 32 >= 16);
  };
  constexpr double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
  switch (form) {
    case WeightForm::bf16: return at(".weight", n, k);
    case WeightForm::nvfp4:
      return e2m1[nibble(".weight", n * columns / 2 + k / 2, k % 2 == 1)] * at(".weight_scale", n, k / 16) * at(".weight_scale_2", 0, 0);
    case WeightForm::fp8_block: return at(".weight", n, k) * at(".weight_scale_inv", n / 128, k / 128);
    case WeightForm::fp8:
    case WeightForm::int8: return at(".weight", n, k) * at(".weight_scale", n, 0);
    case WeightForm::qserve_channel: return tile() * at(".s1_scales", n, 0) - at(".s1_szeros", n, 0);
    case WeightForm::qserve_group: {
      // Position p of each 32 holds channel (p mod 4) * 8 + p / 4.
      std::int64_t p = 0;
      while (p % 4 * 8 + p / 4 != n % 32) ++p;
      p += n / 32 * 32;
      return (tile() * at(".s2_scales", k / 128, p) + at(".s2_zeros", k / 128, p)) * at(".s1_scales", n, 0);
    }
    case WeightForm::w4a8: {
      const int code = nibble(".weight", n * columns / 2 + k / 2, k % 2 == 1);
      const float scale = quant::bf16_to_f32(quant::f32_to_bf16(static_cast<float>(at(".weight_scale_inv", n, k / 128))));
      return (code < 8 ? code : code - 16) * static_cast<double>(scale);
    }
  }
  return 0;
}

TEST_P(Scheme, DequantizedElementsAreTheFormulas) {
  const ModelConfig config = in_scheme(GetParam());
  const auto source = synthetic_weights(config, 7, {});
  for (const std::string module : {"model.layers.1.self_attn.o_proj", "model.layers.1.mlp.experts.3.down_proj"}) {
    const Linear linear = source->linear(module);
    const Tensor wide = dequantize(linear, 2, DType::f32), narrow = dequantize(linear, 1);
    for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{0, 0}, {17, 65}, {40, 127}, {129, 3}, {255, 126}, {200, 90}}) {
      const double expected = element(*source, module, linear.form, n, k, linear.columns);
      const double actual = quant::get(wide, n * linear.columns + k);
      EXPECT_NEAR(actual, expected, 1e-6 * std::fabs(expected)) << module << " " << n << " " << k;
      EXPECT_EQ(quant::get(narrow, n * linear.columns + k),
                static_cast<double>(quant::bf16_to_f32(quant::f32_to_bf16(static_cast<float>(actual)))));
    }
  }
}

TEST_P(Scheme, SyntheticWeightsKeepARmsOfOneUpToTheirGain) {
  const auto source = synthetic_weights(in_scheme(GetParam()), 7, {});
  for (const auto& [module, gain] :
       std::map<std::string, double>{{"self_attn.q_b_proj", 1}, {"self_attn.o_proj", 2}, {"mlp.experts.0.down_proj", 1.7}}) {
    const Linear linear = source->linear("model.layers.1." + module);
    const Tensor dense = dequantize(linear, 2, DType::f32);
    double sum = 0;
    for (std::int64_t i = 0; i < dense.elements(); ++i) sum += quant::get(dense, i) * quant::get(dense, i);
    const double rms = std::sqrt(sum / static_cast<double>(linear.rows));
    // Scales are uniform within a quarter of their base: of n of them the mean square is off by 0.29 / sqrt(n), its root by half of that.
    const double scales = linear.weight_scale.defined() ? static_cast<double>(linear.weight_scale.elements()) : 1e9;
    EXPECT_NEAR(rms, gain, (0.03 + 3 * 0.145 / std::sqrt(scales)) * gain) << module;
  }
}

Tensor normal(const Dims& shape, const char* name) {
  Tensor x(DType::bf16, shape);
  std::vector<float> values(static_cast<std::size_t>(x.elements()));
  fill_normal(Stream(3, name), 0, values);
  quant::from_f32(DType::bf16, values.data(), x.data(), x.elements());
  return x;
}

double relative_l2(const std::vector<double>& actual, const std::vector<double>& expected) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

/// Activations of eight bits or four lose at most this share of a product (fp8: 2^-4 a number at most; e2m1: 1/4; int8: 1/127 of the
/// largest), and the rounding of the output.
double loss_of(std::string_view scheme) {
  return scheme == "nvfp4" ? 0.12 : scheme == "bf16" ? 0.003 : 0.035;
}

TEST_P(Scheme, ProductsAreTheMatrixTimesTheTokensUpToTheActivationsCodes) {
  const ModelConfig config = in_scheme(GetParam());
  const auto source = synthetic_weights(config, 7, {});
  const std::vector<std::string> modules{"model.layers.1.self_attn.q_a_proj", "model.layers.1.self_attn.kv_a_proj_with_mqa"};
  const Tensor x = normal({3, config.hidden_size}, "x");
  std::vector<double> expected;
  std::vector<Tensor> parts;
  for (const std::string& module : modules) parts.push_back(dequantize(source->linear(module), 2, DType::f32));
  for (std::int64_t t = 0; t < 3; ++t)
    for (const Tensor& part : parts)
      for (std::int64_t n = 0; n < part.size(0); ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < part.size(1); ++k) sum += quant::get(x, t * part.size(1) + k) * quant::get(part, n * part.size(1) + k);
        expected.push_back(sum);
      }
  std::map<Mode, std::vector<double>> products;
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const Exec exec{.mode = mode, .threads = 2};
    Projection projection{.weight = source->fused(modules)};
    projection.method = &linear_method(projection.weight.form, Rounding::bf16, projection.rows());
    projection.method->prepare(projection, exec);
    const Tensor y = projection(x, exec);
    ASSERT_EQ(to_string(y.shape()), "[3, " + std::to_string(projection.rows()) + "]");
    for (std::int64_t i = 0; i < y.elements(); ++i) products[mode].push_back(quant::get(y, i));
    EXPECT_LT(relative_l2(products[mode], expected), loss_of(GetParam())) << name(mode);
  }
  EXPECT_LT(relative_l2(products[Mode::fast], products[Mode::golden]), 1e-3);
}

/// The step's MLP output, in double.
std::vector<double> layer_output(const ModelConfig& config, std::int64_t layer, Rounding rounding, const Exec& exec) {
  LayerRequest request{.config = config, .setting = {.layer = layer, .rounding = rounding}, .lengths = {5, 3, 9}, .seed = 4, .exec = exec};
  LayerRun run(request);
  const LayerState output = run.run().output;
  std::vector<double> values;
  for (std::int64_t i = 0; i < output.hidden.elements(); ++i)
    values.push_back(quant::get(output.hidden, i) + quant::get(output.residual, i));
  return values;
}

TEST_P(Scheme, LayersAreThoseOfTheDequantizedWeightsUpToTheActivationsCodes) {
  const ModelConfig config = in_scheme(GetParam());
  const Exec exec{.mode = Mode::fast, .threads = 2};
  // Dense, NextN: the router of a mixture may choose others by a rounding, so its layers are looked at below.
  const std::vector<double> wide = layer_output(config, 0, Rounding::off, exec), narrow = layer_output(config, 0, Rounding::bf16, exec);
  EXPECT_LT(relative_l2(narrow, wide), 1.5 * loss_of(GetParam()) + 0.01);
  for (const std::int64_t layer : {1, 3}) {
    const std::vector<double> one = layer_output(config, layer, Rounding::bf16, {.mode = Mode::fast, .threads = 1});
    EXPECT_EQ(one, layer_output(config, layer, Rounding::bf16, exec)) << "threads";
    EXPECT_EQ(one, layer_output(config, layer, Rounding::bf16, {.mode = Mode::fast, .threads = 2, .isa = Isa::generic})) << "tiers";
    double largest = 0;
    for (const double value : one) largest = std::fmax(largest, std::fabs(value));
    EXPECT_TRUE(std::isfinite(largest) && largest > 0.5 && largest < 100) << largest;
  }
}

/// Rows are weighed in fp32 before they are rounded, either way.
TEST(Forms, ExpertsInBf16HaveTheSameBitsByTritonsKernelAndOneByOne) {
  const auto experts = [](const char* backend, Mode mode, bool fused_shared) {
    LayerRun run({.config = with_scheme(preset("tiny-fp8"), scheme_named("bf16")),
                  .setting = {.layer = 1, .fused_shared = fused_shared, .experts = backend},
                  .lengths = {5, 3, 9, 2, 2},
                  .seed = 4,
                  .exec = {.mode = mode, .threads = 2}});
    std::pair<std::string, std::string> found;
    run.run([&](const OpRecord& record, const NamedTensors& outputs) {
      if (record.op == "self.experts()") found = {record.kernels, bytes(outputs.front().second)};
    });
    return found;
  };
  for (const Mode mode : {Mode::fast, Mode::golden})
    for (const bool fused_shared : {false, true}) {
      const auto triton = experts("triton", mode, fused_shared), plain = experts("plain", mode, fused_shared);
      EXPECT_NE(triton.first.find("fused_moe_kernel"), std::string::npos) << triton.first;
      EXPECT_EQ(plain.first.find("fused_moe_kernel"), std::string::npos) << plain.first;
      EXPECT_FALSE(triton.second.empty());
      EXPECT_TRUE(triton.second == plain.second);
    }
  expect_error(
      [] {
        choose_experts(with_scheme(preset("tiny-fp8"), scheme_named("bf16")), {.layer = 1, .rounding = Rounding::off, .experts = "triton"});
      },
      ErrorCode::unsupported, {"are bf16, which triton does not multiply", "one of plain"});
}

TEST(Forms, WidthsThatABackendsKernelsDoNotTakeAreRefusedByThePlanToo) {
  const auto plans = [](const char* experts, ExpertWeights weights, std::int64_t width, const Shard& shard) {
    LayerRequest request{.config = with_scheme(preset("tiny"), scheme_named(weights == ExpertWeights::fp8 ? "bf16" : "nvfp4")),
                         .setting = {.layer = 1, .experts = experts, .expert_weights = weights}};
    request.config.moe_intermediate_size = width;
    request.lengths = {9};
    request.shard = shard;
    plan_layer(request);
  };
  plans("deepgemm", ExpertWeights::fp8, 256, {.intermediate = {0, 2}});
  expect_error(
      [&] {
        plans("deepgemm", ExpertWeights::fp8, 256, {.intermediate = {0, 4}});
      },
      ErrorCode::bad_value,
      {"are run by deepgemm, but moe_intermediate_size of tiny, bf16, intermediate 1 of 4 is 64, expected a multiple of 128"});
  plans("flashinfer_cutlass", ExpertWeights::stored, 64, {});
  expect_error([&] { plans("flashinfer_cutlass", ExpertWeights::stored, 96, {}); }, ErrorCode::bad_value,
               {"is 96, expected a multiple of 64"});
  expect_error([&] { plans("trtllm", ExpertWeights::stored, 192, {}); }, ErrorCode::bad_value, {"is 192, expected a multiple of 128"});
}

/// Each expert's product by its own dequantized matrices, weighed and added in double.
TEST_P(Scheme, RoutedExpertsAreTheWeighedSumOfTheirDequantizedProducts) {
  const ModelConfig config = in_scheme(GetParam());
  LayerRequest request{
      .config = config, .setting = {.layer = 1}, .lengths = {5, 3, 9, 2, 2}, .seed = 4, .exec = {.mode = Mode::fast, .threads = 2}};
  LayerRun run(request);
  Tensor x, weights, ids, out;
  run.run([&](const OpRecord& record, const NamedTensors& outputs) {
    if (record.op == "self.post_attention_layernorm()") x = outputs.front().second.clone();
    if (record.op == "self.topk()") weights = outputs[0].second.clone(), ids = outputs[1].second.clone();
    if (record.op == "self.experts()") out = outputs.front().second.clone();
  });
  ASSERT_TRUE(x.defined() && ids.defined() && out.defined());
  const auto source = synthetic_weights(config, request.seed, {});
  const std::int64_t hidden = config.hidden_size, width = config.moe_intermediate_size, topk = ids.size(1);
  // Where the factor is in the router's weights already, it is no more than once in the sum.
  double total = 0;
  for (std::int64_t j = 0; j < topk; ++j) total += quant::get(weights, j);
  const double factor = total > 1.5 ? 1 : config.routed_scaling_factor;
  std::vector<double> expected(static_cast<std::size_t>(x.elements()), 0.0), actual;
  for (std::int64_t t = 0; t < x.size(0); ++t)
    for (std::int64_t j = 0; j < topk; ++j) {
      const std::string expert = "model.layers.1.mlp.experts." + std::to_string(static_cast<int>(quant::get(ids, t * topk + j))) + ".";
      const auto product = [&](const char* module, const std::vector<double>& in) {
        const Tensor w = dequantize(source->linear(expert + module), 1, DType::f32);
        std::vector<double> result(static_cast<std::size_t>(w.size(0)), 0.0);
        for (std::int64_t n = 0; n < w.size(0); ++n)
          for (std::int64_t k = 0; k < w.size(1); ++k)
            result[static_cast<std::size_t>(n)] += in[static_cast<std::size_t>(k)] * quant::get(w, n * w.size(1) + k);
        return result;
      };
      std::vector<double> token;
      for (std::int64_t k = 0; k < hidden; ++k) token.push_back(quant::get(x, t * hidden + k));
      std::vector<double> gate = product("gate_proj", token);
      const std::vector<double> up = product("up_proj", token);
      for (std::int64_t i = 0; i < width; ++i)
        gate[static_cast<std::size_t>(i)] *= up[static_cast<std::size_t>(i)] / (1 + std::exp(-gate[static_cast<std::size_t>(i)]));
      const std::vector<double> down = product("down_proj", gate);
      for (std::int64_t k = 0; k < hidden; ++k)
        expected[static_cast<std::size_t>(t * hidden + k)] +=
            factor * quant::get(weights, t * topk + j) * down[static_cast<std::size_t>(k)];
    }
  for (std::int64_t i = 0; i < out.elements(); ++i) actual.push_back(quant::get(out, i));
  EXPECT_LT(relative_l2(actual, expected), 2 * loss_of(GetParam()) + 0.01);
}

INSTANTIATE_TEST_SUITE_P(All, Scheme, ::testing::ValuesIn(all_schemes()), identifier);

TEST(Forms, BlocksOfFp8ThatEndInsideOfABlockAreNotStackedUpon) {
  expect_error([] { with_scheme(preset("tiny"), scheme_named("fp8-block")); }, ErrorCode::bad_value,
               {"q_lora_rank is 192", "multiple of 128", "fp8-block", "q_a_proj"});
}

TEST(Forms, ModelsAreQuantizedWhereTheirSchemesSaySo) {
  const ModelConfig r1 = preset("r1");
  for (const char* module :
       {"model.layers.0.self_attn.q_a_proj", "model.layers.3.self_attn.kv_b_proj", "model.layers.61.mlp.experts.255.down_proj",
        "model.layers.61.self_attn.o_proj", "model.layers.0.mlp.down_proj"})
    EXPECT_EQ(r1.form_of(module), WeightForm::fp8_block) << module;
  for (const char* module : {"lm_head", "model.layers.3.mlp.gate", "model.layers.61.eh_proj"})
    EXPECT_EQ(r1.form_of(module), WeightForm::bf16) << module;
  const ModelConfig v32 = preset("v3.2");
  EXPECT_EQ(v32.form_of("model.layers.3.self_attn.indexer.wq_b"), WeightForm::fp8_block);
  EXPECT_EQ(v32.form_of("model.layers.3.self_attn.indexer.weights_proj"), WeightForm::bf16);
  const ModelConfig w4 = with_scheme(r1, scheme_named("w4a8"));
  EXPECT_EQ(w4.form_of("model.layers.3.mlp.experts.0.up_proj"), WeightForm::w4a8);
  EXPECT_EQ(w4.form_of("model.layers.3.mlp.shared_experts.up_proj"), WeightForm::fp8_block);
  ModelConfig mixed = r1;
  mixed.quant.exclude = {"model.layers.61", "self_attn.o_proj"};
  EXPECT_EQ(mixed.form_of("model.layers.61.mlp.experts.0.up_proj"), WeightForm::bf16);
  EXPECT_EQ(mixed.form_of("model.layers.6.mlp.experts.0.up_proj"), WeightForm::fp8_block);
  EXPECT_EQ(mixed.form_of("model.layers.6.self_attn.o_proj"), WeightForm::bf16);
}

TEST(Forms, RoutersOfV2WeighBySoftmaxWithoutABias) {
  ModelConfig config = preset("tiny-fp8");
  config.quant = {};
  config.scoring_func = "softmax", config.topk_method = "greedy", config.norm_topk_prob = false;
  config.n_group = config.topk_group = 1;
  config.validate();
  EXPECT_FALSE(find_tensor_info(config, "model.layers.1.mlp.gate.e_score_correction_bias"));
  LayerRun run({.config = config, .setting = {.layer = 1}, .lengths = {5, 3}, .seed = 4, .exec = {.mode = Mode::fast, .threads = 1}});
  Tensor logits, weights, ids;
  run.run([&](const OpRecord& record, const NamedTensors& outputs) {
    if (record.op == "self.gate()") logits = outputs.front().second.clone();
    if (record.op == "self.topk()") weights = outputs[0].second.clone(), ids = outputs[1].second.clone();
  });
  ASSERT_TRUE(ids.defined());
  const std::int64_t experts = config.n_routed_experts, topk = config.num_experts_per_tok;
  for (std::int64_t t = 0; t < 2; ++t) {
    double sum = 0;
    for (std::int64_t e = 0; e < experts; ++e) sum += std::exp(quant::get(logits, t * experts + e));
    for (std::int64_t j = 0; j < topk; ++j) {
      const auto e = static_cast<std::int64_t>(quant::get(ids, t * topk + j));
      EXPECT_NEAR(quant::get(weights, t * topk + j), std::exp(quant::get(logits, t * experts + e)) / sum, 1e-5);
    }
  }
}

/// A checkpoint of layer 1 in which expert 9 has another scale of what its first product takes.
std::unique_ptr<WeightSource> with_a_larger_scale(const TempFolder& folder, const ModelConfig& config, const Shard& part = {}) {
  write_checkpoint(folder.file("model"), config, {.first_layer = 1, .last_layer = 1, .seed = 7}, {});
  const std::string shard = folder.file("model/model-00001-of-00001.safetensors");
  const auto old = io::SafetensorsFile::open(shard, io::Access::read);
  io::NamedTensors tensors;
  for (const auto& entry : old.entries()) {
    tensors.emplace_back(entry.name, old.tensor(entry));
    if (entry.name != "model.layers.1.mlp.experts.9.up_proj.input_scale") continue;
    tensors.back().second = tensors.back().second.clone();
    *tensors.back().second.as<float>() = 3;
  }
  io::write_safetensors(shard, tensors);
  return open_checkpoint(folder.file("model"), config, part);
}

TEST(Forms, AStaticScaleOfExpertsIsTheLargestOfAllWhateverARankHas) {
  for (const std::int64_t rank : {0, 1}) {
    const TempFolder folder;
    const auto source = with_a_larger_scale(folder, preset("tiny"), {.experts = {rank, 2}});
    const LayerWeights weights(*source, {.layer = 1, .experts = "trtllm"}, {});
    EXPECT_EQ(weights.expert_input_scales.gate_up, 3.0f) << rank;
    EXPECT_EQ(weights.expert_input_scales.down, static_cast<float>(16.0 / (448 * 6))) << rank;
  }
}

TEST(Forms, AStaticScaleOfExpertsIsTheLargestOfAll) {
  const TempFolder folder;
  const auto source = with_a_larger_scale(folder, in_scheme("w4a8"));
  const LayerWeights weights(*source, {.layer = 1}, {});
  EXPECT_EQ(weights.expert_input_scales.gate_up, 3.0f);
  EXPECT_EQ(weights.expert_input_scales.down, static_cast<float>(16.0 / 448));
}

}  // namespace
}  // namespace dodona::model
