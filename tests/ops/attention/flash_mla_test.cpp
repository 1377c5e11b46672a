// FlashMLA: its schedule, and its bits under schedules and lengths of any kind.
#include "ops/attention/flash_mla_with_kvcache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "dodona/error.h"
#include "ops/attention/get_mla_metadata.h"
#include "ops/rows/cache/k_cache_row.h"
#include "ops/softmax/flash_mla/schedule.h"
#include "ops/softmax/flash_mla/tile.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/ints.h"

namespace dodona {
namespace {

using namespace helpers;

Tensor lengths_of(const std::vector<std::int32_t>& values) {
  return ints({static_cast<std::int64_t>(values.size())}, values);
}

ops::GetMlaMetadata metadata(const Tensor& lengths, std::int64_t rows, std::int64_t sm_count = 132) {
  return ops::run(ops::GetMlaMetadata{.cache_seqlens = lengths,
                                      .tile_scheduler_metadata = {},
                                      .num_splits = {},
                                      .num_q_tokens_per_head_k = rows,
                                      .num_heads_k = 1,
                                      .sm_count = sm_count},
                  in_mode(Mode::fast));
}

TEST(GetMlaMetadata, PartsAreTheSmsOverTheBlocksOfRows) {
  for (const auto& [rows, parts] : {std::pair(64, 132), {128, 66}, {256, 33}, {16, 132}, {65, 66}, {64 * 200, 1}})
    EXPECT_EQ(metadata(lengths_of({100}), rows).tile_scheduler_metadata.size(0), parts) << rows;
}

TEST(GetMlaMetadata, WithManyPartsAShortRequestHasABlockToASplit) {
  const auto splits = [](const Tensor& lengths, std::int64_t rows) { return values_of(metadata(lengths, rows).num_splits); };
  EXPECT_EQ(splits(lengths_of({128}), 64), (Values{0, 2}));
  EXPECT_EQ(splits(lengths_of({4096}), 64), (Values{0, 64}));
  EXPECT_EQ(splits(lengths_of({320, 28, 10, 268, 34}), 64), (Values{0, 5, 6, 7, 12, 13}));
  EXPECT_EQ(splits(lengths_of({0, 64}), 64), (Values{0, 1, 2}));
}

TEST(GetMlaMetadata, APartOfOneSmTakesRequestsWhole) {
  const auto op = metadata(lengths_of({128, 56}), 64, 1);
  EXPECT_EQ(values_of(op.tile_scheduler_metadata), (Values{0, 0, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(values_of(op.num_splits), (Values{0, 1, 2}));
}

struct Decode {
  Tensor q, cache, table, lengths;
  bool causal = true;
  std::int64_t sm_count = 132;

  static Decode of(DType type, std::int64_t queries, std::int64_t heads, const std::vector<std::int32_t>& tokens) {
    std::int32_t width = 1;
    for (const std::int32_t n : tokens) width = std::max(width, (n + 63) / 64);
    const auto requests = static_cast<std::int64_t>(tokens.size());
    std::vector<std::int32_t> pages(static_cast<std::size_t>(requests * width));
    for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<std::int32_t>(pages.size() - 1 - i);
    return {normal(type, {requests, queries, heads, 576}, "q"), normal(type, {requests * width, 64, 1, 576}, "kv"),
            ints({requests, width}, pages), lengths_of(tokens)};
  }
  Arguments arguments() const {
    const auto schedule = metadata(lengths, q.size(1) * std::max<std::int64_t>(1, q.size(2)), sm_count);
    Arguments a;
    a.set("q", q);
    a.set("k_cache", cache);
    a.set("block_table", table);
    a.set("cache_seqlens", lengths);
    a.set("tile_scheduler_metadata", schedule.tile_scheduler_metadata);
    a.set("num_splits", schedule.num_splits);
    a.set_attr("softmax_scale", 0.05);
    a.set_attr("causal", causal);
    return a;
  }
  /// out, softmax_lse
  oracle::NamedTensors run(Mode mode) const { return NamedOp{"flash_mla_with_kvcache"}.outputs(arguments(), in_mode(mode)); }
  std::int64_t failing(const oracle::NamedTensors& actual) const { return NamedOp{"flash_mla_with_kvcache"}.failing(arguments(), actual); }
};

TEST(FlashMla, EveryScheduleIsWithinTheBudget) {
  for (const std::int64_t sm_count : {1, 2, 5, 132}) {
    Decode d = Decode::of(DType::bf16, 2, 3, {300, 1, 130});
    d.sm_count = sm_count;
    EXPECT_EQ(d.failing(d.run(Mode::hopper)), 0) << sm_count << " SMs";
    EXPECT_EQ(d.failing(d.run(Mode::fast)), 0);
  }
}

TEST(FlashMla, TheScheduleShowsInTheBitsOfHopperModeAlone) {
  Decode one = Decode::of(DType::bf16, 1, 16, {500}), many = one;
  one.sm_count = 1;
  EXPECT_FALSE(same_bits(one.run(Mode::hopper)[0].second, many.run(Mode::hopper)[0].second));
  for (const Mode mode : {Mode::golden, Mode::fast}) EXPECT_TRUE(same_bits(one.run(mode)[0].second, many.run(mode)[0].second));
}

TEST(FlashMla, AQueryThatSeesNoKeyGivesZerosAndInfinity) {
  const Decode d = Decode::of(DType::f16, 2, 2, {0, 1, 2});
  for (const Mode mode : all_modes) {
    const auto outputs = d.run(mode);
    for (std::int64_t b = 0; b < 3; ++b)
      for (std::int64_t i = 0; i < 2; ++i) {
        const bool none = b + i < 2;
        for (std::int64_t h = 0; h < 2; ++h) {
          EXPECT_EQ(quant::get(outputs[1].second, (b * 2 + h) * 2 + i) == infinity, none)
              << name(mode) << " request " << b << " query " << i;
          EXPECT_EQ(quant::get(outputs[0].second, ((b * 2 + i) * 2 + h) * 512 + 3) == 0, none)
              << name(mode) << " request " << b << " query " << i;
        }
      }
  }
}

TEST(FlashMla, WhatLiesBeyondASequenceIsIgnored) {
  const Decode clean = Decode::of(DType::bf16, 1, 4, {70});
  Decode poisoned = clean;
  poisoned.cache = clean.cache.clone();
  // The second page comes first in memory.
  for (std::int64_t i = 6 * 576; i < 64 * 576; ++i) quant::set(poisoned.cache, i, std::numeric_limits<double>::quiet_NaN());
  for (const Mode mode : all_modes)
    for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(same_bits(clean.run(mode)[i].second, poisoned.run(mode)[i].second)) << name(mode);
}

TEST(FlashMla, AQueryWithANanAmongItsScoresIsNotJudged) {
  Decode d = Decode::of(DType::bf16, 1, 4, {70, 70});
  const Tensor q = d.q.clone();
  quant::set(q, 576 + 3, std::numeric_limits<double>::quiet_NaN());  // the second head of the first request
  d.q = q;
  oracle::NamedTensors outputs = d.run(Mode::hopper);
  EXPECT_EQ(quant::get(outputs[1].second, 1), infinity) << "upstream's sum of weights is NaN";
  EXPECT_EQ(d.failing(outputs), 0);
  quant::set(outputs[1].second, 0, infinity);
  EXPECT_EQ(d.failing(outputs), 1) << "the other heads are";
}

// ---- e4m3

/// Requests of e4m3, with scales.
Arguments in_fp8(const std::vector<std::int32_t>& tokens, float descale_q = 0.5f, float descale_k = 0.25f) {
  Decode d = Decode::of(DType::f8_e4m3, 2, 3, tokens);
  Arguments a = d.arguments();
  const Tensor parts(DType::i32, {3, 8}), splits(DType::i32, {d.lengths.size(0) + 1});
  ops::write_flash_mla_schedule({ops::FlashMlaKernel::dense_fp8, tokens, parts, splits});
  a.set("tile_scheduler_metadata", parts);
  a.set("num_splits", splits);
  a.set("descale_q", tensor_of(DType::f32, {1}, {descale_q}));
  a.set("descale_k", tensor_of(DType::f32, {1}, {descale_k}));
  return a;
}

TEST(FlashMlaFp8, HopperAndFastModeAreWithinTheBudget) {
  const NamedOp op{"flash_mla_with_kvcache"};
  const Arguments a = in_fp8({300, 1, 130});
  for (const Mode mode : {Mode::fast, Mode::hopper}) EXPECT_EQ(op.failing(a, op.outputs(a, in_mode(mode))), 0) << name(mode);
}

TEST(FlashMlaFp8, TheScalesAreThoseOfTheScoresAndOfTheValues) {
  const NamedOp op{"flash_mla_with_kvcache"};
  Arguments a = in_fp8({100}, 2.0f, 4.0f), b = in_fp8({100}, 8.0f, 1.0f);
  for (const Mode mode : all_modes) {
    const Values scaled = values_of(op.outputs(a, in_mode(mode))[0].second), plain = values_of(op.outputs(b, in_mode(mode))[0].second);
    for (std::size_t i = 0; i < plain.size(); ++i) ASSERT_EQ(scaled[i], 4 * plain[i]) << name(mode);
  }
}

TEST(FlashMlaFp8, AScaleThatIsFlushedMakesNanOfKeysThatAreNotThereWhichIsAKnownDefect) {
  const NamedOp op{"flash_mla_with_kvcache"};
  const Arguments a = in_fp8({70}, 1.0f, 0x1p-130f);
  const oracle::NamedTensors outputs = op.outputs(a, in_mode(Mode::hopper));
  EXPECT_TRUE(std::isnan(quant::get(outputs[0].second, 0)));
  EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, oracle::Outcome::known_defect);
  oracle::NamedTensors wrong = op.outputs(a, in_mode(Mode::fast));
  EXPECT_NE(oracle::judge(op.op(), a, wrong, {}).outcome, oracle::Outcome::fail);
  quant::set(wrong[0].second, 0, 1.0);
  EXPECT_EQ(oracle::judge(op.op(), a, wrong, {}).outcome, oracle::Outcome::fail);
}

TEST(FlashMlaFp8, NanOfATokenThatIsHiddenShowsWhichIsAKnownDefect) {
  const NamedOp op{"flash_mla_with_kvcache"};
  Arguments a = in_fp8({64});
  const Tensor cache = a.find("k_cache")->clone();
  for (std::int64_t page = 0; page < cache.size(0); ++page) quant::set(cache, (page * 64 + 63) * 576 + 5, std::nan(""));
  a.set("k_cache", cache);
  const oracle::NamedTensors outputs = op.outputs(a, in_mode(Mode::hopper));
  EXPECT_TRUE(std::isnan(quant::get(outputs[0].second, 5))) << "of the first query, who does not see the last token";
  EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, oracle::Outcome::known_defect);
}

TEST(FlashMlaFp8, ScalesWithoutE4m3AreErrors) {
  Arguments a = Decode::of(DType::bf16, 1, 2, {70}).arguments();
  a.set("descale_q", tensor_of(DType::f32, {1}, {1.0}));
  const Error error = error_from([&] { NamedOp{"flash_mla_with_kvcache"}.outputs(a, in_mode(Mode::fast)); });
  EXPECT_NE(std::string(error.what()).find("descale_q is given, expected it with q of f8_e4m3 alone: q is bf16"), std::string::npos)
      << error.what();
}

TEST(GetMlaMetadata, EachKernelHasPartsOfItsOwn) {
  using enum ops::FlashMlaKernel;
  EXPECT_EQ(ops::flash_mla_parts(dense, 132, 1, 128, 128), 66);
  EXPECT_EQ(ops::flash_mla_parts(dense_fp8, 132, 1, 128, 128), 66);
  EXPECT_EQ(ops::flash_mla_parts(dense_fp8, 132, 1, 128, 64 * 200), 0);
  EXPECT_EQ(ops::flash_mla_parts(sparse, 132, 1, 128, 128), 66);
  EXPECT_EQ(ops::flash_mla_parts(sparse, 132, 1, 128, 256), 33);
  EXPECT_EQ(ops::flash_mla_parts(sparse, 132, 1, 16, 16), 66);
  EXPECT_EQ(ops::flash_mla_parts(sparse, 132, 1, 129, 129), 33);
}

TEST(GetMlaMetadata, TheFp8KernelCountsTokensAndGivesNoBlockToNone) {
  const Tensor parts(DType::i32, {2, 8}), splits(DType::i32, {3});
  ops::write_flash_mla_schedule({ops::FlashMlaKernel::dense_fp8, {0, 300}, parts, splits});
  // 0 + 5 and 5 + 5 blocks: 8 + 5 to a part, of which the first request takes 5 and three blocks of the second the rest.
  EXPECT_EQ(values_of(parts), (Values{0, 0, 1, 192, 0, 0, 0, 0, 1, 192, 1, 300, 1, 0, 0, 0}));
  EXPECT_EQ(values_of(splits), (Values{0, 1, 3}));
}

TEST(GetMlaMetadata, PartsWithNothingToDoBeginAtNoRequest) {
  const auto op = metadata(lengths_of({64}), 64, 3);
  EXPECT_EQ(values_of(op.tile_scheduler_metadata), (Values{0, 0, 0, 1, 0, 0, 0, 0, -1, 0, 0, 1, 0, 0, 0, 0, -1, 0, 0, 1, 0, 0, 0, 0}));
}

// ---- sparse

/// Prefill of some tokens over `rows` rows of kv.
struct Sparse {
  Tensor q, kv, indices;

  static Sparse of(std::int64_t tokens, std::int64_t heads, std::int64_t rows, const std::vector<std::int32_t>& list) {
    std::vector<std::int32_t> all;
    for (std::int64_t t = 0; t < tokens; ++t) all.insert(all.end(), list.begin(), list.end());
    return {normal(DType::bf16, {tokens, heads, 576}, "q"), normal(DType::bf16, {rows, 1, 576}, "kv"),
            ints({tokens, 1, static_cast<std::int64_t>(list.size())}, all)};
  }
  Arguments arguments() const {
    Arguments a;
    a.set("q", q);
    a.set("kv", kv);
    a.set("indices", indices);
    a.set_attr("sm_scale", 0.05);
    return a;
  }
  /// out, max_logits, lse
  oracle::NamedTensors run(Mode mode, const char* logarithms = "base_2") const {
    Arguments a = arguments();
    a.set_attr("logarithms", std::string(logarithms));
    return NamedOp{"flash_mla_sparse_fwd"}.outputs(a, in_mode(mode));
  }
};

/// 128 numbers: `count` rows from 0 on, then `rest`.
std::vector<std::int32_t> list_of(std::int32_t count, std::int32_t rest) {
  std::vector<std::int32_t> list(128, rest);
  for (std::int32_t i = 0; i < count; ++i) list[static_cast<std::size_t>(i)] = i;
  return list;
}

TEST(FlashMlaSparse, ATokenThatNamesNoRowGivesZerosAndMinusInfinity) {
  for (const Mode mode : all_modes) {
    const auto outputs = Sparse::of(1, 2, 5, list_of(0, 5)).run(mode);
    for (const double x : values_of(outputs[0].second)) ASSERT_EQ(x, 0) << name(mode);
    for (const std::size_t i : {1u, 2u})
      for (const double x : values_of(outputs[i].second)) EXPECT_EQ(x, -infinity) << name(mode);
  }
}

TEST(FlashMlaSparse, LaterVersionsNaturalLogarithmsAreThoseOfBaseTwoTimesLn2) {
  const Sparse named = Sparse::of(1, 2, 40, list_of(40, -1)), none = Sparse::of(1, 2, 5, list_of(0, 5));
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const auto base_2 = named.run(mode), natural = named.run(mode, "natural"), of_none = none.run(mode, "natural");
    EXPECT_TRUE(same_bits(base_2[0].second, natural[0].second)) << name(mode);
    for (const std::size_t i : {1u, 2u})
      for (std::int64_t h = 0; h < 2; ++h)
        EXPECT_NEAR(quant::get(natural[i].second, h), quant::get(base_2[i].second, h) * 0.6931471805599453, 1e-6) << name(mode);
    for (std::int64_t h = 0; h < 2; ++h) {
      EXPECT_EQ(quant::get(of_none[1].second, h), -infinity) << name(mode);
      EXPECT_EQ(quant::get(of_none[2].second, h), infinity) << name(mode);
    }
  }
  EXPECT_THROW(named.run(Mode::hopper, "natural"), Error);
}

TEST(FlashMlaSparse, NumbersThatNameNoRowAreAbsentWhateverTheyAre) {
  const Sparse plain = Sparse::of(1, 2, 40, list_of(40, -1));
  for (const std::int32_t number : {40, -7, 2147480000, std::numeric_limits<std::int32_t>::min()})
    for (const Mode mode : all_modes)
      for (std::size_t i = 0; i < 3; ++i)
        EXPECT_TRUE(same_bits(plain.run(mode)[i].second, Sparse::of(1, 2, 40, list_of(40, number)).run(mode)[i].second))
            << name(mode) << " " << number;
}

TEST(FlashMlaSparse, ARowThatIsNamedTwiceCountsTwice) {
  // The same row in every place: the sum of the weights is 128.
  const auto outputs = Sparse::of(1, 2, 1, list_of(0, 0)).run(Mode::golden);
  const Values top = values_of(outputs[1].second), lse = values_of(outputs[2].second);
  for (std::size_t h = 0; h < 2; ++h) EXPECT_NEAR(lse[h] - top[h], 7, 1e-5);
}

TEST(FlashMlaSparse, ItIsDenseAttentionWhereTheListNamesAllTokensInOrder) {
  const Decode dense = Decode::of(DType::bf16, 1, 4, {128});
  Sparse sparse = Sparse::of(1, 4, 128, list_of(128, -1));
  sparse.q = dense.q.reshape({1, 4, 576});
  sparse.kv = Tensor(DType::bf16, {128, 1, 576});
  for (std::int64_t j = 0; j < 128; ++j)
    for (std::int64_t k = 0; k < 576; ++k)
      quant::set(sparse.kv, j * 576 + k,
                 quant::get(dense.cache, (static_cast<std::int64_t>(quant::get(dense.table, j / 64)) * 64 + j % 64) * 576 + k));
  for (const Mode mode : {Mode::golden, Mode::fast})
    EXPECT_EQ(values_of(dense.run(mode)[0].second), values_of(sparse.run(mode)[0].second)) << name(mode);
  EXPECT_EQ(dense.failing(
                {{"out", sparse.run(Mode::hopper)[0].second.reshape({1, 1, 4, 512})}, {"softmax_lse", dense.run(Mode::golden)[1].second}}),
            0);
}

TEST(FlashMlaSparse, TheCacheOfDecodeIsThatOfDequantizedRows) {
  // Scales that bf16 holds: decode over the codes is prefill over the rows that dequantize_k_cache makes of them.
  Tensor cache(DType::u8, {2, 64, 1, 656});
  ops::draw_k_cache_rows(cache.as<std::byte>(), 128, 3, "k_cache", 4);
  for (std::int64_t r = 0; r < 128; ++r)
    for (std::int64_t g = 0; g < 4; ++g) ops::set_k_cache_scale(cache.as<std::byte>() + r * 656, g, 0.0625f);
  Sparse rows = Sparse::of(1, 3, 128, list_of(100, -1));
  for (std::int64_t r = 0; r < 128; ++r)
    ops::dequantize_k_cache_row(cache.as<const std::byte>() + r * 656, rows.kv.as<std::byte>() + r * 1152, default_isa());
  Arguments a;
  a.set("q", rows.q.reshape({1, 1, 3, 576}));
  a.set("k_cache", cache);
  a.set("indices", rows.indices);
  a.set("tile_scheduler_metadata", ints({1, 8}, {0, 0, 0, 2, 0, 0, 0, 0}));
  a.set("num_splits", ints({2}, {0, 1}));
  a.set_attr("softmax_scale", 0.05);
  for (const Mode mode : {Mode::golden, Mode::fast})
    EXPECT_EQ(values_of(NamedOp{"flash_mla_sparse_decode"}.outputs(a, in_mode(mode))[0].second), values_of(rows.run(mode)[0].second))
        << name(mode);
}

/// An H200 gave three times the output for such scores: beside them the logarithm of three equal splits is nothing.
TEST(FlashMlaSparse, SplitsWhoseSumIsLostBesideTheirScoresMayEachCountWhole) {
  const NamedOp op{"flash_mla_sparse_decode"};
  const Arguments a =
      oracle::generate(parse_case_line("flash_mla_sparse_decode B=1 Q=1 N=64 pages=1 topk=320 parts=10 --attr softmax_scale=1e5 --seed 5"));
  for (const Mode mode : {Mode::fast, Mode::hopper}) EXPECT_EQ(op.failing(a, op.outputs(a, in_mode(mode))), 0) << name(mode);
}

TEST(FlashMla, SchedulesThatLeaveBlocksOutAreErrors) {
  const Decode d = Decode::of(DType::bf16, 1, 4, {200});
  const auto error = [&](const Tensor& parts, const Tensor& splits) -> std::string {
    Arguments a = d.arguments();
    a.set("tile_scheduler_metadata", parts);
    a.set("num_splits", splits);
    return message_in([&] { NamedOp{"flash_mla_with_kvcache"}.outputs(a, in_mode(Mode::fast)); });
  };
  EXPECT_EQ(error(ints({2, 8}, {0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 4, 1, 0, 0, 0}), lengths_of({0, 2})), "");
  EXPECT_NE(error(ints({1, 8}, {0, 0, 0, 3, 0, 0, 0, 0}), lengths_of({0, 1})).find("expected its 4 blocks of 200 tokens"),
            std::string::npos);
  EXPECT_NE(error(ints({1, 8}, {0, 0, 0, 4, 0, 0, 0, 0}), lengths_of({0, 2})).find("in the 2 splits that num_splits has"),
            std::string::npos);
  EXPECT_NE(error(ints({1, 8}, {0, 0, 7, 4, 0, 0, 0, 0}), lengths_of({0, 1})).find("to request 7, expected requests 0 to 0"),
            std::string::npos);
}

TEST(FlashMla, OfZerosTheOneWithoutASignIsTheLarger) {
  for (const auto& [a, b] : {std::pair{-0.0f, 0.0f}, {0.0f, -0.0f}, {-0x1p-140f, 0x1p-140f}, {0x1p-140f, -0x1p-140f}})
    EXPECT_FALSE(std::signbit(ops::flash_mla_max(a, b))) << a << " " << b;
  EXPECT_TRUE(std::signbit(ops::flash_mla_max(-0.0f, -0.0f)));
}

}  // namespace
}  // namespace dodona
