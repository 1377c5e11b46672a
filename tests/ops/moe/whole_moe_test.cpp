// Rules of the whole MoE kernels: their composition held against a straight line of matrices, their layouts, their routing, bad input.
#include "ops/schemes/whole_moe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "dodona/error.h"
#include "ops/moe/whole/trtllm_bf16_moe.h"
#include "ops/routing/trtllm_router.h"
#include "quant/e2m1.h"
#include "quant/nibble.h"
#include "quant/swizzle.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

const std::vector<std::string> kernels{"trtllm_bf16_moe", "trtllm_fp8_block_scale_moe", "trtllm_fp4_block_scale_moe",
                                       "trtllm_fp8_per_tensor_scale_moe"};
constexpr Mode own_modes[] = {Mode::golden, Mode::fast, Mode::blackwell};

const std::string sizes = " --attr num_experts=8 --attr intermediate_size=128 --attr local_num_experts=8";

Arguments with(Arguments arguments, const char* name, const AttrValue& value) {
  arguments.set_attr(name, value);
  return arguments;
}
Tensor output_of(const oracle::NamedTensors& outputs, const std::string& name) {
  for (const auto& [found, tensor] : outputs)
    if (found == name) return tensor;
  return {};
}

// ---- layouts

/// Row r of a shuffled matrix is row source(r) of the plain one, as FlashInfer's shuffle_matrix_a with epilogue_tile_m = 128 (rows dealt
/// out by 32) or 64 (16), behind reorder_rows_for_gated_act_gemm where gate and up take turns.
std::int64_t source(std::int64_t r, std::int64_t n, std::int64_t block, bool alternating) {
  std::vector<std::int64_t> deal(static_cast<std::size_t>(block));
  for (std::int64_t old = 0; old < block; ++old) deal[static_cast<std::size_t>(old % (block / 8) * 8 + old / (block / 8))] = old;
  const std::int64_t row = r / block * block + deal[static_cast<std::size_t>(r % block)];
  return !alternating ? row : row % 2 == 0 ? row / 2 : n / 2 + row / 2;
}

Tensor shuffled(const Tensor& weights, std::int64_t block, bool alternating) {
  const Tensor out(weights.dtype(), weights.shape());
  const std::int64_t n = weights.size(1), bytes = weights.size(2) * bits(weights.dtype()) / 8;
  for (std::int64_t e = 0; e < weights.size(0); ++e)
    for (std::int64_t r = 0; r < n; ++r)
      std::memcpy(out.as<std::byte>() + (e * n + r) * bytes, weights.as<std::byte>() + (e * n + source(r, n, block, alternating)) * bytes,
                  static_cast<std::size_t>(bytes));
  return out;
}

/// FlashInfer's convert_to_block_layout of blocks of 128 bytes.
Tensor block_major(const Tensor& weights) {
  const Tensor out(weights.dtype(), weights.shape());
  const std::int64_t n = weights.size(1), bytes = weights.size(2) * bits(weights.dtype()) / 8;
  std::byte* to = out.as<std::byte>();
  for (std::int64_t e = 0; e < weights.size(0); ++e)
    for (std::int64_t b = 0; b < bytes; b += 128)
      for (std::int64_t r = 0; r < n; ++r, to += 128) std::memcpy(to, weights.as<std::byte>() + (e * n + r) * bytes + b, 128);
  return out;
}

