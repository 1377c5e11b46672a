// Modes of GPUs other than the H200: which ops have them, and that their products are chains of that GPU's steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "core/random.h"
#include "dodona/error.h"
#include "ops/gemm/bmm_fp8.h"
#include "ops/gemm/cutlass_scaled_fp4_mm.h"
#include "ops/gemm/dsv3_fused_a_gemm.h"
#include "ops/moe/grouped/cutlass_fp4_group_mm.h"
#include "ops/sums/products_gpu.h"
#include "ops/tiles/mma/mma_fp4.h"
#include "oracle/judge/judge.h"
#include "quant/swizzle.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/quant/step_formats.h"

namespace dodona {
namespace {

using helpers::in_mode;
using testing::HasSubstr;

Tensor bytes(const Dims& shape, const char* name) {
  Tensor t(DType::u8, shape);
  const Stream stream(11, name);
  for (std::int64_t i = 0; i < t.elements(); ++i)
    t.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(word(stream, static_cast<std::uint64_t>(i)));
  return t;
}

std::int64_t scale_at(std::int64_t row, std::int64_t block, std::int64_t k) {
  return quant::scale_offset(quant::ScaleLayout::swizzled_128x4, row, block, k / 16);
}

/// Scales of every exponent and sign (which the unit does not read) but NaN, which stands in the padding.
Tensor scales(std::int64_t rows, std::int64_t k, const char* name) {
  Tensor t(DType::f8_e4m3, {quant::align(rows, 128), quant::align(k / 16, 4)});
  std::memset(t.data(), 0x7F, static_cast<std::size_t>(t.elements()));
  const Tensor codes = bytes({rows, k / 16}, name);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = 0; j < k / 16; ++j) {
      const std::uint8_t code = codes.as<std::uint8_t>()[r * k / 16 + j];
      t.as<std::uint8_t>()[scale_at(r, j, k)] = (code & 0x7F) == 0x7F ? 0 : code;
    }
  return t;
}

/// What the unit does, step by step in integers; K filled up with zeros.
float fp4_chain(const Tensor& a, std::int64_t i, const Tensor& a_scales, const Tensor& b, std::int64_t j, const Tensor& b_scales) {
  const steps::Format& format = *steps::find("sm100_nvf4");
  const std::int64_t k = a.size(1) * 2;
  std::uint32_t acc = 0;
  for (std::int64_t begin = 0; begin < k; begin += 64) {
    const auto line = [&](const Tensor& codes, std::int64_t row, const Tensor& own) {
      steps::Codes step;
      for (std::int64_t at = begin; at < begin + 64; ++at)
        step.numbers.push_back(at < k ? codes.as<std::uint8_t>()[row * k / 2 + at / 2] >> (at % 2 * 4) & 15u : 0u);
      for (std::int64_t at = begin; at < begin + 64; at += 16)
        step.scales.push_back(at < k ? own.as<std::uint8_t>()[scale_at(row, at / 16, k)] : std::uint8_t{0});
      return step;
    };
    acc = steps::by_integers(format, line(a, i, a_scales), line(b, j, b_scales), acc);
  }
  return std::bit_cast<float>(acc);
}

ops::CutlassScaledFp4Mm fp4_call(std::int64_t m, std::int64_t n, std::int64_t k, DType type, float alpha) {
  return {.a = bytes({m, k / 2}, "a"),
          .b = bytes({n, k / 2}, "b"),
          .block_scale_a = scales(m, k, "sa"),
          .block_scale_b = scales(n, k, "sb"),
          .alpha = helpers::tensor_of(DType::f32, {1}, {alpha}),
          .out = {},
          .out_dtype = type};
}

TEST(BlackwellMode, Fp4ProductsAreOneChainOfStepsAndOneRoundingOfEachProductWithAlpha) {
  for (const std::int64_t k : {32, 96, 704})
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      const auto op = ops::run(fp4_call(5, 96, k, type, 0.0123f), in_mode(Mode::blackwell));
      Tensor expected(type, {5, 96});
      for (std::int64_t i = 0; i < 5; ++i)
        for (std::int64_t j = 0; j < 96; ++j)
          quant::set(expected, i * 96 + j, fp4_chain(op.a, i, op.block_scale_a, op.b, j, op.block_scale_b) * 0.0123f);
      EXPECT_TRUE(helpers::same_bits(op.out, expected)) << "K " << k << " " << name(type);
    }
}

