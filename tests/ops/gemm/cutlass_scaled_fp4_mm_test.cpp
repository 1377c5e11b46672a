// Rules of cutlass_scaled_fp4_mm, and of the packed form of its weights.
#include "ops/gemm/cutlass_scaled_fp4_mm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/random.h"
#include "dodona/error.h"
#include "oracle/judge/judge.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/element.h"
#include "quant/swizzle.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using helpers::in_mode;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr Mode both_modes[] = {Mode::golden, Mode::fast};

Tensor number(float value) {
  const Tensor t(DType::f32, {1});
  *t.as<float>() = value;
  return t;
}

std::int64_t scale_at(std::int64_t r, std::int64_t block, std::int64_t k) {
  return quant::scale_offset(quant::ScaleLayout::swizzled_128x4, r, block, k / 16);
}

/// Random codes and random positive scales of every exponent; the padding of the scales is NaN.
void fill(const Tensor& codes, const Tensor& scales, const char* name) {
  const Stream stream(7, name);
  for (std::int64_t i = 0; i < codes.elements(); ++i)
    codes.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(word(stream, static_cast<std::uint64_t>(i)));
  std::memset(scales.data(), 0x7F, static_cast<std::size_t>(scales.elements()));
  const std::int64_t k = codes.size(1) * 2;
  for (std::int64_t r = 0; r < codes.size(0); ++r)
    for (std::int64_t j = 0; j < k / 16; ++j)
      scales.as<std::uint8_t>()[scale_at(r, j, k)] =
          static_cast<std::uint8_t>(word(stream, static_cast<std::uint64_t>(r * 4096 + j) + (1u << 24)) % 0x7F);
}

ops::CutlassScaledFp4Mm call(std::int64_t m, std::int64_t n, std::int64_t k, DType type = DType::bf16) {
  const auto scales = [&](std::int64_t rows) { return Tensor(DType::f8_e4m3, {quant::align(rows, 128), quant::align(k / 16, 4)}); };
  ops::CutlassScaledFp4Mm op{.a = Tensor(DType::u8, {m, k / 2}),
                             .b = Tensor(DType::u8, {n, k / 2}),
                             .block_scale_a = scales(m),
                             .block_scale_b = scales(n),
                             .alpha = number(0.037f),
                             .out = {},
                             .out_dtype = type};
  fill(op.a, op.block_scale_a, "a");
  fill(op.b, op.block_scale_b, "b");
  return op;
}

ops::CutlassScaledFp4Mm result(const ops::CutlassScaledFp4Mm& op, const Exec& exec) {
  return ops::run(op, exec);
}

std::vector<std::uint8_t> bytes_of(const Tensor& t) {
  const auto* begin = t.as<std::uint8_t>();
  return {begin, begin + bytes_for(t.dtype(), t.elements())};
}

int doubled(const Tensor& codes, std::int64_t r, std::int64_t k) {
  return quant::e2m1_doubled[codes.as<std::uint8_t>()[r * codes.size(1) + k / 2] >> (k % 2 * 4) & 0xFu];
}

/// The documented order of operations, written as loops over the arguments.
Tensor plain_loop(const ops::CutlassScaledFp4Mm& op) {
  const std::int64_t m = op.a.size(0), n = op.b.size(0), k = op.a.size(1) * 2;
  const Tensor out(op.out_dtype, {m, n});
  const auto scale = [&](const Tensor& scales, std::int64_t r, std::int64_t j) {
    return quant::e4m3_to_f32(scales.as<std::uint8_t>()[scale_at(r, j, k)]);
  };
  for (std::int64_t r = 0; r < m; ++r)
    for (std::int64_t c = 0; c < n; ++c) {
      float acc = 0, open = 0;
      for (std::int64_t j = 0; j < k / 16; ++j) {
        int dot = 0;
        for (std::int64_t i = 16 * j; i < 16 * j + 16; ++i) dot += doubled(op.a, r, i) * doubled(op.b, c, i);
        open = std::fma(static_cast<float>(dot), scale(op.block_scale_a, r, j) * scale(op.block_scale_b, c, j), j % 2 == 0 ? 0.0f : open);
        if (j % 2 == 1) acc += open;
      }
      const float value = acc / 4 * *op.alpha.as<float>();
      quant::set(out, r * n + c, static_cast<double>(value));
    }
  return out;
}

oracle::Verdict judged(const ops::CutlassScaledFp4Mm& op, const Tensor& out) {
  Arguments inputs;
  inputs.set("a", op.a);
  inputs.set("b", op.b);
  inputs.set("block_scale_a", op.block_scale_a);
  inputs.set("block_scale_b", op.block_scale_b);
  inputs.set("alpha", op.alpha);
  inputs.set_attr("out_dtype", op.out_dtype);
  return oracle::judge(registry().at("cutlass_scaled_fp4_mm"), inputs, {{"out", out}}, {});
}

