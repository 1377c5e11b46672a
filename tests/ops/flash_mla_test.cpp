// FlashMLA: its schedule, and its bits under schedules and lengths of any kind.
#include "ops/attention/flash_mla_with_kvcache.h"

#include <gtest/gtest.h>

#include <limits>

#include "dodona/error.h"
#include "helpers.h"
#include "ops/attention/get_mla_metadata.h"

namespace dodona {
namespace {

using namespace helpers;

Tensor ints(const Dims& shape, const std::vector<std::int32_t>& values) {
  Tensor t(DType::i32, shape);
  std::copy(values.begin(), values.end(), t.as<std::int32_t>());
  return t;
}
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

TEST(FlashMla, SchedulesThatLeaveBlocksOutAreErrors) {
  const Decode d = Decode::of(DType::bf16, 1, 4, {200});
  const auto error = [&](const Tensor& parts, const Tensor& splits) -> std::string {
    Arguments a = d.arguments();
    a.set("tile_scheduler_metadata", parts);
    a.set("num_splits", splits);
    try {
      NamedOp{"flash_mla_with_kvcache"}.outputs(a, in_mode(Mode::fast));
    } catch (const Error& caught) {
      return caught.what();
    }
    return {};
  };
  EXPECT_EQ(error(ints({2, 8}, {0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 4, 1, 0, 0, 0}), lengths_of({0, 2})), "");
  EXPECT_NE(error(ints({1, 8}, {0, 0, 0, 3, 0, 0, 0, 0}), lengths_of({0, 1})).find("expected its 4 blocks of 200 tokens"),
            std::string::npos);
  EXPECT_NE(error(ints({1, 8}, {0, 0, 0, 4, 0, 0, 0, 0}), lengths_of({0, 2})).find("in the 2 splits that num_splits has"),
            std::string::npos);
  EXPECT_NE(error(ints({1, 8}, {0, 0, 7, 4, 0, 0, 0, 0}), lengths_of({0, 1})).find("to request 7, expected requests 0 to 0"),
            std::string::npos);
}

}  // namespace
}  // namespace dodona
