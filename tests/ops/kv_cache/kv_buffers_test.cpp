// What goes into the KV cache and comes out of it: rows by slot, casts on the way, the 656-byte rows of sparse attention.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>

#include "dodona/error.h"
#include "ops/attention/concat_and_cast_mha_k.h"
#include "ops/kv_cache/create_chunked_prefix_cache_kv_indices.h"
#include "ops/kv_cache/dequantize_k_cache.h"
#include "ops/kv_cache/dequantize_k_cache_paged.h"
#include "ops/kv_cache/get_mla_kv_buffer.h"
#include "ops/kv_cache/quantize_k_cache.h"
#include "ops/kv_cache/set_kv_buffer_kernel.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/ints.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr Mode both_modes[] = {Mode::golden, Mode::fast};

TEST(GetMlaKvBuffer, GivesBackWhatLiesInTheSlotsEachAsOftenAsAsked) {
  const Tensor pool = normal(DType::bf16, {3, 4, 576}, "pool");
  for (const Mode mode : both_modes) {
    const auto op =
        ops::run(ops::GetMlaKvBuffer{.kv_buffer = pool, .loc = ints({6, 1, 6}), .cache_k_nope = {}, .cache_k_rope = {}}, in_mode(mode));
    ASSERT_EQ(op.cache_k_nope.shape(), (Dims{3, 1, 512}));
    for (std::int64_t i = 0; i < 512; ++i) {
      EXPECT_EQ(quant::get_bits(op.cache_k_nope, i), quant::get_bits(pool, 6 * 576 + i));
      EXPECT_EQ(quant::get_bits(op.cache_k_nope, 2 * 512 + i), quant::get_bits(pool, 6 * 576 + i));
    }
    for (std::int64_t i = 0; i < 64; ++i) EXPECT_EQ(quant::get_bits(op.cache_k_rope, 64 + i), quant::get_bits(pool, 576 + 512 + i));
  }
}

TEST(GetMlaKvBuffer, ManyRowsGoPastTheCachesAndAreTheSame) {
  constexpr std::int64_t tokens = 2400;
  Values from;
  for (std::int64_t t = 0; t < tokens; ++t) from.push_back(static_cast<double>(t * 7 % 300));
  const ops::GetMlaKvBuffer op{.kv_buffer = normal(DType::bf16, {300, 576}, "pool"), .loc = tensor_of(DType::i64, {tokens}, from)};
  const auto expected = ops::run(op, in_mode(Mode::golden));
  for (const int threads : {1, 2, 5}) {
    const auto got = ops::run(op, in_mode(Mode::fast, threads));
    EXPECT_TRUE(same_bits(got.cache_k_nope, expected.cache_k_nope) && same_bits(got.cache_k_rope, expected.cache_k_rope)) << threads;
  }
}

TEST(CastRows, NarrowingToFp8SaturatesInfinitiesToo) {
  const double values[] = {464, -480, 17, 1e30, infinity, -infinity, 0.001, -0.0};
  const Tensor nope = tensor_of(DType::bf16, {1, 1, 8}, {values, values + 8}), rope = tensor_of(DType::f32, {1, 1, 1}, {std::nan("")});
  for (const Mode mode : both_modes) {
    const auto op = ops::run(ops::ConcatAndCastMhaK{.k = {}, .k_nope = nope, .k_rope = rope, .dst_dtype = DType::f8_e4m3}, in_mode(mode));
    const std::uint64_t expected[] = {0x7E, 0xFE, 0x58, 0x7E, 0x7E, 0xFE, 0x01, 0x80, 0x7F};
    for (int i = 0; i < 9; ++i) EXPECT_EQ(quant::get_bits(op.k, i), expected[i]) << name(mode) << " element " << i;
  }
}

/// All patterns of a type of up to 16 bits, one a row of the pool.
Tensor all_patterns(DType type) {
  const Tensor pool(type, {std::int64_t{1} << bits(type), 2});
  for (std::int64_t i = 0; i < pool.elements(); ++i) quant::set_bits(pool, i, static_cast<std::uint64_t>(i / 2));
  return pool;
}

