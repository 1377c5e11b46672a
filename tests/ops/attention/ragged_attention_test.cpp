// Prefill of requests of any lengths: masks, absent keys, strides, edges of tiles.
#include <gtest/gtest.h>

#include <limits>

#include "dodona/error.h"
#include "ops/attention/trtllm_ragged_attention_deepseek.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/ints.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr Mode both_modes[] = {Mode::golden, Mode::fast};

struct Prefill {
  Tensor query, key, value;
  std::vector<std::int32_t> queries, keys;  ///< of each request
  bool causal = true;

  static Prefill of(DType type, const std::vector<std::int32_t>& queries, const std::vector<std::int32_t>& keys, std::int64_t heads,
                    std::int64_t key_heads, bool causal = true) {
    std::int64_t q = 0, k = 0;
    for (const std::int32_t n : queries) q += n;
    for (const std::int32_t n : keys) k += n;
    return {normal(type, {q, heads, 192}, "q"),
            normal(type, {k, key_heads, 192}, "k"),
            normal(type, {k, key_heads, 128}, "v"),
            queries,
            keys,
            causal};
  }
  Arguments arguments() const {
    const auto sums = [](const std::vector<std::int32_t>& lengths) {
      std::vector<std::int32_t> ends{0};
      for (const std::int32_t n : lengths) ends.push_back(ends.back() + n);
      return ints(ends);
    };
    Arguments a;
    a.set("query", query);
    a.set("key", key);
    a.set("value", value);
    a.set("seq_lens", ints(keys));
    a.set("cum_seq_lens_q", sums(queries));
    a.set("cum_seq_lens_kv", sums(keys));
    a.set_attr("bmm1_scale", 0.07);
    a.set_attr("is_causal", causal);
    a.set_attr("return_lse", true);
    return a;
  }
  /// out, lse
  oracle::NamedTensors run(const Exec& exec) const { return NamedOp{"trtllm_ragged_attention_deepseek"}.outputs(arguments(), exec); }
  std::int64_t failing(const oracle::NamedTensors& actual) const {
    return NamedOp{"trtllm_ragged_attention_deepseek"}.failing(arguments(), actual);
  }
};

TEST(RaggedAttention, AQueryAloneHasTheBitsOfTheQueryInItsBatch) {
  const Prefill all = Prefill::of(DType::bf16, {70, 5}, {80, 9}, 2, 1);
  for (const Mode mode : both_modes) {
    const auto batch = all.run(in_mode(mode));
    for (const std::int32_t i : {0, 15, 16, 63, 64, 69}) {
      const std::int32_t seen = i + 80 - 70 + 1;
      const Prefill one{all.query.slice(0, i, i + 1), all.key.slice(0, 0, seen), all.value.slice(0, 0, seen), {1}, {seen}, false};
      const auto alone = one.run(in_mode(mode));
      EXPECT_TRUE(same_bits(alone[0].second, batch[0].second.slice(0, i, i + 1))) << name(mode) << " query " << i;
      EXPECT_TRUE(same_bits(alone[1].second, batch[1].second.slice(0, i, i + 1))) << name(mode) << " query " << i;
    }
  }
}

TEST(RaggedAttention, WhatAQueryDoesNotSeeHasNoEffectWhateverItHolds) {
  const Prefill clean = Prefill::of(DType::bf16, {66}, {66}, 2, 2);
  Prefill poisoned = clean;
  poisoned.key = clean.key.clone();
  poisoned.value = clean.value.clone();
  for (std::int64_t j = 40; j < 66; ++j)
    for (std::int64_t d = 0; d < 2 * 128; ++d) {
      quant::set(poisoned.value, j * 256 + d, j % 2 == 0 ? infinity : std::numeric_limits<double>::quiet_NaN());
      quant::set(poisoned.key, j * 384 + d, j % 3 == 0 ? -infinity : std::numeric_limits<double>::quiet_NaN());
    }
  for (const Mode mode : both_modes) {
    const auto expected = clean.run(in_mode(mode)), actual = poisoned.run(in_mode(mode));
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(same_bits(expected[i].second.slice(0, 0, 40), actual[i].second.slice(0, 0, 40))) << name(mode) << " output " << i;
  }
}

