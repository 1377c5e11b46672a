#include "ops/gemm/fp8_blockwise_scaled_mm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/random.h"
#include "dodona/error.h"
#include "quant/e4m3.h"
#include "tests/ops/helpers.h"
#include "tests/ops/pair_sum.h"

namespace dodona {
namespace {

using namespace helpers;

/// Contiguous [columns, rows] in memory.
Tensor column_major(DType type, const Dims& shape, double value) {
  return filled(type, {shape[1], shape[0]}, value).transpose(0, 1);
}

void fill(const Tensor& tensor, double value) {
  for (std::int64_t i = 0; i < tensor.elements(); ++i) quant::set(tensor, i, value);
}

ops::Fp8BlockwiseScaledMm call(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {.mat_a = filled(DType::f8_e4m3, {m, k}, 1.0),
          .mat_b = column_major(DType::f8_e4m3, {k, n}, 1.0),
          .scales_a = column_major(DType::f32, {m, k / 128}, 1.0),
          .scales_b = column_major(DType::f32, {k / 128, n / 128}, 1.0)};
}

double first(const ops::Fp8BlockwiseScaledMm& op, Mode mode) {
  return quant::get(ops::run(op, in_mode(mode)).out, 0);
}

TEST(Fp8BlockwiseScaledMm, EachBlockHasItsOwnScales) {
  auto op = call(3, 256, 384);
  for (std::int64_t i = 0; i < 9; ++i) quant::set(op.scales_a, i, static_cast<double>(i + 1));
  for (std::int64_t i = 0; i < 6; ++i) quant::set(op.scales_b, i, static_cast<double>(1 << i));
  for (const Mode mode : all_modes) {
    const Tensor out = ops::run(op, in_mode(mode)).out;
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t j = 0; j < 256; ++j) {
        double sum = 0;
        for (std::int64_t b = 0; b < 3; ++b)
          sum += 128.0 * static_cast<double>(i * 3 + b + 1) * static_cast<double>(1 << (b * 2 + j / 128));
        EXPECT_EQ(quant::get(out, i * 256 + j), quant::round_to(DType::bf16, sum)) << name(mode) << " " << i << ", " << j;
      }
  }
}

TEST(Fp8BlockwiseScaledMm, BlocksThatAddUpToAnInfinityLeaveOpenWhatIsInfiniteBesideThem) {
  const NamedOp named{"fp8_blockwise_scaled_mm"};
  for (const bool beyond : {true, false}) {
    Arguments a = named.case_of("M=4 N=128 K=384");
    for (const char* ones : {"mat_a", "mat_b", "scales_a"}) fill(*a.find(ones), 1.0);
    const Tensor& scales = *a.find("scales_b");
    fill(scales, -0x1p119);  // times 128: -2^126
    quant::set(scales, 2, std::numeric_limits<double>::infinity());
    if (beyond) quant::set(scales, 1, -0x1.8p120);
    oracle::NamedTensors outputs = named.outputs(a, in_mode(Mode::fast));
    quant::set(outputs[0].second, 0, std::nan(""));
    EXPECT_EQ(named.failing(a, outputs), beyond ? 0 : 1);
  }
}

TEST(Fp8BlockwiseScaledMm, OnlyTheBlockOfALargeProductLosesSmallOnes) {
  auto op = call(1, 128, 512);
  op.out_dtype = DType::f16;
  quant::set(op.mat_a, 0, 256.0);
  for (std::int64_t j = 0; j < 128; ++j) quant::set(op.mat_b, j, 256.0);  // k = 0
  for (std::int64_t b = 0; b < 4; ++b) quant::set(op.scales_a, b, 0x1p-4);
  // The tensor core keeps 13 bits below 65536: 127 ones are lost, 384 are not.
  EXPECT_EQ(first(op, Mode::golden), quant::round_to(DType::f16, (65536.0 + 511) / 16));
  EXPECT_EQ(first(op, Mode::fast), quant::round_to(DType::f16, (65536.0 + 511) / 16));
  EXPECT_EQ(first(op, Mode::hopper), quant::round_to(DType::f16, (65536.0 + 384) / 16));
}

TEST(Fp8BlockwiseScaledMm, ASumThatIsNeverPromotedFails) {
  const NamedOp op{"fp8_blockwise_scaled_mm"};
  Arguments inputs;
  auto values = call(1, 128, 4096);
  quant::set(values.mat_a, 0, 256.0);
  for (std::int64_t j = 0; j < 128; ++j) quant::set(values.mat_b, j, 256.0);
  for (std::int64_t b = 0; b < 32; ++b) quant::set(values.scales_a, b, 0x1p-4);
  inputs.set("mat_a", values.mat_a);
  inputs.set("mat_b", values.mat_b);
  inputs.set("scales_a", values.scales_a);
  inputs.set("scales_b", values.scales_b);
  const Tensor promoted = filled(DType::bf16, {1, 128}, (65536.0 + 3968) / 16), never = filled(DType::bf16, {1, 128}, 65536.0 / 16);
  EXPECT_EQ(op.failing(inputs, {{"out", promoted}}), 0);
  EXPECT_EQ(op.failing(inputs, {{"out", never}}), 128);
}

/// The documented order of operations, written as loops over the arguments.
std::vector<std::uint16_t> plain_loop(const ops::Fp8BlockwiseScaledMm& op) {
  const std::int64_t m = op.mat_a.size(0), k = op.mat_a.size(1), n = op.mat_b.size(1);
  const Tensor out(DType::bf16, {m, n});
  const auto *a = op.mat_a.as<std::uint8_t>(), *b = op.mat_b.as<std::uint8_t>();
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      float acc = 0;
      for (std::int64_t block = 0; block < k / 128; ++block) {
        const float sum = helpers::pair_sum(
            block * 128, (block + 1) * 128, [&](std::int64_t e) { return quant::e4m3_to_f32(a[i * k + e]); },
            [&](std::int64_t e) { return quant::e4m3_to_f32(b[j * k + e]); });
        acc = std::fma(sum, op.scales_a.as<float>()[block * m + i] * op.scales_b.as<float>()[j / 128 * (k / 128) + block], acc);
      }
      quant::set(out, i * n + j, static_cast<double>(acc));
    }
  return {out.as<std::uint16_t>(), out.as<std::uint16_t>() + m * n};
}