struct Size {
  std::int64_t m, n, k;
};
// Few rows and many, fifteen and sixteen that fill a tile, an odd number of panels' pairs, half a step at the end, chunks of 512 exactly
// and not, two blocks of rows.
constexpr Size sizes[] = {{1, 32, 32}, {1, 64, 1024}, {2, 96, 608},  {3, 32, 64},   {4, 160, 544},
                          {5, 32, 96}, {15, 64, 96},  {16, 96, 608}, {18, 64, 512}, {131, 32, 160}};

TEST(CutlassScaledFp4Mm, FastEqualsAPlainIntegerExactLoopToTheBitOnEveryTier) {
  for (const Size& s : sizes)
    for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
      const auto op = call(s.m, s.n, s.k, type);
      const auto expected = bytes_of(plain_loop(op));
      for (const Isa isa : available_isas())
        for (const int threads : {1, 3})
          ASSERT_EQ(bytes_of(result(op, in_mode(Mode::fast, threads, isa)).out), expected)
              << s.m << ' ' << s.n << ' ' << s.k << ' ' << name(type) << ' ' << name(isa) << ' ' << threads;
    }
}

TEST(CutlassScaledFp4Mm, PreparedWeightsGiveTheBitsOfTheRawOnes) {
  for (const Size& s : sizes) {
    auto op = call(s.m, s.n, s.k);
    const auto expected = bytes_of(result(op, in_mode(Mode::fast)).out);
    const auto weights = ops::CutlassScaledFp4Mm{.b = op.b, .block_scale_b = op.block_scale_b};
    op.b = op.block_scale_b = Tensor();
    for (const Isa isa : available_isas()) {
      const auto exec = in_mode(Mode::fast, 2, isa);
      const Prepared prepared = ops::prepare(weights, exec);
      EXPECT_EQ(prepared.bytes(), s.n * ((s.k + 63) / 64) * 36);
      ASSERT_EQ(bytes_of(ops::run(op, exec, prepared).out), expected) << s.m << ' ' << s.n << ' ' << s.k << ' ' << name(isa);
    }
  }
}

/// More rows than a second-level cache holds: chunks of K pass by several pairs of panels.
TEST(CutlassScaledFp4Mm, ManyRowsOfALongKHaveTheBitsOfTheLoopToo) {
  auto op = call(101, 544, 4128);
  const auto expected = bytes_of(plain_loop(op));
  for (const int threads : {1, 2}) {
    const auto weights = ops::CutlassScaledFp4Mm{.b = op.b, .block_scale_b = op.block_scale_b};
    for (const Isa isa : available_isas()) {
      const auto exec = in_mode(Mode::fast, threads, isa);
      ASSERT_EQ(bytes_of(result(op, exec).out), expected) << name(isa) << ' ' << threads;
      auto packed = op;
      packed.b = packed.block_scale_b = Tensor();
      ASSERT_EQ(bytes_of(ops::run(packed, exec, ops::prepare(weights, exec)).out), expected) << name(isa) << ' ' << threads;
    }
  }
}

TEST(CutlassScaledFp4Mm, EveryPairOfCodesMultipliesExactly) {
  auto op = call(16, 32, 32, DType::f32);
  std::memset(op.a.data(), 0, 16 * 16);
  std::memset(op.b.data(), 0, 32 * 16);
  std::memset(op.block_scale_a.data(), 0x38, static_cast<std::size_t>(op.block_scale_a.elements()));
  std::memset(op.block_scale_b.data(), 0x38, static_cast<std::size_t>(op.block_scale_b.elements()));
  *op.alpha.as<float>() = 1.0f;
  for (const std::int64_t place : {0, 1, 6, 15, 16, 31}) {
    for (std::int64_t r = 0; r < 32; ++r)
      for (const Tensor* t : {&op.a, &op.b})
        if (r < t->size(0)) t->as<std::uint8_t>()[r * 16 + place / 2] = static_cast<std::uint8_t>((r % 16) << (place % 2 * 4));
    for (const Mode mode : both_modes) {
      const auto out = result(op, in_mode(mode)).out;
      for (unsigned i = 0; i < 16; ++i)
        for (unsigned j = 0; j < 32; ++j)
          ASSERT_EQ(out.as<float>()[i * 32 + j], quant::e2m1_to_f32(i) * quant::e2m1_to_f32(j) + 0.0f)
              << name(mode) << ' ' << i << ' ' << j;
    }
    std::memset(op.a.data(), 0, 16 * 16);
    std::memset(op.b.data(), 0, 32 * 16);
  }
}