TEST(BlackwellMode, DenormalsOfTheEpilogueAreKept) {
  const float alpha = 0x1p-149f;
  const auto op = ops::run(fp4_call(3, 32, 64, DType::f32, alpha), in_mode(Mode::blackwell));
  int denormal = 0;
  for (std::int64_t i = 0; i < op.out.elements(); ++i) {
    const float acc = fp4_chain(op.a, i / 32, op.block_scale_a, op.b, i % 32, op.block_scale_b);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(op.out.as<float>()[i]), std::bit_cast<std::uint32_t>(alpha * acc));
    denormal += op.out.as<float>()[i] != 0 && std::fabs(op.out.as<float>()[i]) < 0x1p-126f;
  }
  EXPECT_GT(denormal, 0);
}

TEST(BlackwellMode, ANanScaleMakesItsRowNanEvenOverZeros) {
  auto op = fp4_call(2, 32, 64, DType::f32, 1.0f);
  std::memset(op.a.data(), 0, static_cast<std::size_t>(op.a.elements()));
  op.block_scale_a.as<std::uint8_t>()[scale_at(1, 2, 64)] = 0xFF;
  op = ops::run(op, in_mode(Mode::blackwell));
  for (std::int64_t j = 0; j < 32; ++j) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(op.out.as<float>()[j]), 0U);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(op.out.as<float>()[32 + j]), 0x7FFFFFFFU);
  }
}

TEST(BlackwellMode, ExpertsMultiplyTheirRowsAsOneProductDoes) {
  const std::int64_t k = 160, n = 32;
  const auto whole = ops::run(fp4_call(7, n, k, DType::bf16, 0.5f), in_mode(Mode::blackwell));
  // Two experts of the same weights, 3 rows and 4: the second expert's scales begin a tile of their own.
  ops::CutlassFp4GroupMm op{.a_fp4 = whole.a,
                            .b_fp4 = Tensor(DType::u8, {2, n, k / 2}),
                            .a_blockscale = Tensor(DType::f8_e4m3, {256, quant::align(k / 16, 4)}),
                            .b_blockscale = Tensor(DType::f8_e4m3, {2, 128, quant::align(k / 16, 4)}),
                            .alphas = helpers::tensor_of(DType::f32, {2}, {0.5, 0.5}),
                            .ab_strides = {},
                            .c_strides = {},
                            .problem_sizes = {},
                            .expert_offsets = helpers::tensor_of(DType::i32, {2}, {0, 3}),
                            .blockscale_offsets = {},
                            .out = {},
                            .out_dtype = DType::bf16};
  for (int e = 0; e < 2; ++e) {
    std::memcpy(op.b_fp4.as<std::uint8_t>() + e * n * k / 2, whole.b.data(), static_cast<std::size_t>(n * k / 2));
    std::memcpy(op.b_blockscale.as<std::uint8_t>() + e * whole.block_scale_b.elements(), whole.block_scale_b.data(),
                static_cast<std::size_t>(whole.block_scale_b.elements()));
  }
  for (std::int64_t r = 0; r < 7; ++r)
    for (std::int64_t j = 0; j < k / 16; ++j)
      op.a_blockscale.as<std::uint8_t>()[scale_at(r < 3 ? r : 128 + r - 3, j, k)] =
          whole.block_scale_a.as<std::uint8_t>()[scale_at(r, j, k)];
  op = ops::run(op, in_mode(Mode::blackwell));
  EXPECT_TRUE(helpers::same_bits(op.out, whole.out));
}

// ---- golden mode's budget where the case says whose kernel it is

