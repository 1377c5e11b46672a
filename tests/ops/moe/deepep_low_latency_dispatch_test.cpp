// Rules of deepep_low_latency_dispatch, and that deepep_low_latency_combine undoes it.
#include <gtest/gtest.h>

#include <limits>

#include "dodona/error.h"
#include "ops/moe/deepep/deepep_low_latency_combine.h"
#include "ops/moe/deepep/deepep_low_latency_dispatch.h"
#include "ops/moe/deepep/deepep_low_latency_dispatch_nvfp4.h"
#include "ops/quantization/scaled_fp4_quant.h"
#include "quant/swizzle.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr Mode modes[] = {Mode::golden, Mode::fast};

ops::DeepepLowLatencyDispatch dispatch_of(const Values& ids, const Dims& shape, std::int64_t experts) {
  ops::DeepepLowLatencyDispatch op;
  op.x = normal(DType::bf16, {shape[0], shape[1], 128}, "x");
  op.topk_idx = tensor_of(DType::i64, shape, ids);
  op.num_experts = experts;
  op.num_max_dispatch_tokens_per_rank = 3;
  op.use_fp8 = false;
  return op;
}

TEST(DeepepLowLatencyDispatch, ExpertsReceiveARowOfEachTokenThatChoseThemByRankAndToken) {
  const auto op = dispatch_of({0, 1, 1, -1, 1, 0, -1, -1}, {2, 2, 2}, 2);
  for (const Mode mode : modes) {
    const auto run = ops::run(op, in_mode(mode));
    EXPECT_EQ(values_of(run.packed_recv_count), (Values{2, 3}));
    EXPECT_EQ(values_of(run.packed_recv_src_info), (Values{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}));
    constexpr double from_1 = 0x1p32, from_2 = 0x1p33;
    EXPECT_EQ(values_of(run.packed_recv_layout_range), (Values{1, from_1 + 1, 2, from_2 + 1}));
    for (std::int64_t h = 0; h < 128; ++h) EXPECT_EQ(quant::get_bits(run.packed_recv_x, 7 * 128 + h), quant::get_bits(op.x, 128 + h));
  }
}

TEST(DeepepLowLatencyDispatch, CombinedRowsOfExpertsThatDoNothingAreTheTokensTimesTheirWeights) {
  const auto op = dispatch_of({0, 1, 3, 2, 2, 3, 1, 0, -1, -1, 3, 1}, {2, 3, 2}, 4);
  const auto sent = ops::run(op, in_mode(Mode::fast));
  ops::DeepepLowLatencyCombine back;
  back.x = sent.packed_recv_x;
  back.topk_idx = op.topk_idx;
  back.topk_weights = filled(DType::f32, {2, 3, 2}, 0.5);
  back.src_info = sent.packed_recv_src_info;
  back.layout_range = sent.packed_recv_layout_range;
  for (const Mode mode : modes) {
    const auto run = ops::run(back, in_mode(mode));
    for (std::int64_t i = 0; i < run.combined_x.elements(); ++i)
      EXPECT_EQ(quant::get(run.combined_x, i), i / 128 == 4 ? 0.0 : quant::get(op.x, i));
  }
}

TEST(DeepepLowLatencyDispatch, InfinitiesThatAreSentAsTheyArePass) {
  const auto op = dispatch_of({0, 1}, {1, 1, 2}, 2);
  quant::set(op.x, 5, infinity);
  quant::set(op.x, 9, -infinity);
  const auto run = ops::run(op, in_mode(Mode::fast));
  Arguments inputs;
  inputs.set("x", op.x);
  inputs.set("topk_idx", op.topk_idx);
  inputs.set_attr("num_max_dispatch_tokens_per_rank", std::int64_t{3});
  inputs.set_attr("num_experts", std::int64_t{2});
  inputs.set_attr("use_fp8", false);
  const auto failing = [&] {
    return oracle::judge(registry().at("deepep_low_latency_dispatch"), inputs,
                         {{"packed_recv_x", run.packed_recv_x},
                          {"packed_recv_count", run.packed_recv_count},
                          {"packed_recv_src_info", run.packed_recv_src_info},
                          {"packed_recv_layout_range", run.packed_recv_layout_range}},
                         {})
        .failing();
  };
  EXPECT_EQ(failing(), 0);
  quant::set(run.packed_recv_x, 5, quant::max_finite(DType::bf16));
  EXPECT_EQ(failing(), 1);
}