TEST(CutlassScaledFp4Mm, LargestValuesOverflowToInfinityInHalfAndNotInBfloat) {
  for (const DType type : {DType::f16, DType::bf16}) {
    auto op = call(2, 32, 128, type);
    std::memset(op.a.data(), 0xFF, 2 * 64);  // -6
    std::memset(op.b.data(), 0x77, 32 * 64);
    std::memset(op.block_scale_a.data(), 0x7E, static_cast<std::size_t>(op.block_scale_a.elements()));
    std::memset(op.block_scale_b.data(), 0x7E, static_cast<std::size_t>(op.block_scale_b.elements()));
    *op.alpha.as<float>() = 1.0f;
    for (const Mode mode : both_modes) {
      const auto out = result(op, in_mode(mode)).out;
      const double exact = -128.0 * 36 * 448 * 448;
      EXPECT_EQ(quant::get(out, 40), type == DType::f16 ? -static_cast<double>(infinity) : quant::round_to(type, exact)) << name(mode);
      EXPECT_EQ(judged(op, out).failing(), 0);
    }
  }
}

TEST(CutlassScaledFp4Mm, AZeroAlphaGivesZerosAndAnInfiniteOneIsJudgedBySign) {
  for (const float alpha : {0.0f, infinity}) {
    auto op = call(3, 32, 64);
    *op.alpha.as<float>() = alpha;
    for (const Mode mode : both_modes) {
      const auto out = result(op, in_mode(mode)).out;
      const double value = quant::get(out, 17);
      EXPECT_TRUE(alpha == 0 ? value == 0 : std::isinf(value) || std::isnan(value)) << value;
      EXPECT_EQ(judged(op, out).failing(), 0) << name(mode) << ' ' << alpha;
    }
  }
}

TEST(CutlassScaledFp4Mm, ANanScaleSpoilsItsRowOrColumnAlone) {
  for (const bool in_a : {true, false}) {
    const auto op = call(6, 64, 160, DType::f32);
    const Tensor& scales = in_a ? op.block_scale_a : op.block_scale_b;
    scales.as<std::uint8_t>()[scale_at(5, 9, 160)] = 0x7F;
    for (const Mode mode : both_modes) {
      const auto out = result(op, in_mode(mode)).out;
      for (std::int64_t i = 0; i < 6; ++i)
        for (std::int64_t j = 0; j < 64; ++j)
          ASSERT_EQ(std::isnan(out.as<float>()[i * 64 + j]), in_a ? i == 5 : j == 5) << name(mode) << ' ' << i << ' ' << j;
    }
  }
}

TEST(CutlassScaledFp4Mm, RowsDoNotDependOnTheirBatch) {
  const auto batch = call(70, 64, 576);
  const auto expected = result(batch, in_mode(Mode::fast)).out;
  for (const std::int64_t r : {0, 37, 69}) {
    auto alone = call(1, 64, 576);
    std::memcpy(alone.a.data(), batch.a.as<std::uint8_t>() + r * 288, 288);
    for (std::int64_t j = 0; j < 36; ++j)
      alone.block_scale_a.as<std::uint8_t>()[scale_at(0, j, 576)] = batch.block_scale_a.as<std::uint8_t>()[scale_at(r, j, 576)];
    const auto out = result(alone, in_mode(Mode::fast)).out;
    EXPECT_EQ(0, std::memcmp(out.data(), expected.as<std::uint16_t>() + r * 64, 128)) << r;
  }
}

TEST(CutlassScaledFp4Mm, OneWrongBlockScaleFails) {
  const auto op = call(2, 64, 2048);
  std::memset(op.block_scale_a.data(), 0x38, static_cast<std::size_t>(op.block_scale_a.elements()));
  std::memset(op.block_scale_b.data(), 0x38, static_cast<std::size_t>(op.block_scale_b.elements()));
  const auto right = result(op, in_mode(Mode::fast)).out;
  EXPECT_EQ(judged(op, right).failing(), 0);
  auto wrong = op;
  wrong.block_scale_a = op.block_scale_a.clone();
  wrong.block_scale_a.as<std::uint8_t>()[scale_at(1, 77, 2048)] = 0x40;  // 2 for 1
  const auto verdict = judged(op, result(wrong, in_mode(Mode::golden)).out);
  EXPECT_GT(verdict.failing(), 32) << "of 64 elements of one row";
  EXPECT_LE(verdict.failing(), 64);
}

TEST(CutlassScaledFp4Mm, SizesThatTheKernelRefusesAreErrors) {
  const auto error = [](const ops::CutlassScaledFp4Mm& op) { return helpers::message_in([&] { ops::run(op, in_mode(Mode::fast)); }); };
  EXPECT_NE(error(call(2, 32, 48)).find("K = 48, expected a multiple of 32"), std::string::npos);
  EXPECT_NE(error(call(2, 48, 64)).find("N = 48, expected a multiple of 32"), std::string::npos);
  auto op = call(130, 32, 64);
  op.block_scale_a = Tensor(DType::f8_e4m3, {130, 4});
  EXPECT_NE(error(op).find("block_scale_a"), std::string::npos);
}

}  // namespace
}  // namespace dodona