TEST(WholeMoe, ShuffledAndBlockedWeightsGiveThePlainOnesBits) {
  const NamedOp op{"trtllm_bf16_moe"};
  const Arguments plain = op.case_of(
      "T=5 H=256 --attr top_k=2 --attr routing_method_type=Renormalize --attr use_shuffled_weight=false --attr weight_layout=0" + sizes);
  for (const Mode mode : own_modes) {
    const Tensor expected = output_of(op.outputs(plain, in_mode(mode)), "output");
    Arguments other = with(plain, "use_shuffled_weight", true);
    other.set("gemm1_weights", shuffled(*plain.find("gemm1_weights"), 32, true));
    other.set("gemm2_weights", shuffled(*plain.find("gemm2_weights"), 32, false));
    EXPECT_TRUE(same_bits(output_of(op.outputs(other, in_mode(mode)), "output"), expected));
    other.set_attr("weight_layout", std::int64_t{2});
    for (const char* weights : {"gemm1_weights", "gemm2_weights"}) other.set(weights, block_major(*other.find(weights)));
    EXPECT_TRUE(same_bits(output_of(op.outputs(other, in_mode(mode)), "output"), expected));
    const Tensor& first = *other.find("gemm1_weights");
    other.set("gemm1_weights", first.reshape({8, 256 / 64, 256, 64}));
    EXPECT_TRUE(same_bits(output_of(op.outputs(other, in_mode(mode)), "output"), expected)) << "upstream's shape";
  }
}

TEST(WholeMoe, Fp8ShufflesBySixteenRowsAndLeavesScalesAlone) {
  const NamedOp op{"trtllm_fp8_block_scale_moe"};
  const Arguments plain = op.case_of("T=5 H=256 --attr top_k=2 --attr routing_method_type=Renormalize" + sizes);
  Arguments other = with(plain, "use_shuffled_weight", true);
  for (const char* weights : {"gemm1_weights", "gemm2_weights"}) other.set(weights, block_major(shuffled(*plain.find(weights), 16, false)));
  other.set_attr("weight_layout", std::int64_t{2});
  for (const Mode mode : own_modes)
    EXPECT_TRUE(same_bits(output_of(op.outputs(other, in_mode(mode)), "output"), output_of(op.outputs(plain, in_mode(mode)), "output")));
}

TEST(WholeMoe, Fp4ShufflesCodesAndScalesAlike) {
  const NamedOp op{"trtllm_fp4_block_scale_moe"};
  const Arguments plain =
      op.case_of("T=5 H=256 --attr top_k=2 --attr routing_method_type=Renormalize --attr use_shuffled_weight=false" + sizes);
  Arguments other = with(plain, "use_shuffled_weight", true);
  for (const bool first : {true, false}) {
    const std::string weights = first ? "gemm1_weights" : "gemm2_weights", scales = weights + "_scale";
    other.set(weights, shuffled(*plain.find(weights), 32, first));
    const Tensor& tiles = *plain.find(scales);
    const Tensor moved = tiles.clone();
    const std::int64_t n = tiles.size(1), columns = tiles.size(2);
    for (std::int64_t e = 0; e < tiles.size(0); ++e)
      for (std::int64_t r = 0; r < n; ++r)
        for (std::int64_t c = 0; c < columns; ++c) {
          const auto at = [&](std::int64_t row) {
            return e * n * columns + quant::scale_offset(quant::ScaleLayout::swizzled_128x4, row, c, columns);
          };
          moved.as<std::uint8_t>()[at(r)] = tiles.as<std::uint8_t>()[at(source(r, n, 32, first))];
        }
    other.set(scales, moved);
  }
  for (const Mode mode : own_modes)
    EXPECT_TRUE(same_bits(output_of(op.outputs(other, in_mode(mode)), "output"), output_of(op.outputs(plain, in_mode(mode)), "output")));
}

// ---- experts elsewhere, none, all

