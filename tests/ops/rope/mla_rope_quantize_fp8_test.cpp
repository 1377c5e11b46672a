#include "ops/rope/mla_rope_quantize_fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dodona/error.h"
#include "oracle/cases/generate.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using helpers::all_modes, helpers::in_mode, helpers::normal;

/// One token, one head, a rope part of two and a nope part of four elements; the angle's cosine and sine are given.
ops::MlaRopeQuantizeFp8 small(double c, double s) {
  ops::MlaRopeQuantizeFp8 op{.q_rope = Tensor(DType::bf16, {1, 1, 2}),
                             .k_rope = Tensor(DType::bf16, {1, 2}),
                             .q_nope = Tensor(DType::bf16, {1, 1, 4}),
                             .k_nope = Tensor(DType::bf16, {1, 4}),
                             .cos_sin_cache = Tensor(DType::f32, {1, 2}),
                             .pos_ids = Tensor(DType::i32, {1}),
                             .q_rope_out = {},
                             .k_rope_out = {},
                             .q_nope_out = {},
                             .k_nope_out = {}};
  quant::set(op.cos_sin_cache, 0, c);
  quant::set(op.cos_sin_cache, 1, s);
  return op;
}

TEST(MlaRopeQuantizeFp8, ScalesMultiplyAndEachPartHasItsOwn) {
  ops::MlaRopeQuantizeFp8 op = small(0, 1);
  op.quant_scale_q = 2;
  op.quant_scale_kv = 0.5;
  for (int i = 0; i < 2; ++i) quant::set(op.q_rope, i, 1 + i), quant::set(op.k_rope, i, 4 + i);
  for (int i = 0; i < 4; ++i) quant::set(op.q_nope, i, i), quant::set(op.k_nope, i, 8 * i);
  for (const Mode mode : all_modes) {
    const auto result = ops::run(op, in_mode(mode));
    // A quarter turn: (x, y) becomes (-y, x).
    EXPECT_EQ(quant::get(result.q_rope_out, 0), -4);
    EXPECT_EQ(quant::get(result.q_rope_out, 1), 2);
    EXPECT_EQ(quant::get(result.k_rope_out, 0), -2.5);
    EXPECT_EQ(quant::get(result.k_rope_out, 1), 2);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(quant::get(result.q_nope_out, i), 2 * i);
      EXPECT_EQ(quant::get(result.k_nope_out, i), 4 * i);
    }
  }
}

TEST(MlaRopeQuantizeFp8, WhatIsTooLargeSaturatesAndNaNStays) {
  ops::MlaRopeQuantizeFp8 op = small(1, 0);
  const double values[] = {500, -1e30, std::numeric_limits<double>::infinity(), std::nan("")};
  for (int i = 0; i < 4; ++i) quant::set(op.k_nope, i, values[i]);
  quant::set(op.k_rope, 0, 460);
  for (const Mode mode : all_modes) {
    const auto result = ops::run(op, in_mode(mode));
    const std::uint64_t codes[] = {0x7E, 0xFE, 0x7E, 0x7F};
    for (int i = 0; i < 4; ++i) EXPECT_EQ(quant::get_bits(result.k_nope_out, i), codes[i]) << "element " << i << " " << name(mode);
    EXPECT_EQ(quant::get(result.k_rope_out, 0), 448);
  }
}

TEST(MlaRopeQuantizeFp8, TheRotatedValueIsNotRoundedToBf16BeforeFp8) {
  // 1 + 1/16 + 1/1024 lies just above the tie of e4m3 between 1 and 1.125; bf16 has no 2^-10 there and would fall to the even 1.
  ops::MlaRopeQuantizeFp8 op = small(1, 0x1p-10);
  quant::set(op.k_rope, 0, 1.0625);
  quant::set(op.k_rope, 1, -1);
  for (const Mode mode : all_modes) EXPECT_EQ(quant::get(ops::run(op, in_mode(mode)).k_rope_out, 0), 1.125) << name(mode);
}

TEST(MlaRopeQuantizeFp8, OutputsMayBeSlicesOfOneBufferOfWiderRows) {
  ops::MlaRopeQuantizeFp8 op{.q_rope = normal(DType::bf16, {3, 5, 64}, "qr"),
                             .k_rope = normal(DType::bf16, {3, 64}, "kr"),
                             .q_nope = normal(DType::bf16, {3, 5, 512}, "qn"),
                             .k_nope = normal(DType::bf16, {3, 512}, "kn"),
                             .cos_sin_cache = Tensor(DType::f32, {16, 64}),
                             .pos_ids = Tensor(DType::i64, {3}),
                             .q_rope_out = {},
                             .k_rope_out = {},
                             .q_nope_out = {},
                             .k_nope_out = {},
                             .is_neox = false};
  oracle::fill(op.cos_sin_cache, Role::cos_sin, 0, "normal", 1, "table");
  quant::set(op.pos_ids, 1, 7);
  for (const Mode mode : all_modes) {
    const auto apart = ops::run(op, in_mode(mode));
    ops::MlaRopeQuantizeFp8 sliced = op;
    const Tensor q(DType::f8_e4m3, {3, 5, 576}), k(DType::f8_e4m3, {3, 576});
    sliced.q_nope_out = q.slice(2, 0, 512);
    sliced.q_rope_out = q.slice(2, 512, 576);
    sliced.k_nope_out = k.slice(1, 0, 512);
    sliced.k_rope_out = k.slice(1, 512, 576);
    ops::run(sliced, in_mode(mode));
    for (std::int64_t row = 0; row < 15; ++row)
      for (std::int64_t i = 0; i < 576; ++i)
        ASSERT_EQ(quant::get_bits(q, row * 576 + i),
                  i < 512 ? quant::get_bits(apart.q_nope_out, row * 512 + i) : quant::get_bits(apart.q_rope_out, row * 64 + i - 512));
  }
}