TEST(RaggedAttention, QueriesThatSeeNoKeyGiveZerosAndMinusInfinity) {
  // The second request has no keys; of the third's five queries two come before the first key.
  const Prefill p = Prefill::of(DType::bf16, {2, 3, 5}, {4, 0, 3}, 2, 2);
  for (const Mode mode : both_modes) {
    const auto outputs = p.run(in_mode(mode));
    for (std::int64_t t = 0; t < 10; ++t) {
      const bool none = t >= 2 && t < 7;
      for (std::int64_t h = 0; h < 2; ++h) {
        EXPECT_EQ(quant::get(outputs[1].second, t * 2 + h) == -infinity, none) << name(mode) << " query " << t;
        EXPECT_EQ(quant::get_bits(outputs[0].second, (t * 2 + h) * 128 + 7) == 0u, none) << name(mode) << " query " << t;
      }
    }
  }
}

TEST(RaggedAttention, FastIsWithinTheBudgetAtTheEdgesOfTilesAndSplits) {
  for (const auto& [queries, keys] : {std::pair(63, 63), {64, 64}, {65, 127}, {130, 129}, {3, 1023}, {2, 1100}, {70, 1030}})
    for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
      const Prefill p = Prefill::of(type, {queries}, {keys}, 1, 1);
      EXPECT_EQ(p.failing(p.run(in_mode(Mode::fast))), 0) << queries << " queries, " << keys << " keys of " << name(type);
    }
}

TEST(RaggedAttention, ThreadsAndTiersDoNotChangeBits) {
  const Prefill p = Prefill::of(DType::bf16, {90, 3}, {1200, 7}, 3, 3);
  const auto expected = p.run(in_mode(Mode::fast, 1));
  for (const int threads : {2, 5, 16}) EXPECT_TRUE(same_bits(expected[0].second, p.run(in_mode(Mode::fast, threads))[0].second)) << threads;
  for (const Isa isa : available_isas())
    EXPECT_TRUE(same_bits(expected[0].second, p.run(in_mode(Mode::fast, 2, isa))[0].second)) << name(isa);
}

TEST(RaggedAttention, ValuesMayBeSlicesOfWiderRows) {
  Prefill p = Prefill::of(DType::bf16, {5}, {5}, 4, 4);
  const Tensor wide = normal(DType::bf16, {5, 4, 256}, "kv");
  p.value = wide.slice(2, 128, 256);
  Prefill dense = p;
  dense.value = p.value.clone();
  for (const Mode mode : both_modes) EXPECT_TRUE(same_bits(p.run(in_mode(mode))[0].second, dense.run(in_mode(mode))[0].second));
}

TEST(RaggedAttention, MasksThatAreOffByOneAreCaught) {
  Prefill p = Prefill::of(DType::bf16, {6}, {9}, 2, 2);
  Prefill shifted = p;
  shifted.keys = {8};  // the last key is seen by none, each query sees one less
  Arguments wrong = p.arguments();
  wrong.set("seq_lens", ints({8}));
  const auto actual = NamedOp{"trtllm_ragged_attention_deepseek"}.outputs(wrong, in_mode(Mode::golden));
  EXPECT_GT(p.failing(actual), 500);
  p.causal = false;
  EXPECT_GT(p.failing(shifted.run(in_mode(Mode::golden))), 500);
}

TEST(RaggedAttention, OffsetsAndLengthsThatDoNotFitAreErrors) {
  const Prefill p = Prefill::of(DType::bf16, {2, 3}, {4, 3}, 2, 2);
  const auto error = [&](const char* argument, const Tensor& tensor) -> std::string {
    Arguments a = p.arguments();
    a.set(argument, tensor);
    return message_in([&] { NamedOp{"trtllm_ragged_attention_deepseek"}.outputs(a, in_mode(Mode::fast)); });
  };
  EXPECT_NE(error("cum_seq_lens_q", ints({0, 4, 3})).find("cum_seq_lens_q holds 3 at element 2, expected offsets that"), std::string::npos);
  EXPECT_NE(error("cum_seq_lens_q", ints({0, 2, 4})).find("end at 5, the tokens of query"), std::string::npos);
  EXPECT_NE(error("cum_seq_lens_kv", ints({0, 4, 8})).find("cum_seq_lens_kv holds 8 at element 2"), std::string::npos);
  EXPECT_NE(error("seq_lens", ints({5, 3})).find("seq_lens holds 5 at element 0, expected at most the 4 keys"), std::string::npos);
  EXPECT_NE(error("seq_lens", ints({-1, 3})).find("seq_lens holds -1"), std::string::npos);
}

}  // namespace
}  // namespace dodona