TEST(WholeMoe, PartsOfTheExpertsAddUpToAllOfThem) {
  for (const std::string& kernel : kernels) {
    const NamedOp op{kernel};
    const std::string grouped =
        "T=6 H=128 --attr num_experts=16 --attr top_k=4 --attr n_group=4 --attr topk_group=2 --attr intermediate_size=128 "
        "--attr routing_method_type=DeepSeekV3 --attr routed_scaling_factor=2.5 --attr local_num_experts=16";
    const Arguments all = op.case_of(grouped);
    const Tensor whole = output_of(op.outputs(all, in_mode(Mode::golden)), "output");
    std::vector<Tensor> parts;
    for (const std::int64_t first : {0, 8}) {
      Arguments half = with(with(all, "local_num_experts", std::int64_t{8}), "local_expert_offset", first);
      for (auto& [name, tensor] : half.tensors)
        if (name.rfind("gemm", 0) == 0 || name.rfind("output", 0) == 0) tensor = tensor.slice(0, first, first + 8).clone();
      parts.push_back(output_of(op.outputs(half, in_mode(Mode::golden)), "output"));
    }
    for (std::int64_t i = 0; i < whole.elements(); ++i) {
      const double a = quant::get(parts[0], i), b = quant::get(parts[1], i), sum = quant::get(whole, i);
      EXPECT_NEAR(a + b, sum, (std::fabs(a) + std::fabs(b) + std::fabs(sum)) * 0x1p-8) << kernel << " element " << i;
    }
  }
}

TEST(WholeMoe, ATokenWhoseExpertsAreElsewhereIsZero) {
  for (const std::string& kernel : kernels) {
    const NamedOp op{kernel};
    Arguments inputs = op.case_of(
        "T=3 H=128 --attr top_k=1 --attr routing_method_type=Renormalize --attr num_experts=8 --attr intermediate_size=128 "
        "--attr local_num_experts=4 --attr local_expert_offset=4");
    const Tensor logits = filled(DType::f32, {3, 8}, 0.0);
    quant::set(logits, 1, 5.0);       // token 0: expert 1, elsewhere
    quant::set(logits, 8 + 6, 5.0);   // token 1: expert 6
    quant::set(logits, 16 + 0, 5.0);  // token 2: expert 0
    inputs.set("routing_logits", logits);
    for (const Mode mode : own_modes) {
      const Tensor out = output_of(op.outputs(inputs, in_mode(mode)), "output");
      double here = 0;
      for (std::int64_t h = 0; h < 128; ++h) {
        EXPECT_EQ(quant::get(out, h), 0.0);
        EXPECT_EQ(quant::get(out, 256 + h), 0.0);
        here += std::fabs(quant::get(out, 128 + h));
      }
      EXPECT_GT(here, 0.0) << kernel;
    }
  }
}

TEST(WholeMoe, AllTokensMayVisitOneExpert) {
  for (const std::string& kernel : kernels) {
    const NamedOp op{kernel};
    Arguments inputs = op.case_of("T=150 H=128 --attr top_k=1 --attr routing_method_type=Renormalize" + sizes);
    const Tensor logits = filled(DType::f32, {150, 8}, 0.0);
    for (std::int64_t t = 0; t < 150; ++t) quant::set(logits, 8 * t + 3, 1.0);
    inputs.set("routing_logits", logits);
    for (const Mode mode : {Mode::fast, Mode::blackwell}) EXPECT_EQ(op.failing(inputs, op.outputs(inputs, in_mode(mode))), 0) << kernel;
  }
}

TEST(WholeMoe, ResultsThatAreNotAddedUpGiveTheOutputWhenTheyAre) {
  for (const std::string& kernel : kernels) {
    const NamedOp op{kernel};
    const Arguments inputs =
        op.case_of("T=6 H=128 --attr top_k=3 --attr routing_method_type=Renormalize --attr tile_tokens_dim=16" + sizes);
    for (const Mode mode : own_modes) {
      const Tensor sum = output_of(op.outputs(inputs, in_mode(mode)), "output");
      const auto parts = op.outputs(with(inputs, "do_finalize", false), in_mode(mode));
      const Tensor rows = output_of(parts, "gemm2_output"), weights = output_of(parts, "expert_weights"),
                   at = output_of(parts, "expanded_idx_to_permuted_idx");
      for (std::int64_t t = 0; t < 6; ++t)
        for (std::int64_t h = 0; h < 128; ++h) {
          double expected = 0, magnitude = 0;
          for (std::int64_t k = 0; k < 3; ++k) {
            const auto row = static_cast<std::int64_t>(quant::get(at, 3 * t + k));
            const double term = quant::get(weights, 3 * t + k) * quant::get(rows, row * 128 + h);
            expected += term;
            magnitude += std::fabs(term);
          }
          EXPECT_NEAR(quant::get(sum, t * 128 + h), expected, std::fabs(expected) * 0x1p-8 + magnitude * 0x1p-22) << kernel;
        }
    }
  }
}