Arguments arguments_of(const ops::CutlassScaledFp4Mm& op, const char* accumulator) {
  Arguments inputs;
  inputs.set("a", op.a);
  inputs.set("b", op.b);
  inputs.set("block_scale_a", op.block_scale_a);
  inputs.set("block_scale_b", op.block_scale_b);
  inputs.set("alpha", op.alpha);
  inputs.set_attr("out_dtype", op.out_dtype);
  inputs.set_attr("accumulator", std::string(accumulator));
  return inputs;
}

struct Judged {
  oracle::Outcome outcome;
  double slack = 0;  ///< of all elements
};
Judged judged(const ops::CutlassScaledFp4Mm& op, const char* accumulator, const Tensor& out) {
  const Op& entry = registry().at("cutlass_scaled_fp4_mm");
  const Arguments inputs = arguments_of(op, accumulator);
  const oracle::GoldenRun golden = oracle::run_golden(entry, inputs, in_mode(Mode::golden));
  Judged result{oracle::judge(entry, inputs, golden, {{"out", out}}, {}).outcome};
  for (const double slack : golden.reference.find("out")->slack) result.slack += slack;
  return result;
}

/// As a layer has them: scales about 1.
ops::CutlassScaledFp4Mm ordinary_call(std::int64_t k) {
  auto op = fp4_call(4, 64, k, DType::f32, 1.0f);
  for (const Tensor& own : {op.block_scale_a, op.block_scale_b})
    for (std::int64_t i = 0; i < own.elements(); ++i)
      own.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(own.as<std::uint8_t>()[i] % 16 + 0x30);
  return op;
}

/// What a unit that is nearly the B200's gives.
Tensor outputs_of(const ops::CutlassScaledFp4Mm& op, const quant::tensor_core::Fp4Spec& unit) {
  const std::int64_t m = op.a.size(0), n = op.b.size(0), k = op.a.size(1) * 2;
  const auto linear = [k](const Tensor& own, std::int64_t rows) {
    std::vector<std::uint8_t> codes;
    for (std::int64_t i = 0; i < rows * k / 16; ++i) codes.push_back(own.as<std::uint8_t>()[scale_at(i / (k / 16), i % (k / 16), k)]);
    return codes;
  };
  const std::vector<std::uint8_t> a_scales = linear(op.block_scale_a, m), b_scales = linear(op.block_scale_b, n);
  Tensor out(DType::f32, {m, n});
  std::memset(out.data(), 0, static_cast<std::size_t>(out.elements()) * sizeof(float));
  ops::accumulate(ops::Fp4Rows(unit, {op.a.as<std::uint8_t>(), k / 2, a_scales.data()}, m, k),
                  ops::Fp4Columns(unit, {op.b.as<std::uint8_t>(), k / 2, b_scales.data()}, n, k), 0, k, out.as<float>(), n);
  return out;
}

TEST(Tcgen05Budget, IsFarTighterAndCatchesUnitsThatTheOtherLetsThrough) {
  const auto op = ordinary_call(7168);
  const Tensor right = outputs_of(op, quant::tensor_core::sm100_nvf4);
  EXPECT_TRUE(helpers::same_bits(right, ops::run(op, in_mode(Mode::blackwell)).out));
  const Judged loose = judged(op, "blocks", right), tight = judged(op, "tcgen05", right);
  EXPECT_EQ(loose.outcome, oracle::Outcome::pass);
  EXPECT_EQ(tight.outcome, oracle::Outcome::pass);
  EXPECT_GT(loose.slack, 20 * tight.slack);
  RecordProperty("ratio", std::to_string(loose.slack / tight.slack));

  using quant::tensor_core::Fp4Spec;
  Fp4Spec short_sum = quant::tensor_core::sm100_nvf4, short_addends = short_sum;
  short_sum.sum_bits = 18;
  short_addends.addend_bits = 18;
  for (const Fp4Spec& unit : {short_sum, short_addends}) {
    const Tensor wrong = outputs_of(op, unit);
    EXPECT_EQ(judged(op, "blocks", wrong).outcome, oracle::Outcome::pass) << unit.addend_bits << " " << unit.sum_bits;
    EXPECT_EQ(judged(op, "tcgen05", wrong).outcome, oracle::Outcome::fail) << unit.addend_bits << " " << unit.sum_bits;
  }
}

