// Rules of scaled_fp4_experts_quant.
#include "ops/quantization/scaled_fp4_experts_quant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "dodona/error.h"
#include "ops/quantization/scaled_fp4_quant.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"
#include "quant/swizzle.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/ints.h"

namespace dodona {
namespace {

using helpers::in_mode, helpers::ints;

constexpr Mode every_mode[] = {Mode::golden, Mode::fast, Mode::hopper};

Tensor floats(const std::vector<float>& values) {
  const Tensor t(DType::f32, {static_cast<std::int64_t>(values.size())});
  std::memcpy(t.data(), values.data(), 4 * values.size());
  return t;
}
Tensor rows(DType type, std::int64_t m, std::int64_t k) {
  const Tensor x(type, {m, k});
  for (std::int64_t i = 0; i < x.elements(); ++i)
    quant::set(x, i, std::sin(0.7 * static_cast<double>(i)) * std::exp2(static_cast<double>(i % 7)));
  return x;
}

const std::vector<float> encode_scales{1.7f, 100.0f, 0.3f};

/// Three experts, the second one empty.
ops::ScaledFp4ExpertsQuant call(std::int64_t k = 80, DType type = DType::bf16) {
  return {.input_tensor = rows(type, 140, k),
          .input_global_scale = floats(encode_scales),
          .expert_offsets = ints({0, 130, 130, 138}),
          .blockscale_offsets = ints({128, 384, 384, 512}),
          .expert_map = {},
          .output = {},
          .output_scales = {}};
}

std::uint8_t scale(const Tensor& scales, std::int64_t first_row, std::int64_t r, std::int64_t c, std::int64_t k) {
  return scales.as<std::uint8_t>()[first_row * scales.size(1) + quant::scale_offset(quant::ScaleLayout::swizzled_128x4, r, c, k / 16)];
}

TEST(ScaledFp4ExpertsQuant, ScalesOfNobodyAreZerosHoweverManyThereAre) {
  for (const std::int64_t beyond : {0, 60000}) {
    auto op = call(1280);
    op.blockscale_offsets = ints({128, 384, 384, static_cast<std::int32_t>(512 + beyond / 128 * 128)});
    op.output_scales = Tensor(DType::f8_e4m3, {512 + beyond / 128 * 128, 80});
    op.topk = 2;
    const auto clean = ops::run(op, in_mode(Mode::fast));
    const std::vector<std::uint8_t> expected(clean.output_scales.as<std::uint8_t>(),
                                             clean.output_scales.as<std::uint8_t>() + clean.output_scales.elements());
    EXPECT_LE(static_cast<std::int64_t>(expected.size()) - std::count(expected.begin(), expected.end(), 0), 138 * 80);
    for (const Isa isa : available_isas()) {
      std::memset(op.output_scales.data(), 0xA5, expected.size());
      const auto again = ops::run(op, in_mode(Mode::fast, 2, isa));
      EXPECT_EQ(std::memcmp(again.output_scales.data(), expected.data(), expected.size()), 0) << name(isa) << " " << beyond;
    }
  }
}

TEST(ScaledFp4ExpertsQuant, AnExpertsRowsAreThoseOfTheSingleQuantizerInThePlaceOfItsOffset) {
  for (const std::int64_t k : {16, 80, 1040})
    for (const DType type : {DType::bf16, DType::f16})
      for (const Mode mode : every_mode) {
        const auto op = ops::run(call(k, type), in_mode(mode));
        ASSERT_EQ(op.output_scales.shape(), (Dims{512, quant::align(k / 16, 4)}));
        for (const std::size_t e : {0u, 2u}) {
          const std::int64_t begin = op.expert_offsets.as<std::int32_t>()[e], end = op.expert_offsets.as<std::int32_t>()[e + 1];
          const auto one = ops::run(ops::ScaledFp4Quant{.input = op.input_tensor.slice(0, begin, end),
                                                        .input_global_scale = floats({encode_scales[e]}),
                                                        .output = {},
                                                        .output_scale = {}},
                                    in_mode(mode));
          ASSERT_EQ(0, std::memcmp(op.output.as<std::uint8_t>() + begin * k / 2, one.output.data(),
                                   static_cast<std::size_t>((end - begin) * k / 2)));
          const std::int64_t first = op.blockscale_offsets.as<std::int32_t>()[e];
          for (std::int64_t r = 0; r < end - begin; ++r)
            for (std::int64_t c = 0; c < k / 16; ++c)
              ASSERT_EQ(scale(op.output_scales, first, r, c, k), scale(one.output_scale, 0, r, c, k)) << e << ' ' << r << ' ' << c;
        }
      }
}

TEST(ScaledFp4ExpertsQuant, WithoutOffsetsEachExpertsScalesBeginAtTheNextMultipleOf128) {
  auto given = call(), derived = call();
  given.blockscale_offsets = ints({0, 256, 256, 384});
  derived.blockscale_offsets = {};
  for (const Mode mode : every_mode) {
    const auto a = ops::run(given, in_mode(mode)), b = ops::run(derived, in_mode(mode));
    ASSERT_EQ(a.output_scales.shape(), b.output_scales.shape());
    EXPECT_EQ(0, std::memcmp(a.output_scales.data(), b.output_scales.data(), static_cast<std::size_t>(a.output_scales.elements())));
  }
}

TEST(ScaledFp4ExpertsQuant, AMapGathersItsRowsFirst) {
  auto mapped = call();
  const Tensor source = mapped.input_tensor;
  std::vector<std::int32_t> map(140);
  const Tensor gathered(DType::bf16, source.shape());
  for (std::int64_t i = 0; i < 140; ++i) {
    map[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * i % 97);
    std::memcpy(gathered.as<std::uint16_t>() + i * 80, source.as<std::uint16_t>() + i * i % 97 * 80, 160);
  }
  mapped.expert_map = ints(map);
  mapped.input_tensor = source.slice(0, 0, 97);
  auto plain = call();
  plain.input_tensor = gathered;
  for (const Mode mode : every_mode) {
    const auto a = ops::run(mapped, in_mode(mode)), b = ops::run(plain, in_mode(mode));
    ASSERT_EQ(a.output.shape(), b.output.shape());
    EXPECT_EQ(0, std::memcmp(a.output.data(), b.output.data(), static_cast<std::size_t>(a.output.elements())));
    EXPECT_EQ(0, std::memcmp(a.output_scales.data(), b.output_scales.data(), static_cast<std::size_t>(a.output_scales.elements())));
  }
  map[3] = 97;
  mapped.expert_map = ints(map);
  EXPECT_NE(helpers::error_of(mapped).find("expert_map holds 97 at element 3"), std::string::npos) << helpers::error_of(mapped);
}

TEST(ScaledFp4ExpertsQuant, WhatBelongsToNobodyIsZeroAndNotCompared) {
  for (const Mode mode : every_mode) {
    auto op = call();
    op.output = Tensor(DType::u8, {140, 40});
    op.output_scales = Tensor(DType::f8_e4m3, {512, 8});
    std::memset(op.output.data(), 0x55, 140 * 40);
    std::memset(op.output_scales.data(), 0x55, 512 * 8);
    op = ops::run(op, in_mode(mode));
    auto& code = op.output.as<std::uint8_t>()[138 * 40];
    auto& before = op.output_scales.as<std::uint8_t>()[0];
    auto& beside = op.output_scales.as<std::uint8_t>()[128 * 8 + quant::scale_offset(quant::ScaleLayout::swizzled_128x4, 0, 5, 5)];
    EXPECT_EQ(code, 0);
    EXPECT_EQ(before, 0);
    EXPECT_EQ(beside, 0);
    code = before = beside = 0x33;
    Arguments inputs;
    inputs.set("input_tensor", op.input_tensor);
    inputs.set("input_global_scale", op.input_global_scale);
    inputs.set("expert_offsets", op.expert_offsets);
    inputs.set("blockscale_offsets", op.blockscale_offsets);
    const Op& entry = registry().at("scaled_fp4_experts_quant");
    EXPECT_EQ(oracle::judge(entry, inputs, {{"output", op.output}, {"output_scales", op.output_scales}}, {}).outcome,
              oracle::Outcome::pass);
    const auto failing = [&] {
      const auto verdict = oracle::judge(entry, inputs, {{"output", op.output}, {"output_scales", op.output_scales}}, {});
      return std::pair(verdict.outputs[0].failing, verdict.outputs[1].failing);
    };
    op.output.as<std::uint8_t>()[9] ^= 0x20;
    EXPECT_EQ(failing().first, 1);
    op.output_scales.as<std::uint8_t>()[384 * 8] ^= 0x10;
    EXPECT_EQ(failing().second, 1);
  }
}

TEST(ScaledFp4ExpertsQuant, OffsetsThatDoNotFitAreErrors) {
  const auto expect = [](const std::vector<std::int32_t>& experts, const std::vector<std::int32_t>& scales, const std::string& text) {
    auto op = call();
    op.expert_offsets = ints(experts);
    op.blockscale_offsets = scales.empty() ? Tensor() : ints(scales);
    const std::string error = helpers::error_of(op);
    EXPECT_NE(error.find("scaled_fp4_experts_quant: " + text), std::string::npos) << error;
  };
  expect({1, 130, 130, 138}, {}, "expert_offsets holds 1 at element 0, expected 0");
  expect({0, 130, 129, 138}, {}, "expert_offsets holds 129 at element 2, expected rising offsets");
  expect({0, 130, 129, 138}, {0, 256, 256, 384}, "expert_offsets holds 129 at element 2, expected rising offsets");
  expect({0, 130, 130, 141}, {}, "expert_offsets holds 141 at element 3");
  expect({0, -1, 130, 138}, {}, "expert_offsets holds -1 at element 1");
  expect({0, 130, 130, 138}, {0, 100, 256, 384}, "blockscale_offsets holds 100 at element 1, expected a multiple of 128");
  expect({0, 130, 130, 138}, {0, 128, 256, 384}, "blockscale_offsets holds 128 at element 1, expected from 256");
  expect({0, 130, 130, 138}, {0, 256, 256, 256}, "blockscale_offsets holds 256 at element 2, expected from 256 with 128 rows");
  expect({0, 130, 130, 138}, {-128, 256, 256, 384}, "blockscale_offsets holds -128 at element 0");
  expect({0, 130, 130, 138}, {0, 256, 256, -128}, "blockscale_offsets holds -128 at element 3");
  expect({0, 130, 130, 138}, {0, 256, 256, 2147483520}, "blockscale_offsets holds 2147483520 at element 3, expected at most 65536 * topk");
  expect({0, 130, 130, 138}, {0, 256, 384}, "blockscale_offsets has shape [3], expected [E+1] with E = 3");
  expect({0, 130, 138}, {}, "expert_offsets has shape [3]");
}

}  // namespace
}  // namespace dodona
