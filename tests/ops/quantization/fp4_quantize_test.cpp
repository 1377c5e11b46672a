// Rules of fp4_quantize and mxfp8_quantize.
#include "ops/quantization/fp4_quantize.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dodona/error.h"
#include "ops/quantization/mxfp8_quantize.h"
#include "ops/quantization/nvfp4_quantize.h"
#include "ops/quantization/scaled_fp4_quant.h"
#include "quant/mx.h"
#include "quant/nvfp4.h"
#include "quant/swizzle.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;
using quant::ScaleLayout;

constexpr Mode modes[] = {Mode::golden, Mode::fast};

Tensor rows(DType type, std::int64_t m, std::int64_t k) {
  const Tensor x(type, {m, k});
  for (std::int64_t i = 0; i < x.elements(); ++i)
    quant::set(x, i, std::sin(0.7 * static_cast<double>(i)) * std::exp2(static_cast<double>(i % 7)));
  return x;
}
ops::Fp4Quantize call(const Tensor& x, bool powers, ScaleLayout layout) {
  ops::Fp4Quantize op{.input = x, .global_scale = tensor_of(DType::f32, {1}, {1.7}), .x_q = {}, .sf = {}};
  op.sf_use_ue8m0 = powers, op.sf_vec_size = powers ? 32 : 16;
  op.is_sf_swizzled_layout = layout != ScaleLayout::linear, op.is_sf_8x4_layout = layout == ScaleLayout::swizzled_8x4;
  return op;
}
std::vector<float> wide(const Tensor& x) {
  std::vector<float> values(static_cast<std::size_t>(x.elements()));
  quant::to_f32(x.dtype(), x.data(), values.data(), x.elements());
  return values;
}

TEST(Fp4Quantize, IsTheBlockQuantizerOnEveryBlockInEveryLayout) {
  for (const DType type : {DType::bf16, DType::f16})
    for (const bool powers : {false, true})
      for (const ScaleLayout layout : {ScaleLayout::linear, ScaleLayout::swizzled_8x4, ScaleLayout::swizzled_128x4})
        for (const std::int64_t k : {32, 96, 544}) {
          const Tensor x = rows(type, 11, k);
          const std::int64_t blocks = k / (powers ? 32 : 16);
          std::vector<std::uint8_t> codes(static_cast<std::size_t>(11 * k / 2)), scales(static_cast<std::size_t>(11 * blocks));
          if (powers) {
            quant::quantize_mxfp4(wide(x), 11, k, codes, scales);
          } else {
            quant::quantize_nvfp4(wide(x), 11, k, 1.7f, quant::nvfp4_flashinfer, codes, scales);
          }
          for (const Mode mode : modes) {
            const auto op = ops::run(call(x, powers, layout), in_mode(mode));
            EXPECT_EQ(op.sf.dtype(), powers ? DType::f8_e8m0 : DType::f8_e4m3);
            EXPECT_EQ(op.sf.elements(), quant::padded_size(layout, 11, blocks).elements());
            ASSERT_TRUE(std::equal(codes.begin(), codes.end(), op.x_q.as<std::uint8_t>())) << name(mode) << ' ' << powers << ' ' << k;
            for (std::int64_t m = 0; m < 11; ++m)
              for (std::int64_t c = 0; c < blocks; ++c)
                ASSERT_EQ(op.sf.as<std::uint8_t>()[quant::scale_offset(layout, m, c, blocks)],
                          scales[static_cast<std::size_t>(m * blocks + c)]);
          }
        }
}

TEST(Fp4Quantize, IsScaledFp4QuantWithZerosByTheMaximum) {
  const Tensor x = normal(DType::bf16, {40, 160}, "x");
  const auto op = ops::run(call(x, false, ScaleLayout::swizzled_128x4), in_mode(Mode::golden));
  const auto same = ops::run(
      ops::ScaledFp4Quant{
          .input = x, .input_global_scale = tensor_of(DType::f32, {1}, {1.7}), .output = {}, .output_scale = {}, .zero_block = "amax"},
      in_mode(Mode::golden));
  EXPECT_TRUE(same_bits(op.x_q, same.output));
  EXPECT_TRUE(same_bits(op.sf, same.output_scale));
}

TEST(Fp4Quantize, AnInversedScaleIsItsReciprocal) {
  const Tensor x = normal(DType::bf16, {3, 64}, "x");
  for (const Mode mode : modes) {
    auto op = call(x, false, ScaleLayout::linear);
    quant::set(op.global_scale, 0, 4.0);
    const auto plain = ops::run(op, in_mode(mode));
    quant::set(op.global_scale, 0, 0.25);
    op.is_global_scale_inversed = true;
    const auto inversed = ops::run(op, in_mode(mode));
    EXPECT_TRUE(same_bits(plain.x_q, inversed.x_q)) << name(mode);
    EXPECT_TRUE(same_bits(plain.sf, inversed.sf)) << name(mode);
  }
}