TEST(Tcgen05Budget, TakesWhatTheUnitGivesForAnyScales) {
  for (const std::int64_t k : {32, 64, 96, 256, 1056, 4096}) {
    for (const float alpha : {1.0f, -0.37f, 0x1p-100f}) {
      auto op = fp4_call(4, 96, k, DType::f32, alpha);  // every scale code, signs among them
      EXPECT_EQ(judged(op, "tcgen05", ops::run(op, in_mode(Mode::blackwell)).out).outcome, oracle::Outcome::pass) << k;
      // Sums that nearly cancel: the second half of K undoes the first, all but some numbers.
      for (std::int64_t row = 0; row < 4 && k % 64 == 0; ++row)
        for (std::int64_t i = 0; i < k / 4; ++i)
          op.a.as<std::uint8_t>()[row * k / 2 + k / 4 + i] = op.a.as<std::uint8_t>()[row * k / 2 + i] ^ (i % 29 == 3 ? 0x80 : 0x88);
      for (std::int64_t column = 0; column < 96 && k % 64 == 0; ++column) {
        std::memcpy(op.b.as<std::uint8_t>() + column * k / 2 + k / 4, op.b.as<std::uint8_t>() + column * k / 2,
                    static_cast<std::size_t>(k / 4));
        for (std::int64_t j = 0; j < k / 32; ++j)
          op.block_scale_b.as<std::uint8_t>()[scale_at(column, k / 32 + j, k)] =
              op.block_scale_b.as<std::uint8_t>()[scale_at(column, j, k)];
      }
      EXPECT_EQ(judged(op, "tcgen05", ops::run(op, in_mode(Mode::blackwell)).out).outcome, oracle::Outcome::pass) << k << " cancelled";
    }
  }
}

// ---- other products

struct Fp8Gpu {
  Mode mode;
  const char* format;
};

TEST(GpuModes, Fp8ProductsAreChainsOfTheGpusSteps) {
  for (const Fp8Gpu& gpu : {Fp8Gpu{Mode::hopper, "sm90_e4m3"}, Fp8Gpu{Mode::blackwell, "sm100_e4m3"}, Fp8Gpu{Mode::ada, "sm89_e4m3"}}) {
    const steps::Format& format = *steps::find(gpu.format);
    const std::int64_t m = 3, n = 16, k = 96;
    ops::BmmFp8 op{.A = Tensor(DType::f8_e4m3, {1, m, k}),
                   .B = Tensor(DType::f8_e4m3, {1, n, k}).transpose(1, 2),
                   .A_scale = helpers::tensor_of(DType::f32, {1}, {1}),
                   .B_scale = helpers::tensor_of(DType::f32, {1}, {1}),
                   .out = {},
                   .dtype = DType::f16};
    const Tensor a = bytes({m, k}, "a"), b = bytes({n, k}, "b");
    // Ordinary sizes: every step would be infinite in f16 otherwise.
    for (std::int64_t i = 0; i < m * k; ++i) op.A.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(a.as<std::uint8_t>()[i] & 0xBF);
    for (std::int64_t i = 0; i < n * k; ++i) op.B.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(b.as<std::uint8_t>()[i] & 0xBF);
    op = ops::run(op, in_mode(gpu.mode));
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        std::uint32_t acc = 0;
        for (std::int64_t begin = 0; begin < k; begin += 32) {
          steps::Codes x, y;
          for (std::int64_t at = begin; at < begin + 32; ++at) {
            x.numbers.push_back(op.A.as<std::uint8_t>()[i * k + at]);
            y.numbers.push_back(op.B.as<std::uint8_t>()[j * k + at]);
          }
          acc = steps::by_integers(format, x, y, acc);
        }
        const Tensor rounded = helpers::tensor_of(DType::f16, {1}, {std::bit_cast<float>(acc)});
        EXPECT_EQ(quant::get_bits(op.out, i * n + j), quant::get_bits(rounded, 0)) << gpu.format << " " << i << ", " << j;
      }
  }
}