TEST(Fp8BlockwiseScaledMm, FewRowsTimesAnyNumberOfBlocksEqualAPlainLoopToTheBitOnEveryTier) {
  const Stream stream(11, "few rows");
  for (const std::int64_t m : {1, 2, 3, 4, 5, 8, 9})
    for (const std::int64_t blocks : {1, 2, 3, 4, 5, 8, 9}) {
      auto op = call(m, 128, blocks * 128);
      std::uint64_t at = 0;
      for (const Tensor* t : {&op.mat_a, &op.mat_b})
        for (std::int64_t i = 0; i < t->elements(); ++i) {
          const auto code = static_cast<std::uint8_t>(word(stream, at++));  // subnormal ones too
          t->as<std::uint8_t>()[i] = (code & 0x7Fu) == 0x7Fu ? std::uint8_t{1} : code;
        }
      for (const Tensor* t : {&op.scales_a, &op.scales_b})
        for (std::int64_t i = 0; i < t->elements(); ++i) t->as<float>()[i] = 1.0f + static_cast<float>(word(stream, at++) % 4096) / 4096.0f;
      const auto expected = plain_loop(op);
      for (const Isa isa : available_isas())
        for (const int threads : {1, 3}) {
          const Tensor out = ops::run(op, in_mode(Mode::fast, threads, isa)).out;
          const std::vector<std::uint16_t> got{out.as<std::uint16_t>(), out.as<std::uint16_t>() + m * 128};
          ASSERT_EQ(got, expected) << m << " rows, " << blocks << " blocks, " << name(isa) << ", " << threads << " threads";
        }
    }
}

TEST(Fp8BlockwiseScaledMm, SizesThatAreNoWholeBlocksAreRefused) {
  EXPECT_THROW(ops::run(call(1, 192, 128), in_mode(Mode::fast)), Error);
  auto short_k = call(1, 128, 128);
  short_k.mat_a = filled(DType::f8_e4m3, {1, 144}, 1.0);
  EXPECT_THROW(ops::run(short_k, in_mode(Mode::fast)), Error);
}

}  // namespace
}  // namespace dodona
