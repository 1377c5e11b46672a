#include "ops/attention/concat_mla_k.h"

#include <gtest/gtest.h>

#include "oracle/cases/generate.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using helpers::in_mode;

constexpr std::int64_t heads = 128, nope = 128, rope = 64;

/// Every bit pattern of the type occurs, NaNs with their payloads included.
void fill_codes(const Tensor& tensor, std::uint64_t first) {
  for (std::int64_t i = 0; i < tensor.elements(); ++i) quant::set_bits(tensor, i, first + static_cast<std::uint64_t>(i) * 7);
}
void expect_concatenated(const ops::ConcatMlaK& op) {
  for (std::int64_t t = 0; t < op.k.size(0); ++t)
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t d = 0; d < nope; ++d)
        ASSERT_EQ(quant::get_bits(op.k, (t * heads + h) * (nope + rope) + d), quant::get_bits(op.k_nope, (t * heads + h) * nope + d))
            << t << h << d;
      for (std::int64_t d = 0; d < rope; ++d)
        ASSERT_EQ(quant::get_bits(op.k, (t * heads + h) * (nope + rope) + nope + d), quant::get_bits(op.k_rope, t * rope + d))
            << t << h << d;
    }
}
ErrorCode error_code(const ops::ConcatMlaK& op) {
  return helpers::error_from([&] { ops::run(op, in_mode(Mode::fast)); }).code();
}
ops::ConcatMlaK dense(DType type, std::int64_t tokens) {
  ops::ConcatMlaK op;
  op.k_nope = Tensor(type, {tokens, heads, nope});
  op.k_rope = Tensor(type, {tokens, 1, rope});
  return op;
}

TEST(ConcatMlaK, EveryHeadGetsItsNopeAndTheTokensRopeBitForBit) {
  for (const DType type : {DType::bf16, DType::f16, DType::f8_e4m3, DType::f8_e5m2})
    for (const Mode mode : {Mode::golden, Mode::fast, Mode::hopper}) {
      ops::ConcatMlaK op = dense(type, 5);
      fill_codes(op.k_nope, 0);
      fill_codes(op.k_rope, 0x7F80);
      expect_concatenated(ops::run(op, in_mode(mode, 2)));
    }
}

TEST(ConcatMlaK, SourcesAndResultMayBeSlices) {
  for (const Mode mode : {Mode::golden, Mode::fast, Mode::hopper}) {
    ops::ConcatMlaK op;
    const Tensor kv(DType::bf16, {3, heads, 256}), latent(DType::bf16, {3, 1, 2112}), wide(DType::bf16, {3, heads, 256});
    fill_codes(kv, 0);
    fill_codes(latent, 1);
    op.k_nope = kv.slice(2, 0, nope);
    op.k_rope = latent.slice(2, 2048, 2112);
    op.k = wide.slice(2, 0, nope + rope);
    expect_concatenated(ops::run(op, in_mode(mode)));
    const Tensor gap = wide.slice(2, nope + rope, 256);
    for (std::int64_t i = 0; i < gap.elements(); ++i) ASSERT_EQ(quant::get_bits(gap, i), 0U);
  }
}

TEST(ConcatMlaK, OtherHeadCountsAndWidthsAreRejected) {
  const auto with = [](const Dims& k_nope, const Dims& k_rope) {
    ops::ConcatMlaK op;
    op.k_nope = Tensor(DType::bf16, k_nope);
    op.k_rope = Tensor(DType::bf16, k_rope);
    return error_code(op);
  };
  EXPECT_EQ(with({2, 64, 128}, {2, 1, 64}), ErrorCode::bad_shape);
  EXPECT_EQ(with({2, 128, 64}, {2, 1, 64}), ErrorCode::bad_shape);
  EXPECT_EQ(with({2, 128, 128}, {2, 1, 128}), ErrorCode::bad_shape);
  EXPECT_EQ(with({2, 128, 128}, {2, 128, 64}), ErrorCode::bad_shape);
  EXPECT_EQ(with({2, 128, 128}, {3, 1, 64}), ErrorCode::bad_shape);
}

TEST(ConcatMlaK, Fp32IsRejected) {
  EXPECT_EQ(error_code(dense(DType::f32, 1)), ErrorCode::bad_dtype);
}

TEST(ConcatMlaK, BaseAddressesAreMultiplesOf16Bytes) {
  const Tensor wide(DType::bf16, {2, heads, 256}), latent(DType::bf16, {2, 1, 128});
  for (const std::int64_t shift : {1, 4, 7}) {
    ops::ConcatMlaK op = dense(DType::bf16, 2);
    op.k_nope = wide.slice(2, shift, shift + nope);
    EXPECT_EQ(error_code(op), ErrorCode::bad_alignment);
    op = dense(DType::bf16, 2);
    op.k_rope = latent.slice(2, shift, shift + rope);
    EXPECT_EQ(error_code(op), ErrorCode::bad_alignment);
    op = dense(DType::bf16, 2);
    op.k = wide.slice(2, shift, shift + nope + rope);
    EXPECT_EQ(error_code(op), ErrorCode::bad_alignment);
  }
}

TEST(ConcatMlaK, HeadsAreAMultipleOfFourElementsApart) {
  for (const std::int64_t step : {193, 194, 195}) {
    ops::ConcatMlaK op = dense(DType::bf16, 2);
    op.k_nope = make_strided(DType::bf16, {2, heads, nope}, {heads * step, step, 1});
    EXPECT_EQ(error_code(op), ErrorCode::bad_stride);
    op = dense(DType::bf16, 2);
    op.k = make_strided(DType::bf16, {2, heads, nope + rope}, {heads * step, step, 1});
    EXPECT_EQ(error_code(op), ErrorCode::bad_stride);
  }
  ops::ConcatMlaK op = dense(DType::bf16, 2);
  op.k_nope = make_strided(DType::bf16, {2, heads, nope}, {heads * 196, 196, 1});
  EXPECT_NO_THROW(ops::run(op, in_mode(Mode::fast)));
}

TEST(ConcatMlaK, FaultsFail) {
  const Arguments inputs = oracle::generate(parse_case_line("concat_mla_k T=3 Nh=128 Dn=128 Dr=64"));
  const auto& op = registry().at("concat_mla_k");
  const auto failing_with = [&](auto source_of) {
    Arguments arguments = inputs;
    op.run(arguments, in_mode(Mode::fast));
    const Tensor good = arguments.find("k")->clone(), bad = good.clone();
    for (std::int64_t t = 0; t < 3; ++t)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t d = 0; d < 192; ++d) quant::set_bits(bad, (t * heads + h) * 192 + d, quant::get_bits(good, source_of(t, h, d)));
    return oracle::judge(op, inputs, {{"k", bad}}, {}).failing();
  };
  const auto at = [](std::int64_t t, std::int64_t h, std::int64_t d) { return (t * heads + h) * 192 + d; };
  EXPECT_EQ(failing_with(at), 0);
  EXPECT_GT(failing_with([&](std::int64_t t, std::int64_t h, std::int64_t d) { return at(t, h, (d + 64) % 192); }), 3 * heads * 190);
  EXPECT_GT(failing_with([&](std::int64_t t, std::int64_t h, std::int64_t d) { return at(d < 128 ? t : (t + h) % 3, h, d); }),
            3 * heads * 40);
  EXPECT_GT(failing_with([&](std::int64_t t, std::int64_t h, std::int64_t d) { return at(t, d < 128 ? (h + 1) % heads : h, d); }),
            3 * heads * 120);
}

}  // namespace
}  // namespace dodona
