// Quantizers by groups: layouts of scales, zero groups, NaN, what int8 is cut to, and the defects of version 1.
#include <gtest/gtest.h>

#include "dodona/error.h"
#include "ops/activation/silu_and_mul.h"
#include "ops/quantization/sgl_per_token_group_quant_8bit.h"
#include "ops/quantization/sgl_per_token_group_quant_fp8.h"
#include "ops/quantization/sgl_per_token_group_quant_int8.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;
using ops::SglPerTokenGroupQuant8bit;
using ops::SglPerTokenGroupQuantFp8;
using ops::SglPerTokenGroupQuantInt8;

SglPerTokenGroupQuant8bit powers(const Tensor& input, bool version_2) {
  return {.input = input, .scale_ue8m0 = true, .enable_v2 = version_2};
}
std::uint8_t byte_of(const Tensor& words, std::int64_t m, std::int64_t g) {
  return static_cast<std::uint8_t>(quant::get_bits(words, m * words.size(1) + g / 4) >> (g % 4 * 8));
}
int code(const Tensor& codes, std::int64_t i) {
  return static_cast<int>(quant::get_bits(codes, i));
}

TEST(GroupQuant, ScalesLieWhereTheCallerWantsThem) {
  const Tensor input = normal(DType::bf16, {5, 384}, "input");
  for (const Mode mode : all_modes) {
    const auto plain = ops::run(SglPerTokenGroupQuantFp8{.input = input}, in_mode(mode));
    // Row-major, by columns, and by columns whose rows are padded to 4.
    for (const Dims& strides : {Dims{3, 1}, Dims{1, 5}, Dims{1, 8}}) {
      const Tensor memory = filled(DType::f32, {24}, -7);
      const auto laid_out =
          ops::run(SglPerTokenGroupQuantFp8{.input = input, .output_s = Tensor(memory.data(), DType::f32, {5, 3}, strides)}, in_mode(mode));
      EXPECT_TRUE(same_bits(laid_out.output_s, plain.output_s)) << name(mode) << to_string(strides);
      EXPECT_TRUE(same_bits(laid_out.output_q, plain.output_q)) << name(mode) << to_string(strides);
      int untouched = 0;
      for (std::int64_t i = 0; i < 24; ++i) untouched += quant::get(memory, i) == -7 ? 1 : 0;
      EXPECT_EQ(untouched, 9) << name(mode) << to_string(strides);
    }
  }
}

TEST(GroupQuant, WordsHoldFourGroupsAndPaddingRowsAreLeftAlone) {
  const Tensor input = normal(DType::bf16, {3, 640}, "input");
  for (const Mode mode : all_modes) {
    const Tensor memory = filled(DType::i32, {8}, 0x5A5A5A5A);
    auto call = powers(input, true);
    call.output_s = Tensor(memory.data(), DType::i32, {3, 2}, {1, 4});
    const auto done = ops::run(call, in_mode(mode));
    const auto* const bytes = memory.as<std::uint8_t>();
    for (std::int64_t m = 0; m < 3; ++m)
      for (std::int64_t g = 0; g < 8; ++g)
        EXPECT_EQ(bytes[(g / 4 * 4 + m) * 4 + g % 4], g < 5 ? byte_of(done.output_s, m, g) : 0) << name(mode) << m << g;
    EXPECT_EQ(memory.as<std::uint32_t>()[3], 0x5A5A5A5Au);
    EXPECT_EQ(memory.as<std::uint32_t>()[7], 0x5A5A5A5Au);
  }
}

TEST(GroupQuant, AZeroGroupHasTheScaleOfTheLeastMagnitude) {
  Tensor input = filled(DType::bf16, {1, 128}, 0);
  quant::set(input, 1, -0.0);
  for (const Mode mode : all_modes) {
    const auto plain = ops::run(SglPerTokenGroupQuantFp8{.input = input}, in_mode(mode));
    EXPECT_NEAR(quant::get(plain.output_s, 0), 1e-10 / 448, 1e-19);
    EXPECT_EQ(code(plain.output_q, 0), 0x00);
    EXPECT_EQ(code(plain.output_q, 1), 0x80);
    EXPECT_EQ(byte_of(ops::run(powers(input, true), in_mode(mode)).output_s, 0, 0), 127 - 42) << name(mode);
  }
  EXPECT_EQ(byte_of(ops::run(powers(input, false), in_mode(Mode::golden)).output_s, 0, 0), 127 - 33);
  EXPECT_EQ(byte_of(ops::run(powers(input, false), in_mode(Mode::hopper)).output_s, 0, 0), 127 - 32) << "one too high";
}