ops::GetMlaKvBuffer of_all_patterns(DType from, DType to, Mode mode) {
  ops::GetMlaKvBuffer op{.kv_buffer = all_patterns(from), .loc = {}, .cache_k_nope = {}, .cache_k_rope = {}};
  op.loc = Tensor(DType::i32, {op.kv_buffer.size(0)});
  for (std::int64_t i = 0; i < op.loc.elements(); ++i) op.loc.as<std::int32_t>()[i] = static_cast<std::int32_t>(i);
  op.kv_lora_rank = op.qk_rope_head_dim = 1;
  op.dst_dtype = to;
  return ops::run(op, in_mode(mode));
}

/// Failing elements of the latents that a call of get_mla_kv_buffer gave.
oracle::Verdict verdict_on(const ops::GetMlaKvBuffer& op) {
  Arguments inputs;
  inputs.set("kv_buffer", op.kv_buffer);
  inputs.set("loc", op.loc);
  inputs.set_attr("kv_lora_rank", std::int64_t{1});
  inputs.set_attr("qk_rope_head_dim", std::int64_t{1});
  inputs.set_attr("dst_dtype", op.dst_dtype);
  return oracle::judge(registry().at("get_mla_kv_buffer"), inputs, {{"cache_k_nope", op.cache_k_nope}, {"cache_k_rope", op.cache_k_rope}},
                       {});
}

TEST(CastRows, ANanOfSm90IsCanonicalInF32ButForBf16WhosePatternStays) {
  for (const DType from : {DType::bf16, DType::f16, DType::f8_e4m3, DType::f8_e5m2}) {
    const auto op = of_all_patterns(from, DType::f32, Mode::hopper);
    for (std::int64_t i = 0; i < op.loc.elements(); ++i) {
      const double value = quant::get(op.kv_buffer, 2 * i);
      const std::uint64_t wide = quant::get_bits(op.cache_k_nope, i);
      if (from == DType::bf16) EXPECT_EQ(wide, static_cast<std::uint64_t>(i) << 16);
      if (from != DType::bf16 && std::isnan(value)) EXPECT_EQ(wide, 0x7FFFFFFFU) << i;
      if (!std::isnan(value)) EXPECT_EQ(quant::get(op.cache_k_nope, i), value);
    }
  }
}

TEST(CastRows, AnyNanOfACastPassesAndNoOtherOfACopy) {
  for (const auto& [from, to] : {std::pair{DType::f16, DType::f32},
                                 {DType::bf16, DType::f32},
                                 {DType::f8_e4m3, DType::f32},
                                 {DType::f16, DType::f8_e4m3},
                                 {DType::f16, DType::f8_e5m2},
                                 {DType::bf16, DType::f16}}) {
    for (const Mode mode : {Mode::golden, Mode::fast, Mode::hopper}) {
      const auto op = of_all_patterns(from, to, mode);
      EXPECT_EQ(verdict_on(op).failing(), 0) << name(from) << " to " << name(to) << " " << name(mode);
      std::int64_t changed = 0;
      for (std::int64_t i = 0; i < op.loc.elements(); ++i)
        if (std::isnan(quant::get(op.cache_k_nope, i))) {
          quant::set_bits(op.cache_k_nope, i, quant::get_bits(op.cache_k_nope, i) ^ std::uint64_t{1} << (bits(to) - 1));
          ++changed;
        }
      EXPECT_GT(changed, 0);
      EXPECT_EQ(verdict_on(op).failing(), 0) << name(from) << " to " << name(to) << ", the other sign";
      quant::set(op.cache_k_nope, 1, std::nan(""));
      EXPECT_EQ(verdict_on(op).failing(), 1) << "a NaN where there is a number";
    }
  }
  const auto copy = of_all_patterns(DType::f16, DType::f16, Mode::golden);
  EXPECT_EQ(verdict_on(copy).failing(), 0);
  quant::set_bits(copy.cache_k_nope, 0x7E01, 0x7E02);
  EXPECT_EQ(verdict_on(copy).failing(), 1);
}