TEST(WholeMoe, AFusedSharedExpertIsVisitedByEveryTokenWithWeightOne) {
  for (const std::string kernel : {"trtllm_fp8_block_scale_moe", "trtllm_fp4_block_scale_moe"}) {
    const NamedOp op{kernel};
    const std::string line =
        "T=4 H=128 --attr num_experts=16 --attr top_k=4 --attr n_group=4 --attr topk_group=2 --attr intermediate_size=128 "
        "--attr local_num_experts=16 --attr routing_method_type=DeepSeekV3 --attr num_fused_shared_experts=1 --attr do_finalize=false";
    const auto parts = op.outputs(op.case_of(line), in_mode(Mode::golden));
    const Tensor weights = output_of(parts, "expert_weights"), at = output_of(parts, "expanded_idx_to_permuted_idx");
    ASSERT_EQ(weights.shape(), (Dims{4, 5}));
    for (std::int64_t t = 0; t < 4; ++t) {
      EXPECT_EQ(quant::get(weights, 5 * t + 4), 1.0);
      EXPECT_EQ(quant::get(at, 5 * t + 4), quant::get(at, 4) + static_cast<double>(t)) << "the last expert's rows, token by token";
    }
  }
}

// ---- routing

struct Routed {
  std::vector<std::int64_t> ids;
  Values weights;
};
Routed route(std::int64_t method, const Values& logits, std::int64_t topk, const Values& bias = {}, std::int64_t groups = 0,
             std::int64_t kept = 0) {
  const auto experts = static_cast<std::int64_t>(logits.size());
  const Tensor x = tensor_of(DType::f32, {1, experts}, logits), b = bias.empty() ? Tensor() : tensor_of(DType::f32, {experts}, bias);
  const ops::TrtllmRouter router{x, b, static_cast<ops::TrtllmMethod>(method), topk, groups, kept, 0, 2.5f, true, false};
  const ops::TrtllmRow row(router, 0);
  const ops::RoutedRow routed = row.route(row.choose());
  Routed result{routed.ids, {}};
  for (const ops::Bounded& weight : routed.weights) result.weights.push_back(weight.exact);
  return result;
}
double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

TEST(TrtllmRouting, MethodsWeighAsTheirNamesSay) {
  const Values x{0.5, 2.0, -1.0, 1.0};
  double all = 0;
  for (const double value : x) all += std::exp(value);
  const double two = std::exp(2.0) + std::exp(1.0), s = sigmoid(2.0) + sigmoid(1.0);
  const std::vector<std::pair<std::int64_t, Values>> expected{{0, {std::exp(2.0) / all, std::exp(1.0) / all}},
                                                              {1, {std::exp(2.0) / two, std::exp(1.0) / two}},
                                                              {4, {std::exp(2.0) / two, std::exp(1.0) / two}},
                                                              {5, {2.0, 1.0}},
                                                              {2, {2.5 * sigmoid(2.0) / s, 2.5 * sigmoid(1.0) / s}},
                                                              {6, {sigmoid(2.0) / s, sigmoid(1.0) / s}},
                                                              {7, {2.5 * sigmoid(2.0) / s, 2.5 * sigmoid(1.0) / s}},
                                                              {8, {sigmoid(2.0), sigmoid(1.0)}},
                                                              {9, {sigmoid(2.0), sigmoid(1.0)}}};
  for (const auto& [method, weights] : expected) {
    const Routed routed = route(method, x, 2);
    EXPECT_EQ(routed.ids, (std::vector<std::int64_t>{1, 3})) << "method " << method;
    for (std::size_t k = 0; k < 2; ++k) EXPECT_NEAR(routed.weights[k], weights[k], 3e-7) << "method " << method;
  }
  EXPECT_NEAR(route(3, x, 1).weights[0], sigmoid(2.0), 3e-7);
}