TEST(GroupQuant, Int8IsCutTowardZero) {
  Tensor input = filled(DType::f32, {1, 128}, 0);
  const Values x{127, -3.7, 3.99, -0.6, -127}, cut{127, -3, 3, 0, -127};
  for (std::size_t i = 0; i < x.size(); ++i) quant::set(input, static_cast<std::int64_t>(i), x[i]);
  for (const Mode mode : all_modes) {
    const auto done = ops::run(SglPerTokenGroupQuantInt8{.input = input}, in_mode(mode));
    EXPECT_EQ(done.output_q.dtype(), DType::i8);
    for (std::size_t i = 1; i + 1 < x.size(); ++i)
      EXPECT_EQ(quant::get(done.output_q, static_cast<std::int64_t>(i)), cut[i]) << name(mode) << i;
  }
}

TEST(GroupQuant, ACodeThatMayBeCutToEitherSideIsJudgedAsEither) {
  // 127 / 127 is 1, or what lies just below it by another division.
  Arguments inputs;
  inputs.set("input", filled(DType::f32, {1, 128}, 127));
  const NamedOp op{"sgl_per_token_group_quant_int8"};
  const Tensor scale = filled(DType::f32, {1, 1}, 1);
  for (const auto& [value, wrong] : {std::pair(127, 0), {126, 0}, {125, 128}})
    EXPECT_EQ(op.failing(inputs, {{"output_q", filled(DType::i8, {1, 128}, value)}, {"output_s", scale}}), wrong) << value;
}

TEST(GroupQuant, NanBecomesTheLeastCodeAndIsNoMagnitude) {
  Tensor input = filled(DType::f32, {1, 256}, 2);
  quant::set(input, 3, std::numeric_limits<double>::quiet_NaN());
  for (const Mode mode : all_modes) {
    const auto fp8 = ops::run(SglPerTokenGroupQuantFp8{.input = input}, in_mode(mode));
    EXPECT_EQ(code(fp8.output_q, 3), 0xFE) << name(mode);
    EXPECT_EQ(quant::get(fp8.output_s, 0), quant::get(fp8.output_s, 1)) << name(mode);
    EXPECT_EQ(quant::get(ops::run(SglPerTokenGroupQuantInt8{.input = input}, in_mode(mode)).output_q, 3), -128) << name(mode);
  }
}

/// The verdict on what hopper mode gives.
oracle::Outcome outcome_of_hopper(const Arguments& inputs) {
  const NamedOp op{"sgl_per_token_group_quant_8bit"};
  return oracle::judge(op.op(), inputs, op.outputs(inputs, in_mode(Mode::hopper)), {}).outcome;
}

TEST(GroupQuant, TheExponentThatVersion1StoresIsAKnownDefect) {
  Arguments inputs;
  inputs.set_attr("scale_ue8m0", true);
  // Maxima of 448 * 2^-3, whose scale is a power of two that the approximate logarithm misses, and others.
  Tensor input = normal(DType::bf16, {4, 512}, "input");
  for (std::int64_t m = 0; m < 4; ++m)
    for (std::int64_t k = 0; k < 128; ++k) quant::set(input, m * 512 + k, k == 7 ? 56.0 : quant::get(input, m * 512 + k));
  inputs.set("input", input);
  EXPECT_EQ(outcome_of_hopper(inputs), oracle::Outcome::known_defect);
  EXPECT_EQ(byte_of(NamedOp{"sgl_per_token_group_quant_8bit"}.outputs(inputs, in_mode(Mode::golden))[1].second, 0, 0), 127 - 3);
  inputs.set_attr("enable_v2", true);
  EXPECT_EQ(outcome_of_hopper(inputs), oracle::Outcome::pass);
}

TEST(GroupQuant, AnExponentThatDoesNotGoWithItsCodesFails) {
  Arguments inputs;
  inputs.set_attr("scale_ue8m0", true);
  inputs.set("input", normal(DType::bf16, {2, 512}, "input"));
  const NamedOp op{"sgl_per_token_group_quant_8bit"};
  auto outputs = op.outputs(inputs, in_mode(Mode::golden));
  EXPECT_EQ(op.failing(inputs, outputs), 0);
  const Tensor words = outputs[1].second.clone();
  quant::set_bits(words, 0, quant::get_bits(words, 0) - 1);
  outputs[1].second = words;
  EXPECT_EQ(op.failing(inputs, outputs), 1);
}