TEST(Fp4Quantize, ZerosNanAndInfinityOfPowersOfTwo) {
  const Tensor x(DType::bf16, {4, 32});
  quant::set(x, 1, -0.0);
  for (std::int64_t i = 0; i < 32; ++i) quant::set(x, 32 + i, std::nan(""));
  for (std::int64_t i = 0; i < 32; ++i) quant::set(x, 64 + i, i == 5 ? std::nan("") : -6.0);
  quant::set(x, 96, infinity);
  for (const Mode mode : modes) {
    const auto op = ops::run(call(x, true, ScaleLayout::linear), in_mode(mode));
    const auto* const sf = op.sf.as<std::uint8_t>();
    EXPECT_EQ(sf[0], 0) << name(mode);
    EXPECT_EQ(sf[1], 255) << name(mode);
    EXPECT_EQ(sf[2], 127) << name(mode);
    EXPECT_EQ(sf[3], 254) << name(mode);
    EXPECT_EQ(op.x_q.as<std::uint8_t>()[0], 0x80) << name(mode);
    EXPECT_EQ(op.x_q.as<std::uint8_t>()[16], 0x77) << name(mode);
    EXPECT_EQ(op.x_q.as<std::uint8_t>()[34], 0x7F) << name(mode);  // -6 below, NaN above
  }
}

TEST(Fp4Quantize, BytesBecomeHalvesFirst) {
  const Tensor x = filled(DType::f8_e4m3, {1, 16}, 1.0);
  quant::set(x, 3, -448.0);
  for (const Mode mode : modes) {
    auto op = call(x, false, ScaleLayout::linear);
    quant::set(op.global_scale, 0, 1.0);
    op = ops::run(op, in_mode(mode));
    EXPECT_EQ(quant::get(op.sf, 0), 448.0) << name(mode);
    EXPECT_EQ(op.x_q.as<std::uint8_t>()[1], 0xF0) << name(mode);
  }
}

TEST(Fp4Quantize, FormatsThatAreNotThereAreRefused) {
  const Tensor x = rows(DType::bf16, 2, 32);
  auto op = call(x, true, ScaleLayout::linear);
  op.sf_vec_size = 16;
  EXPECT_THROW(ops::run(op, in_mode(Mode::fast)), Error);
  op = call(x, false, ScaleLayout::linear);
  op.global_scale = {};
  EXPECT_THROW(ops::run(op, in_mode(Mode::fast)), Error);
  op = call(x, true, ScaleLayout::linear);
  op.global_scale = {};
  EXPECT_NO_THROW(ops::run(op, in_mode(Mode::fast)));
}

ops::Nvfp4Quantize by_row(const Tensor& x, float base) {
  ops::Nvfp4Quantize op{
      .a = x, .a_global_sf = tensor_of(DType::f32, {1}, {static_cast<double>(base)}), .x_q = {}, .sf = {}, .per_token_scale = {}};
  op.per_token_activation = true, op.is_sf_swizzled_layout = false;
  return op;
}

TEST(Nvfp4Quantize, ARowWithItsOwnScaleIsTheRowAloneWithThatScalesInverse) {
  constexpr float base = 1.0f / (448.0f * 6.0f);
  for (const DType type : {DType::bf16, DType::f16})
    for (const std::int64_t k : {16, 96, 544}) {
      const Tensor x = rows(type, 7, k);
      for (std::int64_t i = 0; i < x.elements(); ++i) quant::set(x, i, quant::get(x, i) * std::exp2(static_cast<double>(i / k) - 3.0));
      for (const Mode mode : modes) {
        const auto all = ops::run(by_row(x, base), in_mode(mode));
        for (std::int64_t m = 0; m < 7; ++m) {
          double amax = 0;
          for (std::int64_t i = 0; i < k; ++i) amax = std::max(amax, std::fabs(quant::get(x, m * k + i)));
          const float scale = static_cast<float>(amax) * base;
          EXPECT_EQ(quant::get(all.per_token_scale, m), static_cast<double>(scale)) << name(mode);
          ops::Nvfp4Quantize one{.a = x.slice(0, m, m + 1), .a_global_sf = tensor_of(DType::f32, {1}, {static_cast<double>(1.0f / scale)})};
          one.is_sf_swizzled_layout = false;
          one = ops::run(one, in_mode(mode));
          EXPECT_TRUE(same_bits(one.x_q, all.x_q.slice(0, m, m + 1))) << name(mode) << m;
          EXPECT_TRUE(same_bits(one.sf, all.sf.slice(0, m, m + 1))) << name(mode) << m;
        }
      }
    }
}