TEST(TrtllmRouting, ABiasSteersTheChoiceAndNotTheWeights) {
  const Routed routed = route(2, {0.0, 0.0, 1.0, 1.0}, 2, {5.0, 4.0, 0.0, 0.0});
  EXPECT_EQ(routed.ids, (std::vector<std::int64_t>{0, 1}));
  EXPECT_NEAR(routed.weights[0], 1.25, 1e-6);
}

TEST(TrtllmRouting, OfGroupsABiasIsRoundedToBf16First) {
  // 1 + 2^-9 is 1 in bf16: the two tie, and the lower index wins.
  const Values bias{1.0, 1.0 + 0x1p-9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
  EXPECT_EQ(route(2, Values(8, 0.0), 1, bias, 2, 1).ids.front(), 0);
  EXPECT_EQ(route(2, Values(8, 0.0), 1, bias).ids.front(), 1);
  EXPECT_EQ(route(7, Values(8, 0.0), 1, bias).ids.front(), 1);
}

TEST(TrtllmRouting, TiesOfExpertsAndOfGroupsGoToTheLowerIndex) {
  EXPECT_EQ(route(2, Values(16, 0.25), 3, {}, 4, 2).ids, (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(route(5, Values(8, -1.0), 2).ids, (std::vector<std::int64_t>{0, 1}));
}

TEST(TrtllmRouting, SaturatedLogitsOfNoWeightAtAllGiveZeros) {
  for (const double weight : route(2, Values(8, -100.0), 2).weights) EXPECT_EQ(weight, 0.0);
}

TEST(TrtllmRouting, AnOrderWithinTheErrorOfAScoreIsOpenAndOneOfLogitsIsNot) {
  const Values near{0.5, 0.5 + 0x1p-24, -3.0, -4.0};
  const Tensor x = tensor_of(DType::f32, {1, 4}, near), none;
  for (const std::int64_t method : {2, 5}) {
    const ops::TrtllmRouter router{x, none, static_cast<ops::TrtllmMethod>(method), 1, 0, 0, 0, 1.0f, true, true};
    const ops::TrtllmRow row(router, 0);
    EXPECT_EQ(row.certain(row.choose()), method == 5);
    EXPECT_EQ(row.allows(std::vector<std::int64_t>{0}), method == 2);
    EXPECT_FALSE(row.allows(std::vector<std::int64_t>{2}));
  }
}

TEST(WholeMoe, AnotherChoiceThatTheKeysAllowIsFollowedWhereTheIdsSaySo) {
  const NamedOp op{"trtllm_bf16_moe"};
  Arguments inputs = op.case_of("T=1 H=128 --attr top_k=1 --attr routing_method_type=Sigmoid --attr record_routing=true" + sizes);
  const Tensor logits = filled(DType::f32, {1, 8}, -3.0);
  quant::set(logits, 2, 0.5);
  quant::set(logits, 5, 0.5 + 0x1p-24);
  inputs.set("routing_logits", logits);
  for (const double chosen : {2.0, 5.0, 6.0}) {
    Arguments other = inputs;
    const Tensor steered = logits.clone();
    quant::set(steered, static_cast<std::int64_t>(chosen), 0.5);
    for (const std::int64_t e : {2, 5, 6})
      if (static_cast<double>(e) != chosen) quant::set(steered, e, -3.0);
    other.set("routing_logits", steered);
    EXPECT_EQ(op.failing(inputs, op.outputs(other, in_mode(Mode::fast))) == 0, chosen != 6.0) << "expert " << chosen;
  }
}

TEST(WholeMoe, TokensThatComeRoutedGoWhereTheRouterSentThem) {
  const std::string line =
      "T=3 H=128 --attr top_k=3 --attr routing_method_type=SigmoidRenorm --attr num_experts=8 --attr intermediate_size=128 "
      "--attr local_num_experts=4 --attr local_expert_offset=2";
  for (const std::string& kernel : kernels) {
    const NamedOp op{kernel};
    const auto routed = op.outputs(op.case_of(line + " --attr record_routing=true"), in_mode(Mode::fast));
    Arguments given = op.case_of(line + " --without routing_logits --with given_ids --with given_weights --dtype given_weights=f32");
    given.set("given_ids", output_of(routed, "topk_ids"));
    given.set("given_weights", output_of(routed, "topk_weights"));
    const auto sent = op.outputs(given, in_mode(Mode::fast));
    EXPECT_TRUE(same_bits(output_of(sent, "output"), output_of(routed, "output"))) << kernel;
    EXPECT_EQ(op.failing(given, sent), 0) << kernel;
    // Experts elsewhere and no expert at all are the same.
    const Tensor ids = output_of(routed, "topk_ids").clone();
    for (std::int64_t i = 0; i < ids.elements(); ++i)
      if (const double id = quant::get(ids, i); id < 2 || id > 5) quant::set(ids, i, -1);
    given.set("given_ids", ids);
    EXPECT_TRUE(same_bits(output_of(op.outputs(given, in_mode(Mode::fast)), "output"), output_of(sent, "output"))) << kernel;
  }
}

// ---- bad input

void expect_refused(const NamedOp& op, const Arguments& inputs, const std::string& argument) {
  Arguments arguments = oracle::runnable(op.op(), inputs);
  const Error error = error_from([&] { op.op().run(arguments, in_mode(Mode::fast)); });
  EXPECT_EQ(error.argument(), argument) << error.what();
}

TEST(WholeMoe, WhatTheLauncherRefusesIsRefusedByName) {
  for (const std::string& kernel : kernels) {
    const NamedOp op{kernel};
    const Arguments grouped = op.case_of(
        "T=3 H=128 --attr num_experts=16 --attr top_k=4 --attr n_group=4 --attr topk_group=2 --attr intermediate_size=128 "
        "--attr local_num_experts=16 --attr routing_method_type=DeepSeekV3");
    expect_refused(op, with(grouped, "top_k", std::int64_t{9}), "top_k");
    expect_refused(op, with(grouped, "n_group", std::int64_t{5}), "n_group");
    expect_refused(op, with(grouped, "topk_group", std::int64_t{0}), "topk_group");
    expect_refused(op, with(grouped, "routing_method_type", std::string("Renormalize")), "n_group");
    expect_refused(op, with(grouped, "routing_method_type", std::string("Top1")), "routing_method_type");
    expect_refused(op, with(grouped, "local_expert_offset", std::int64_t{1}), "local_expert_offset");
    const Arguments plain = op.case_of("T=3 H=128 --attr top_k=1 --attr routing_method_type=Llama4" + sizes);
    expect_refused(op, with(plain, "top_k", std::int64_t{2}), "top_k");
    expect_refused(op, with(plain, "top_k", std::int64_t{9}), "top_k");
    const std::string given = "T=3 H=128 --attr top_k=1 --with given_ids";
    expect_refused(op, op.case_of(given + " --with given_weights" + sizes), "routing_logits");
    expect_refused(op, op.case_of(given + " --without routing_logits" + sizes), "given_weights");
    expect_refused(op, op.case_of("T=3 H=128 --attr top_k=1 --without routing_logits" + sizes), "routing_logits");
    Arguments stray = op.case_of(given + " --with given_weights --without routing_logits" + sizes);
    stray.set("given_ids", filled(DType::i32, {3, 1}, 8.0));
    expect_refused(op, stray, "given_ids");
    if (op.op().schema().find_attr("num_fused_shared_experts") != nullptr)
      expect_refused(op, with(plain, "num_fused_shared_experts", std::int64_t{1}), "gemm1_weights");
    if (op.op().schema().find_attr("weight_layout") != nullptr)
      expect_refused(op, with(plain, "weight_layout", std::int64_t{1}), "weight_layout");
  }
}

}  // namespace
}  // namespace dodona