TEST(DeepepLowLatencyDispatch, RoomsMayBeAsSmallAsTheFullestWants) {
  auto op = dispatch_of({0, 1, 1, -1, 1, 0, -1, -1}, {2, 2, 2}, 2);
  op.spare_rows = 3;
  for (const Mode mode : modes) {
    const auto run = ops::run(op, in_mode(mode));
    EXPECT_EQ(run.packed_recv_x.shape(), (Dims{2, 3, 128}));
    EXPECT_EQ(values_of(run.packed_recv_src_info), (Values{0, 0, 0, 0, 1, 0}));
  }
}

TEST(DeepepLowLatencyDispatch, PowersAreStoredAsFloatsOrAsExponents) {
  auto op = dispatch_of({0, -1}, {1, 1, 2}, 1);
  op.x = filled(DType::bf16, {1, 1, 128}, 449.0);  // 448 in bf16 is the next number below; 450 above
  op.use_fp8 = op.round_scale = true;
  for (const Mode mode : modes) {
    op.use_ue8m0 = false;
    EXPECT_EQ(quant::get(ops::run(op, in_mode(mode)).packed_recv_x_scales, 0), quant::get(op.x, 0) > 448 ? 2.0 : 1.0);
    op.use_ue8m0 = true;
    EXPECT_EQ(quant::get(ops::run(op, in_mode(mode)).packed_recv_x_scales, 0), quant::get(op.x, 0) > 448 ? 128 : 127);
  }
}

TEST(DeepepLowLatencyDispatchNvfp4, EveryRowIsWhatTheQuantizerMakesOfItsToken) {
  ops::DeepepLowLatencyDispatchNvfp4 op;
  op.x = normal(DType::bf16, {2, 2, 80}, "x");
  quant::set(op.x, 3, std::numeric_limits<double>::quiet_NaN());
  op.x_global_scale = filled(DType::f32, {1}, 300.0);
  op.topk_idx = tensor_of(DType::i64, {2, 2, 2}, {2, -1, 2, 0, -1, -1, 2, 2});
  op.num_experts = 4;
  op.num_max_dispatch_tokens_per_rank = 70;
  for (const Mode mode : modes) {
    const auto run = ops::run(op, in_mode(mode));
    const auto quantized = ops::run(ops::ScaledFp4Quant{.input = op.x, .input_global_scale = op.x_global_scale}, in_mode(mode));
    EXPECT_EQ(values_of(run.packed_recv_count), (Values{1, 0, 4, 0}));
    EXPECT_EQ(run.packed_recv_x_scales.shape(), (Dims{4, 256, 8}));
    const std::int64_t tokens[] = {0, 1, 3, 3};
    for (std::int64_t row = 0; row < 4; ++row) {
      for (std::int64_t byte = 0; byte < 40; ++byte)
        EXPECT_EQ(quant::get_bits(run.packed_recv_x, (2 * 140 + row) * 40 + byte),
                  quant::get_bits(quantized.output, tokens[row] * 40 + byte));
      for (std::int64_t c = 0; c < 5; ++c) {
        const auto at = [&](std::int64_t r) { return quant::scale_offset(quant::ScaleLayout::swizzled_128x4, r, c, 5); };
        EXPECT_EQ(quant::get_bits(run.packed_recv_x_scales, at(2 * 256 + row)), quant::get_bits(quantized.output_scale, at(tokens[row])));
      }
    }
  }
}

TEST(DeepepLowLatencyDispatch, WhatDoesNotFitIsRefusedByName) {
  const auto refused = [](ops::DeepepLowLatencyDispatch op, const char* text) {
    const Error error = error_from([&] { ops::run(op, in_mode(Mode::fast)); });
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  };
  refused(dispatch_of({0, 4}, {1, 1, 2}, 4), "topk_idx holds 4");
  refused(dispatch_of({0, 1, 0, 1}, {2, 1, 2}, 3), "num_experts");
  refused(dispatch_of({0, 1, 2, 3}, {1, 4, 1}, 4), "num_max_dispatch_tokens_per_rank");
  auto small = dispatch_of({0, 1, 1, 0}, {1, 2, 2}, 2);
  small.spare_rows = 2;
  refused(small, "topk_idx names expert 1 once more, expected at most the 1 rows");
  auto op = dispatch_of({0, 1}, {1, 1, 2}, 2);
  op.use_ue8m0 = true;
  refused(op, "use_ue8m0");
}

}  // namespace
}  // namespace dodona