TEST(GpuModes, UnitsAreLookedUpByGpuAndTypes) {
  namespace tc = quant::tensor_core;
  using enum DType;
  EXPECT_EQ(ops::unit_of(Mode::hopper, bf16, bf16), &tc::half_mma);
  EXPECT_EQ(ops::unit_of(Mode::blackwell, f16, f16), &tc::half_mma);
  EXPECT_EQ(ops::unit_of(Mode::ada, f16, f16), &tc::sm80_half);
  EXPECT_EQ(ops::unit_of(Mode::ampere, bf16, bf16), &tc::sm80_half);
  EXPECT_EQ(ops::unit_of(Mode::hopper, f8_e4m3, f8_e5m2), &tc::fp8_wgmma);
  EXPECT_EQ(ops::unit_of(Mode::ada, f8_e5m2, f8_e5m2), &tc::sm89_fp8);
  EXPECT_EQ(ops::unit_of(Mode::blackwell, f8_e4m3, f8_e4m3), &tc::sm100_fp8);
  EXPECT_EQ(ops::unit_of(Mode::ampere, f8_e4m3, f8_e4m3), nullptr);
  EXPECT_EQ(ops::unit_of(Mode::ampere, bf16, f16), nullptr);
  EXPECT_EQ(ops::unit_of(Mode::blackwell, f32, f32), nullptr);
}

std::string refusal(const char* line, Mode mode) {
  Arguments arguments = oracle::generate(parse_case_line(line));
  const auto error = helpers::error_in([&] { registry().at(parse_case_line(line).op).run(arguments, in_mode(mode)); });
  if (!error) return {};
  EXPECT_EQ(error->code(), ErrorCode::unsupported);
  return error->what();
}

TEST(GpuModes, WhatAnOpDoesNotHaveIsRefusedNamingWhatItHas) {
  EXPECT_THAT(refusal("cutlass_scaled_fp4_mm M=1 N=32 K=64", Mode::hopper),
              HasSubstr("cutlass_scaled_fp4_mm: has no hopper mode, expected fast, golden or blackwell"));
  EXPECT_THAT(refusal("rmsnorm T=1 H=64", Mode::blackwell), HasSubstr("rmsnorm: has no blackwell mode, expected fast, golden or hopper"));
  EXPECT_THAT(refusal("bmm_fp8 L=1 M=1 N=16 K=32", Mode::ampere),
              HasSubstr("bmm_fp8: has no ampere mode, expected fast, golden, hopper, blackwell or ada"));
  EXPECT_THAT(refusal("dsv3_fused_a_gemm T=1", Mode::ampere), HasSubstr("expected fast, golden, hopper or blackwell"));
  EXPECT_THAT(refusal("bmm_fp8 L=1 M=1 N=16 K=32 --dialect trtllm", Mode::ada), HasSubstr("'fp32' has no ada mode"));
  EXPECT_EQ(refusal("bmm_fp8 L=1 M=1 N=16 K=32 --dialect trtllm", Mode::blackwell), "");
}

TEST(GpuModes, ModesThatNoRecordingConfirmsSaySo) {
  for (const Mode mode : mode_list) EXPECT_EQ(caveat(mode).empty(), !of_a_gpu(mode) || mode == Mode::hopper) << name(mode);
  for (const std::string_view gpu : gpu_names()) EXPECT_TRUE(of_a_gpu(mode_of_gpu(gpu).value())) << gpu;
  EXPECT_EQ(mode_of_gpu("h200"), Mode::hopper);
  EXPECT_FALSE(mode_of_gpu("v100"));
}

}  // namespace
}  // namespace dodona