TEST(CastRows, InfinitiesAndNanOfE5m2AreNumbersInBf16OnSm90WhichIsAKnownDefect) {
  const auto hopper = of_all_patterns(DType::f8_e5m2, DType::bf16, Mode::hopper);
  const std::pair<std::int64_t, double> patterns[] = {{0x7C, 65536},  {0x7D, 81920},  {0x7E, 98304},  {0x7F, 114688},
                                                      {0xFC, -65536}, {0xFD, -81920}, {0xFE, -98304}, {0xFF, -114688}};
  for (const auto& [code, value] : patterns) EXPECT_EQ(quant::get(hopper.cache_k_nope, code), value);
  EXPECT_EQ(verdict_on(hopper).outcome, oracle::Outcome::known_defect);
  for (const Mode mode : both_modes) {
    const auto op = of_all_patterns(DType::f8_e5m2, DType::bf16, mode);
    EXPECT_EQ(verdict_on(op).outcome, oracle::Outcome::pass);
    EXPECT_EQ(quant::get(op.cache_k_nope, 0xFC), -infinity);
    EXPECT_TRUE(std::isnan(quant::get(op.cache_k_nope, 0x7D)));
  }
  quant::set(hopper.cache_k_nope, 0x7C, 57344);
  EXPECT_EQ(verdict_on(hopper).outcome, oracle::Outcome::fail);
}

