// Rules of fused_moe_kernel: which rows it makes, in which mode of quantization, and what it refuses.
#include "ops/moe/grouped/fused_moe_kernel.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "dodona/error.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/ints.h"

namespace dodona {
namespace {

using namespace helpers;

/// Three tokens with two experts each, of three; blocks of 4: expert 2 has pairs 0 and 3, an expert elsewhere pair 5, expert 0 pairs 1 and
/// 2. No block holds pair 4.
ops::FusedMoeKernel call(std::int64_t n, std::int64_t k) {
  ops::FusedMoeKernel op;
  op.A = filled(DType::bf16, {3, k}, 1.0);
  op.B = filled(DType::bf16, {3, n, k}, 1.0);
  op.topk_weights = tensor_of(DType::f32, {3, 2}, {1, 2, 3, 4, 5, 6});
  op.topk_ids = ints({3, 2}, {2, 0, 0, 2, 1, 1});
  op.sorted_token_ids = ints({15}, {3, 0, 6, 6, 5, 6, 6, 7, 1, 2, 6, 6, -9, 0, 1});
  op.expert_ids = ints({4}, {2, -1, 0, 77});
  op.num_tokens_post_padded = ints({1}, {12});
  op.top_k = 2;
  op.block_size_m = 4;
  return op;
}

TEST(FusedMoeKernel, EachPairHasTheWeightsOfItsBlocksExpertAndItsTokensRow) {
  auto op = call(3, 16);
  for (std::int64_t i = 0; i < 48; ++i) quant::set(op.A, i, static_cast<double>(1 << i / 16));
  for (std::int64_t i = 0; i < 144; ++i) quant::set(op.B, i, static_cast<double>(1 + i / 48));
  for (const Mode mode : all_modes) {
    const Tensor out = ops::run(op, in_mode(mode)).C;
    const double expected[] = {48, 16, 32, 96, 0, 0};  // 16 * token's number * (expert + 1); pair 4 is in no block
    for (std::int64_t pair = 0; pair < 6; ++pair)
      for (std::int64_t j = 0; j < 3; ++j) EXPECT_EQ(quant::get(out, pair * 3 + j), expected[pair]) << name(mode) << " pair " << pair;
  }
}

TEST(FusedMoeKernel, PairsOfExpertsElsewhereMustBeZeroAndPairsOfNoBlockMayBeAnything) {
  const NamedOp op{"fused_moe_kernel"};
  const auto values = call(3, 16);
  Arguments inputs;
  for (const auto& [key, tensor] : {std::pair{"A", values.A},
                                    {"B", values.B},
                                    {"topk_weights", values.topk_weights},
                                    {"topk_ids", values.topk_ids},
                                    {"sorted_token_ids", values.sorted_token_ids},
                                    {"expert_ids", values.expert_ids},
                                    {"num_tokens_post_padded", values.num_tokens_post_padded}})
    inputs.set(key, tensor);
  inputs.set_attr("top_k", std::int64_t{2});
  inputs.set_attr("BLOCK_SIZE_M", std::int64_t{4});
  const Tensor out = ops::run(values, in_mode(Mode::fast)).C.clone();
  EXPECT_EQ(op.failing(inputs, {{"C", out}}), 0);
  quant::set(out, 4 * 3, 99.0);
  EXPECT_EQ(op.failing(inputs, {{"C", out}}), 0);
  quant::set(out, 5 * 3, 1.0);
  EXPECT_EQ(op.failing(inputs, {{"C", out}}), 1);
}

TEST(FusedMoeKernel, TheRoutedWeightMultipliesBeforeTheRounding) {
  auto op = call(1, 16);
  op.mul_routed_weight = true;
  quant::set(op.A, 0, 1.0 + 0x1p-7);
  quant::set(op.topk_weights, 1, 1.0 + 7 * 0x1p-11);
  // The sum 16.0078125 is 16 in bf16: with the factor behind that rounding it would stay 16.
  for (const Mode mode : all_modes) EXPECT_EQ(quant::get(ops::run(op, in_mode(mode)).C, 1), 16.125) << name(mode);
}

TEST(FusedMoeKernel, WithoutTopKEveryPairHasItsOwnRow) {
  auto op = call(2, 16);
  op.A = filled(DType::bf16, {6, 16}, 0.0);
  for (std::int64_t i = 0; i < 6; ++i) quant::set(op.A, i * 16, static_cast<double>(i + 1));
  op.top_k = 1;
  for (const Mode mode : all_modes) {
    const Tensor out = ops::run(op, in_mode(mode)).C;
    for (const std::int64_t pair : {0, 1, 2, 3}) EXPECT_EQ(quant::get(out, pair * 2), static_cast<double>(pair + 1)) << name(mode);
  }
}

TEST(FusedMoeKernel, Fp8LosesSmallProductsWhereWarpgroupsMultiplyAndNotElsewhere) {
  auto op = call(1, 64);
  op.A = filled(DType::f8_e4m3, {3, 64}, 1.0);
  op.B = filled(DType::f8_e4m3, {3, 1, 64}, 1.0);
  for (std::int64_t t = 0; t < 3; ++t) quant::set(op.A, t * 64, 256.0), quant::set(op.B, t * 64, 256.0);
  op.A_scale = filled(DType::f32, {1}, 0x1p-16);
  op.B_scale = filled(DType::f32, {3}, 1.0);
  op.use_fp8_w8a8 = true;
  op.compute_type = DType::f16;
  const auto first = [&] { return quant::get(ops::run(op, in_mode(Mode::hopper)).C, 0); };
  const double kept = quant::round_to(DType::f16, (65536.0 + 63) / 65536);
  EXPECT_EQ(first(), kept);
  op.swap_ab = true;
  EXPECT_EQ(first(), 1.0);  // BLOCK_SIZE_N = 64
  op.block_size_n = 32;
  EXPECT_EQ(first(), kept);
}

TEST(FusedMoeKernel, GroupsTakeTheirZeroPointsOffBeforeTheScale) {
  auto op = call(2, 16);
  op.B = filled(DType::u8, {3, 2, 8}, 0x95);  // 5 and 9
  op.B_scale = filled(DType::f32, {3, 2, 2}, 0.5);
  op.use_int4_w4a16 = true;
  op.block_k = 8;
  for (const Mode mode : all_modes) {
    op.B_zp = Tensor();
    EXPECT_EQ(quant::get(ops::run(op, in_mode(mode)).C, 0), 0.5 * 8 * (5 - 8 + 9 - 8)) << name(mode);
    op.B_zp = filled(DType::u8, {3, 1, 2}, 0x31);  // 1 for even n, 3 for odd
    const Tensor out = ops::run(op, in_mode(mode)).C;
    EXPECT_EQ(quant::get(out, 0), 0.5 * 8 * (5 - 1 + 9 - 1)) << name(mode);
    EXPECT_EQ(quant::get(out, 1), 0.5 * 8 * (5 - 3 + 9 - 3)) << name(mode);
  }
}

TEST(FusedMoeKernel, SumsOfIntegersMeetFp32OnceForEachTile) {
  // 2^24 and then ones: fp32 holds what a tile of its own adds up to, and no single one more.
  auto op = call(1, 2048);
  op.A = filled(DType::i8, {3, 2048}, 127.0);
  op.B = filled(DType::i8, {3, 1, 2048}, 127.0);
  op.A_scale = filled(DType::f32, {3, 1}, 0x1p-12);
  op.B_scale = filled(DType::f32, {3, 1}, 1.0);
  op.use_int8_w8a8 = op.per_channel_quant = true;
  for (const Mode mode : all_modes) {
    const double sum = 2048.0 * 127 * 127;
    EXPECT_EQ(quant::get(ops::run(op, in_mode(mode)).C, 0), quant::round_to(DType::bf16, sum / 4096)) << name(mode);
  }
}

/// The same elements with others between them in every direction.
Tensor spread(const Tensor& t) {
  Dims strides = contiguous_strides(t.shape());
  std::int64_t stride = 2;
  for (int i = t.rank() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= t.size(i) + 1;
  }
  const Tensor view = make_strided(t.dtype(), t.shape(), strides, std::byte{0x3F});
  copy(t, view);
  return view;
}

TEST(FusedMoeKernel, StridesOfTokensWeightsAndScalesDoNotShow) {
  const NamedOp op{"fused_moe_kernel"};
  for (const std::string& line : op.op().cases()) {
    const Arguments dense = op.case_of(line);
    Arguments strided = dense;
    for (const char* name : {"A", "B", "bias", "A_scale", "B_scale", "B_zp"})
      if (const Tensor* t = dense.find(name)) strided.set(name, spread(*t));
    for (const Mode mode : all_modes)
      EXPECT_TRUE(same_bits(op.outputs(dense, in_mode(mode))[0].second, op.outputs(strided, in_mode(mode))[0].second))
          << name(mode) << line;
  }
}

TEST(FusedMoeKernel, CallsThatDoNotFitAreOneErrorEach) {
  const auto expect = [](const std::function<void(ops::FusedMoeKernel&)>& change, const std::string& text) {
    auto op = call(3, 16);
    change(op);
    const std::string error = error_of(op);
    EXPECT_NE(error.find("fused_moe_kernel: " + text), std::string::npos) << error;
  };
  using Call = ops::FusedMoeKernel;
  expect([](Call& op) { op.expert_ids = ints({4}, {2, 3, 0, 0}); }, "expert_ids holds 3 at element 1, expected -1 for experts elsewhere");
  expect([](Call& op) { op.filter_expert = false; }, "expert_ids holds -1 at element 1, expected an id below the experts of B, 3");
  expect([](Call& op) { op.sorted_token_ids.as<std::int32_t>()[1] = -1; }, "sorted_token_ids holds -1 at element 1");
  expect([](Call& op) { op.sorted_token_ids.as<std::int32_t>()[9] = 3; },
         "sorted_token_ids holds 3 at element 9, expected each pair of topk_ids once");
  expect([](Call& op) { op.num_tokens_post_padded = ints({1}, {13}); }, "num_tokens_post_padded holds 13 at element 0, expected 0 to 12");
  expect([](Call& op) { op.top_k = 3; }, "A has shape [3, 16]");
  expect([](Call& op) { op.use_fp8_w8a8 = op.use_int8_w8a8 = true; }, "use_int8_w8a8 is true, expected false beside use_fp8_w8a8");
  expect([](Call& op) { op.use_fp8_w8a8 = true; }, "A has dtype bf16, expected f8_e4m3: use_fp8_w8a8");
  expect([](Call& op) { op.A_scale = filled(DType::f32, {1}, 1); }, "A_scale has shape [1], expected none");
  expect(
      [](Call& op) {
        op.use_int8_w8a16 = true;
        op.B = filled(DType::i8, {3, 3, 16}, 1);
      },
      "B_scale is missing, expected [3, 3]");
  expect(
      [](Call& op) {
        op.use_fp8_w8a8 = true;
        op.block_n = op.block_k = 32;
      },
      "BLOCK_SIZE_K is 64, expected a divisor of block_shape_1 = 32");
  expect(
      [](Call& op) {
        op.use_int4_w4a16 = true;
        op.block_k = 12;
        op.B = filled(DType::u8, {3, 3, 8}, 1);
        op.B_scale = filled(DType::f32, {3, 3, 1}, 1);
      },
      "block_shape_1 is 12, expected a divisor of K = 16");
}

}  // namespace
}  // namespace dodona