TEST(Nvfp4Quantize, ShuffledRowsTakeTheirScalesWithThem) {
  const Tensor x = rows(DType::bf16, 32, 32);
  for (std::int64_t i = 0; i < x.elements(); ++i) quant::set(x, i, quant::get(x, i) * std::exp2(static_cast<double>(i / 32 % 5)));
  const auto plain = ops::run(by_row(x, 0.5f), in_mode(Mode::fast));
  ops::Nvfp4Quantize op = by_row(x, 0.5f);
  op.is_sf_swizzled_layout = true, op.do_shuffle = true;
  for (const Mode mode : modes) {
    const auto dealt = ops::run(op, in_mode(mode));
    for (std::int64_t m = 0; m < 32; ++m) {
      EXPECT_EQ(quant::get(dealt.per_token_scale, m), quant::get(plain.per_token_scale, m % 8 * 4 + m / 8)) << name(mode) << m;
      EXPECT_TRUE(same_bits(dealt.x_q.slice(0, m, m + 1), plain.x_q.slice(0, m % 8 * 4 + m / 8, m % 8 * 4 + m / 8 + 1))) << name(mode) << m;
    }
  }
}

TEST(Nvfp4Quantize, RowsOfZerosAreOpenAndBytesAreRefused) {
  const Tensor x = filled(DType::bf16, {2, 32}, 0.0);
  quant::set(x, 40, 3.0);
  const auto fast = ops::run(by_row(x, 0.25f), in_mode(Mode::fast));
  EXPECT_EQ(quant::get(fast.per_token_scale, 0), 0.0);
  EXPECT_EQ(quant::get(fast.per_token_scale, 1), 0.75);
  const NamedOp op{"nvfp4_quantize"};
  Arguments inputs = op.case_of("M=2 K=32 --attr per_token_activation=true");
  inputs.set("a", x);
  auto outputs = op.outputs(inputs, in_mode(Mode::fast));
  for (const int byte : {0x7F, 0x00, 0x38})  // the first is what kernels with a reciprocal of 0 have
    for (auto& [name, tensor] : outputs) {
      if (name == "sf") tensor.as<std::uint8_t>()[0] = static_cast<std::uint8_t>(byte);
      EXPECT_EQ(op.failing(inputs, outputs), 0) << byte;
    }
  for (auto& [name, tensor] : outputs)
    if (name == "per_token_scale") tensor.as<float>()[1] *= 1.001f;
  EXPECT_NE(op.failing(inputs, outputs), 0);
  inputs.set("a", filled(DType::f8_e4m3, {2, 32}, 1.0));
  EXPECT_THROW(op.outputs(inputs, in_mode(Mode::fast)), Error);
}

TEST(Mxfp8Quantize, IsTheBlockQuantizerAndFillsRowsUp) {
  const Tensor x = rows(DType::f16, 9, 96);
  std::vector<std::uint8_t> codes(9 * 96), scales(9 * 3);
  quant::quantize_mxfp8(wide(x), 9, 96, codes, scales);
  for (const Mode mode : modes)
    for (const bool tiles : {false, true}) {
      ops::Mxfp8Quantize op{.input = x, .x_q = {}, .sf = {}, .is_sf_swizzled_layout = tiles, .alignment = 128};
      op = ops::run(op, in_mode(mode));
      EXPECT_EQ(op.x_q.shape(), (Dims{9, 128}));
      const ScaleLayout layout = tiles ? ScaleLayout::swizzled_128x4 : ScaleLayout::linear;
      for (std::int64_t m = 0; m < 9; ++m) {
        for (std::int64_t k = 0; k < 128; ++k)
          ASSERT_EQ(op.x_q.as<std::uint8_t>()[m * 128 + k], k < 96 ? codes[static_cast<std::size_t>(m * 96 + k)] : 0);
        for (std::int64_t c = 0; c < 4; ++c)
          ASSERT_EQ(op.sf.as<std::uint8_t>()[quant::scale_offset(layout, m, c, 4)],
                    c < 3 ? scales[static_cast<std::size_t>(m * 3 + c)] : 0);
      }
    }
}

TEST(Mxfp8Quantize, OfFloatsIsThatOfTheHalvesThatTheyAre) {
  const Tensor x = rows(DType::f16, 9, 96);
  const Tensor floats = tensor_of(DType::f32, x.shape(), values_of(x));
  for (const Mode mode : modes) {
    const auto made = [&](const Tensor& input) { return ops::run(ops::Mxfp8Quantize{.input = input, .x_q = {}, .sf = {}}, in_mode(mode)); };
    EXPECT_TRUE(same_bits(made(x).x_q, made(floats).x_q)) << name(mode);
    EXPECT_TRUE(same_bits(made(x).sf, made(floats).sf)) << name(mode);
  }
}

}  // namespace
}  // namespace dodona