TEST(CastRows, OneFp8TypeToTheOtherHasNoHopperMode) {
  const Error error = error_from([&] { of_all_patterns(DType::f8_e4m3, DType::f8_e5m2, Mode::hopper); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_EQ(error.argument(), "dst_dtype");
}

TEST(CastRows, ARopePartOfAnotherTypeIsCastAlone) {
  const Tensor nope = normal(DType::bf16, {2, 3, 8}, "nope"), rope = normal(DType::f32, {2, 1, 4}, "rope");
  for (const Mode mode : both_modes) {
    const auto op = ops::run(ops::ConcatAndCastMhaK{.k = {}, .k_nope = nope, .k_rope = rope, .dst_dtype = DType::bf16}, in_mode(mode));
    for (std::int64_t row = 0; row < 6; ++row)
      for (std::int64_t d = 0; d < 12; ++d)
        EXPECT_EQ(quant::get(op.k, row * 12 + d),
                  d < 8 ? quant::get(nope, row * 8 + d) : quant::round_to(DType::bf16, quant::get(rope, row / 3 * 4 + d - 8)));
  }
}

TEST(SetKvBufferKernel, KeysAndValuesLandInTheirSlots) {
  const Tensor k = normal(DType::f16, {2, 3, 8}, "k"), v = normal(DType::f16, {2, 3, 8}, "v");
  for (const Mode mode : all_modes) {
    const Tensor k_cache(DType::f16, {5, 3, 8}), v_cache(DType::f16, {5, 3, 8});
    ops::run(ops::SetKvBufferKernel{k_cache, v_cache, ints({4, 1}), k, v}, in_mode(mode));
    for (std::int64_t i = 0; i < 24; ++i) {
      EXPECT_EQ(quant::get(k_cache, 4 * 24 + i), quant::get(k, i));
      EXPECT_EQ(quant::get(v_cache, 24 + i), quant::get(v, 24 + i));
      EXPECT_EQ(quant::get_bits(v_cache, i), 0u);
    }
  }
}

TEST(ChunkedPrefixIndices, ACaseOfNoTokensHasNone) {
  const NamedOp op{"create_chunked_prefix_cache_kv_indices"};
  for (const Mode mode : both_modes) EXPECT_EQ(op.outputs(op.case_of("R=2 C=1 B=5 n=0"), in_mode(mode)).front().second.elements(), 0);
}

TEST(ChunkedPrefixIndices, WhatContradictsItselfIsAnError) {
  const auto error_of = [](const Tensor& start, const Tensor& lengths, const Tensor& ends) -> std::string {
    return message_in([&] {
      ops::run(ops::CreateChunkedPrefixCacheKvIndices{Tensor(DType::i32, {2, 10}), ints({1, 0}), start, lengths, ends, {}},
               in_mode(Mode::fast));
    });
  };
  EXPECT_EQ(error_of(ints({5, 0}), ints({5, 3}), ints({0, 5, 8})), "");
  EXPECT_NE(error_of(ints({6, 0}), ints({5, 3}), ints({0, 5, 8})).find("chunk_seq_lens holds 5 at element 0, expected at most what"),
            std::string::npos);
  EXPECT_NE(error_of(ints({5, 0}), ints({5, 3}), ints({0, 4, 8})).find("chunk_cu_seq_lens holds 4 at element 1, expected the running sum"),
            std::string::npos);
  EXPECT_NE(error_of(ints({5, 0}), ints({5, 3}), ints({0, 5, 4})).find("chunk_cu_seq_lens holds 5 at element 1, expected 0 to 4"),
            std::string::npos);
}

/// One row through both ops.
Tensor there_and_back(const Tensor& x, Mode mode) {
  const Tensor bytes = ops::run(ops::QuantizeKCache{x, {}}, in_mode(mode)).output;
  return ops::run(ops::DequantizeKCache{bytes, {}}, in_mode(mode)).output;
}

TEST(KCacheRows, ScalesOfEachHundredAndTwentyEightFollowTheCodesAndTheRotatedPartIsKept) {
  Tensor x(DType::bf16, {1, 576});
  quant::set(x, 0, 448 * 4), quant::set(x, 1, -4), quant::set(x, 128, 7), quant::set(x, 512, 1e30), quant::set(x, 575, -3);
  for (const Mode mode : both_modes) {
    const Tensor bytes = ops::run(ops::QuantizeKCache{x, {}}, in_mode(mode)).output;
    const auto* const p = bytes.as<std::uint8_t>();
    const auto scale = [&](int g) {
      std::array<std::uint8_t, 4> raw;
      std::copy_n(p + 512 + 4 * g, 4, raw.begin());
      return std::bit_cast<float>(raw);
    };
    EXPECT_EQ(scale(0), 4.0f);
    EXPECT_EQ(scale(1), 7.0f / 448.0f);
    EXPECT_EQ(scale(2), 0.0f);
    EXPECT_EQ(p[0], 0x7E);
    EXPECT_EQ(p[1], 0xB8);
    EXPECT_EQ(p[128], 0x7E);
    EXPECT_EQ(p[300], 0) << "a group of zeros";
    const Tensor back = there_and_back(x, mode);
    for (const std::int64_t i : {0, 1, 2, 128, 300, 512, 575}) EXPECT_EQ(quant::get_bits(back, i), quant::get_bits(x, i)) << i;
  }
}

TEST(KCacheRows, WhatDequantizesWithoutARoundingIsItselfAgainWhereTheLargestCodeIsThere) {
  Tensor bytes = NamedOp{"dequantize_k_cache"}.case_of("S=6").find("quant_k_cache")->clone();
  for (std::int64_t row = 0; row < 6; ++row)
    for (int g = 0; g < 4; ++g) {
      auto* const p = bytes.as<std::uint8_t>() + row * 656;
      p[128 * g] = 0x7E;
      p[512 + 4 * g + 1] = 0;  // of the scale all but its power of two
      p[512 + 4 * g + 2] &= 0x80;
    }
  const Tensor x = ops::run(ops::DequantizeKCache{bytes, {}}, in_mode(Mode::fast)).output;
  EXPECT_TRUE(same_bits(there_and_back(x, Mode::fast), x));
}

TEST(KCacheRows, AScaleThatIsOneUnitOffIsTakenWithTheCodesItLeadsTo) {
  const Arguments inputs = NamedOp{"quantize_k_cache"}.case_of("S=3");
  const Tensor bytes = NamedOp{"quantize_k_cache"}.outputs(inputs, in_mode(Mode::fast)).front().second;
  const auto failing = [&](int ulps) {
    const Tensor changed = bytes.clone();
    changed.as<std::uint8_t>()[512] = static_cast<std::uint8_t>(changed.as<std::uint8_t>()[512] + ulps);
    return oracle::judge(registry().at("quantize_k_cache"), inputs, {{"output", changed}}, {}).failing();
  };
  EXPECT_EQ(failing(0), 0);
  EXPECT_GT(failing(5), 0);
}

TEST(KCacheRows, PagedRowsAreTheRowsOfTheTable) {
  const Arguments inputs = NamedOp{"dequantize_k_cache"}.case_of("S=6");
  const Tensor& bytes = *inputs.find("quant_k_cache");
  for (const Mode mode : both_modes) {
    const Tensor all = ops::run(ops::DequantizeKCache{bytes, {}}, in_mode(mode)).output;
    const Tensor some = ops::run(ops::DequantizeKCachePaged{bytes, ints({5, 0, 5}), {}}, in_mode(mode)).output;
    const std::int64_t rows[] = {5, 0, 5};
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t d = 0; d < 576; ++d) ASSERT_EQ(quant::get_bits(some, i * 576 + d), quant::get_bits(all, rows[i] * 576 + d));
  }
}

}  // namespace
}  // namespace dodona