TEST(MlaRopeQuantizeFp8, RoundingToBf16InBetweenIsCaught) {
  // The same rotation with its result rounded to bf16 first: codes differ where that rounding crosses a boundary of fp8.
  ops::MlaRopeQuantizeFp8 op{.q_rope = normal(DType::bf16, {40, 16, 64}, "qr"),
                             .k_rope = normal(DType::bf16, {40, 64}, "kr"),
                             .q_nope = Tensor(DType::bf16, {40, 16, 0}),
                             .k_nope = Tensor(DType::bf16, {40, 0}),
                             .cos_sin_cache = Tensor(DType::f32, {40, 64}),
                             .pos_ids = Tensor(DType::i32, {40}),
                             .q_rope_out = {},
                             .k_rope_out = {},
                             .q_nope_out = {},
                             .k_nope_out = {},
                             .is_neox = false};
  oracle::fill(op.cos_sin_cache, Role::cos_sin, 0, "normal", 1, "table");
  for (std::int64_t t = 0; t < 40; ++t) quant::set(op.pos_ids, t, static_cast<double>(t));
  const auto right = ops::run(op, in_mode(Mode::fast));
  Arguments inputs;
  inputs.set("q_rope", op.q_rope), inputs.set("k_rope", op.k_rope), inputs.set("q_nope", op.q_nope), inputs.set("k_nope", op.k_nope);
  inputs.set("cos_sin_cache", op.cos_sin_cache), inputs.set("pos_ids", op.pos_ids);
  inputs.set_attr("is_neox", false);
  const auto judged = [&](const Tensor& q_rope_out) {
    return oracle::judge(registry().at("mla_rope_quantize_fp8"), inputs,
                         {{"q_rope_out", q_rope_out},
                          {"k_rope_out", right.k_rope_out},
                          {"q_nope_out", right.q_nope_out},
                          {"k_nope_out", right.k_nope_out}},
                         {})
        .failing();
  };
  EXPECT_EQ(judged(right.q_rope_out), 0);
  const Tensor wrong = right.q_rope_out.clone();
  for (std::int64_t t = 0; t < 40; ++t)
    for (std::int64_t h = 0; h < 16; ++h)
      for (std::int64_t p = 0; p < 32; ++p) {
        const std::int64_t at = (t * 16 + h) * 64 + 2 * p;
        const double x = quant::get(op.q_rope, at), y = quant::get(op.q_rope, at + 1);
        const double c = quant::get(op.cos_sin_cache, t * 64 + p), s = quant::get(op.cos_sin_cache, t * 64 + 32 + p);
        quant::set(wrong, at, quant::round_to(DType::bf16, x * c - y * s));
        quant::set(wrong, at + 1, quant::round_to(DType::bf16, y * c + x * s));
      }
  EXPECT_GT(judged(wrong), 100);
}

TEST(MlaRopeQuantizeFp8, InfiniteScalesAreErrors) {
  ops::MlaRopeQuantizeFp8 op = small(1, 0);
  op.quant_scale_kv = 1e300;
  EXPECT_THROW(ops::run(op, in_mode(Mode::fast)), Error);
}

/// One head of 16 rotated elements, two tokens: what the kernel takes for the last eight lies in the other token's row.
TEST(MlaRopeQuantizeFp8, PartnersBehindTheRowAreExcusedWithTheirOwnCodeAlone) {
  const helpers::NamedOp op{"mla_rope_quantize_fp8"};
  const Arguments a = op.case_of("T=2 N=1 Dr=16 Dn=0 P=4 --seed 5");
  oracle::NamedTensors outputs = op.outputs(a, in_mode(Mode::golden));
  const Tensor x = *a.find("q_rope"), table = *a.find("cos_sin_cache"), q = outputs[0].second;
  const auto position = static_cast<std::int64_t>(quant::get(*a.find("pos_ids"), 0));
  ASSERT_LT(position, 3);
  for (std::int64_t i = 8; i < 16; ++i) {
    const double c = quant::get(table, position * 16 + i), s = quant::get(table, position * 16 + i + 8);
    quant::set(q, i, quant::get(x, i) * c - quant::get(x, i + 8) * s);
  }
  EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, oracle::Outcome::known_defect);
  quant::set(q, 9, quant::get(q, 9) + 64);
  EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, oracle::Outcome::fail);
}

}  // namespace
}  // namespace dodona