TEST(GroupQuant, FusionIsSiluThenItsProductEachRoundedToTheType) {
  const Tensor input = normal(DType::f16, {3, 768}, "input");
  const auto products = ops::run(ops::SiluAndMul{.input = input, .round_activation = "yes"}, in_mode(Mode::fast));
  const auto apart = ops::run(powers(products.out, true), in_mode(Mode::fast));
  auto call = powers(input, true);
  call.fuse_silu_and_mul = true;
  const auto fused = ops::run(call, in_mode(Mode::fast));
  EXPECT_TRUE(same_bits(fused.output_q, apart.output_q));
  EXPECT_TRUE(same_bits(fused.output_s, apart.output_s));
}

TEST(GroupQuant, AGroupWhoseProductOverflowsIsOpenAndTheOthersAreNot) {
  Arguments inputs;
  Tensor input = normal(DType::f16, {1, 512}, "input");
  quant::set(input, 5, 64.0);
  quant::set(input, 256 + 5, 4096.0);  // 2^18
  inputs.set("input", input);
  for (const char* attribute : {"scale_ue8m0", "enable_v2", "fuse_silu_and_mul"}) inputs.set_attr(attribute, true);
  const NamedOp op{"sgl_per_token_group_quant_8bit"};
  for (const Mode mode : all_modes) {
    const auto verdict = oracle::judge(op.op(), inputs, op.outputs(inputs, in_mode(mode)), {});
    EXPECT_EQ(verdict.outcome, oracle::Outcome::pass) << name(mode);
    EXPECT_EQ(verdict.outputs[0].compared, 128) << name(mode);
  }
}

TEST(GroupQuant, RowsThatTheMaskLeavesOutAreNotCompared) {
  Arguments inputs;
  inputs.set("input", normal(DType::bf16, {2, 3, 1024}, "input"));
  inputs.set("masked_m", tensor_of(DType::i32, {2}, {1, 2}));
  for (const char* flag : {"scale_ue8m0", "enable_v2", "fuse_silu_and_mul"}) inputs.set_attr(flag, true);
  inputs.set_attr("group_size", std::int64_t{32});
  const NamedOp op{"sgl_per_token_group_quant_8bit"};
  for (const Mode mode : all_modes) {
    auto outputs = op.outputs(inputs, in_mode(mode));
    EXPECT_EQ(outputs[0].second.shape(), (Dims{2, 3, 512}));
    EXPECT_EQ(outputs[1].second.shape(), (Dims{2, 3, 4}));
    EXPECT_EQ(op.failing(inputs, outputs), 0) << name(mode);
    for (const std::int64_t m : {1, 2, 5}) quant::set_bits(outputs[0].second, m * 512 + 9, 0x55);
    EXPECT_EQ(op.failing(inputs, outputs), 0) << name(mode);
    for (const std::int64_t m : {0, 3, 4}) quant::set_bits(outputs[0].second, m * 512 + 9, 0x55);
    EXPECT_EQ(op.failing(inputs, outputs), 3) << name(mode);
  }
  inputs.set("masked_m", tensor_of(DType::i32, {2}, {1, 4}));
  EXPECT_THROW(op.outputs(inputs, in_mode(Mode::fast)), Error);
}

TEST(GroupQuant, WhatKernelsDoNotTakeIsRefused) {
  const Tensor input = normal(DType::bf16, {2, 256}, "input"), wide = normal(DType::f32, {2, 256}, "input");
  const auto refused = [](SglPerTokenGroupQuant8bit call) { EXPECT_THROW(ops::run(call, in_mode(Mode::fast)), Error); };
  refused({.input = input, .group_size = 96});
  refused({.input = input, .group_size = 4});
  refused({.input = wide, .enable_v2 = true});
  refused({.input = input, .eps = 1e-4, .enable_v2 = true});
  refused({.input = input, .fuse_silu_and_mul = true, .enable_v2 = true});
  refused({.input = input, .output_s = Tensor(DType::f32, {2, 1}), .scale_ue8m0 = true});
  refused({.input = input, .fp8_min = -128});
  refused({.input = input, .output_q = Tensor(DType::i8, {2, 256})});
}

}  // namespace
}  // namespace dodona
