// Prefill behind a prefix: what queries see of prefixes, new tokens, masks and windows.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "dodona/error.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/ints.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr std::int64_t slots = 300;

Tensor converted(const Tensor& t, DType type) {
  return tensor_of(type, t.shape(), values_of(t));
}

/// Requests of some new tokens behind prefixes.
struct Extend {
  std::vector<std::int32_t> fresh, prefix;
  std::int64_t width = 64, value_width = 64, heads = 4, key_heads = 2;
  DType type = DType::bf16, pool = type;

  static std::vector<std::int32_t> ends_of(const std::vector<std::int32_t>& lengths) {
    std::vector<std::int32_t> ends{0};
    for (const std::int32_t n : lengths) ends.push_back(ends.back() + n);
    return ends;
  }
  std::int64_t tokens() const { return ends_of(fresh).back(); }

  Arguments arguments() const {
    Arguments a;
    a.set("q_extend", normal(type, {tokens(), heads, width}, "q"));
    a.set("k_extend", normal(type, {tokens(), key_heads, width}, "k"));
    a.set("v_extend", normal(type, {tokens(), key_heads, value_width}, "v"));
    a.set("k_buffer", normal(pool, {slots, key_heads, width}, "kb"));
    a.set("v_buffer", normal(pool, {slots, key_heads, value_width}, "vb"));
    a.set("qo_indptr", ints(ends_of(fresh)));
    a.set("kv_indptr", ints(ends_of(prefix)));
    std::vector<std::int32_t> at;
    for (std::int32_t i = 0; i < ends_of(prefix).back(); ++i) at.push_back((i * 7 + 3) % static_cast<std::int32_t>(slots));
    a.set("kv_indices", ints(at));
    return a;
  }
  /// A mask of every request: sees(prefix, query, key), keys counted from the prefix's first on.
  void set_mask(Arguments& a, const std::function<bool(std::int64_t, std::int64_t, std::int64_t)>& sees) const {
    Values mask;
    std::vector<std::int32_t> starts;
    for (std::size_t b = 0; b < fresh.size(); ++b) {
      starts.push_back(static_cast<std::int32_t>(mask.size()));
      for (std::int64_t i = 0; i < fresh[b]; ++i)
        for (std::int64_t j = 0; j < prefix[b] + fresh[b]; ++j) mask.push_back(sees(prefix[b], i, j) ? 1 : 0);
    }
    starts.push_back(static_cast<std::int32_t>(mask.size()));
    a.set("custom_mask", tensor_of(DType::boolean, {static_cast<std::int64_t>(mask.size())}, mask));
    a.set("mask_indptr", ints(starts));
  }
};

const NamedOp op{"extend_attention_fwd"};

Tensor run(const Arguments& a, Mode mode) {
  return op.outputs(a, in_mode(mode)).front().second;
}

bool causal(std::int64_t prefix, std::int64_t i, std::int64_t j) {
  return j <= prefix + i;
}

TEST(ExtendAttention, LengthsAtTheEdgesOfTilesAreWithinTheBudgetInEveryMode) {
  for (const auto& [width, value_width] : {std::pair<std::int64_t, std::int64_t>(64, 64), {192, 128}, {576, 512}})
    for (const bool is_causal : {true, false}) {
      const Extend e{{1, 0, 31, 33, 64, 129}, {0, 5, 64, 1, 65, 63}, width, value_width, 2, 1};
      Arguments a = e.arguments();
      a.set_attr("is_causal", is_causal);
      for (const Mode mode : {Mode::hopper, Mode::fast}) EXPECT_EQ(op.failing(a, op.outputs(a, in_mode(mode))), 0) << name(mode) << width;
    }
}

TEST(ExtendAttention, ACausalMaskWrittenOutHasTheBitsOfIsCausal) {
  const Extend e{{5, 70}, {66, 0}};
  const Arguments plain = e.arguments();
  Arguments masked = plain;
  e.set_mask(masked, causal);
  for (const Mode mode : all_modes)
    for (const bool skip : {false, true}) {
      masked.set_attr("skip_prefix_custom_mask", skip);
      EXPECT_TRUE(same_bits(run(plain, mode), run(masked, mode))) << name(mode) << skip;
    }
}

TEST(ExtendAttention, AWindowWrittenOutAsAMaskIsTheSlidingWindow) {
  const Extend e{{40, 3}, {30, 90}};
  Arguments window = e.arguments(), masked = window;
  window.set_attr("sliding_window_size", std::int64_t{17});
  e.set_mask(masked, [](std::int64_t prefix, std::int64_t i, std::int64_t j) { return causal(prefix, i, j) && prefix + i - j <= 17; });
  masked.set_attr("skip_prefix_custom_mask", false);
  for (const Mode mode : all_modes) EXPECT_TRUE(same_bits(run(window, mode), run(masked, mode))) << name(mode);
}

TEST(ExtendAttention, RowsOfAMaskBeginWithTheKeysBeforeTheWindow) {
  const Extend e{{6}, {4}};
  Arguments a = e.arguments(), with_lead = a;
  const auto tree = [](std::int64_t prefix, std::int64_t i, std::int64_t j) {
    return j < prefix || (causal(prefix, i, j) && (i - j) % 2 == 0);
  };
  a.set_attr("sliding_window_size", std::int64_t{8});
  e.set_mask(a, tree);
  Values mask;
  for (std::int64_t i = 0; i < 6; ++i) {
    mask.insert(mask.end(), 3, 0.0);
    for (std::int64_t j = 0; j < 10; ++j) mask.push_back(tree(4, i, j) ? 1 : 0);
  }
  with_lead.set_attr("sliding_window_size", std::int64_t{8});
  with_lead.set("custom_mask", tensor_of(DType::boolean, {static_cast<std::int64_t>(mask.size())}, mask));
  with_lead.set("mask_indptr", ints({0, 78}));
  with_lead.set("window_kv_offsets", ints({3}));
  for (const Mode mode : all_modes) EXPECT_TRUE(same_bits(run(a, mode), run(with_lead, mode))) << name(mode);
}

TEST(ExtendAttention, TreeMasksCapsAndTemperaturesAreWithinTheBudgetInEveryMode) {
  for (const auto& [width, value_width] : {std::pair<std::int64_t, std::int64_t>(128, 128), {576, 512}})
    for (const DType type : {DType::bf16, DType::f16}) {
      const Extend e{{37, 9}, {70, 3}, width, value_width, 4, 1, type};
      Arguments a = e.arguments();
      a.set_attr("logit_cap", 20.0);
      a.set_attr("xai_temperature_len", std::int64_t{16});
      e.set_mask(a, [](std::int64_t, std::int64_t i, std::int64_t j) { return (i * 5 + j) % 3 != 0; });
      for (const bool skip : {false, true}) {
        a.set_attr("skip_prefix_custom_mask", skip);
        for (const Mode mode : {Mode::hopper, Mode::fast}) EXPECT_EQ(op.failing(a, op.outputs(a, in_mode(mode))), 0) << name(mode) << width;
      }
    }
}

TEST(ExtendAttention, OfAMaskUnderIsCausalNoKeyBehindTheBlockOfRowsIsSeen) {
  const Extend e{{40}, {0}, 288, 64, 2, 2};
  Arguments all = e.arguments(), in_blocks = all;
  e.set_mask(all, [](std::int64_t, std::int64_t, std::int64_t) { return true; });
  e.set_mask(in_blocks, [](std::int64_t, std::int64_t i, std::int64_t j) { return j < (i / 32 + 1) * 32; });
  for (const Mode mode : all_modes) EXPECT_TRUE(same_bits(run(all, mode), run(in_blocks, mode))) << name(mode);
  in_blocks.set_attr("BLOCK_M", std::int64_t{16});
  EXPECT_FALSE(same_bits(run(all, Mode::golden), run(in_blocks, Mode::golden)));
  EXPECT_FALSE(registry().at(op.name).supports(oracle::runnable(registry().at(op.name), in_blocks), Mode::hopper));
}

TEST(ExtendAttention, AQueryThatSeesNoKeyGivesZeros) {
  const Extend e{{3}, {0}};
  Arguments a = e.arguments();
  e.set_mask(a, [](std::int64_t, std::int64_t i, std::int64_t) { return i == 1; });
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const Tensor o = run(a, mode);
    EXPECT_TRUE(same_bits(o.slice(0, 0, 1), filled(DType::bf16, {1, 4, 64}, 0)));
    EXPECT_FALSE(same_bits(o.slice(0, 1, 2), filled(DType::bf16, {1, 4, 64}, 0)));
  }
}

TEST(ExtendAttention, WhatMasksHideHasNoEffectInGoldenAndFastMode) {
  const Extend e{{12}, {20}};
  Arguments clean = e.arguments();
  e.set_mask(clean, [](std::int64_t prefix, std::int64_t i, std::int64_t j) { return causal(prefix, i, j) && j != prefix + 4; });
  Arguments poisoned = clean;
  for (const char* tensor : {"k_extend", "v_extend"}) {
    Tensor t = clean.find(tensor)->clone();
    for (std::int64_t d = 0; d < 2 * 64; ++d) quant::set(t, 4 * 2 * 64 + d, infinity);
    poisoned.set(tensor, t);
  }
  for (const Mode mode : {Mode::golden, Mode::fast}) EXPECT_TRUE(same_bits(run(clean, mode), run(poisoned, mode))) << name(mode);
  EXPECT_EQ(oracle::judge(op.op(), poisoned, {{"o_extend", run(poisoned, Mode::hopper)}}, {}).outcome, oracle::Outcome::known_defect)
      << "0 times the hidden value";
}

TEST(ExtendAttention, PoolsOfE4m3AreWithinTheBudgetInEveryMode) {
  for (const auto& [width, value_width] : {std::pair<std::int64_t, std::int64_t>(64, 64), {192, 128}, {576, 512}})
    for (const DType type : {DType::bf16, DType::f16})
      for (const bool masked : {false, true}) {
        const Extend e{{1, 0, 31, 70}, {0, 5, 64, 130}, width, value_width, 2, 1, type, DType::f8_e4m3};
        Arguments a = e.arguments();
        if (masked) e.set_mask(a, [](std::int64_t prefix, std::int64_t i, std::int64_t j) { return causal(prefix, i, j) && j % 3 != 1; });
        a.set_attr("skip_prefix_custom_mask", false);
        for (const Mode mode : {Mode::hopper, Mode::fast}) EXPECT_EQ(op.failing(a, op.outputs(a, in_mode(mode))), 0) << name(mode) << width;
      }
}

TEST(ExtendAttention, QueriesAreRoundedForThePoolAlone) {
  // Without a prefix there is nothing of the pool; behind one, queries that e4m3 holds give what they give rounded.
  const Extend fresh{{9}, {0}}, behind{{9}, {40}};
  Arguments bf16 = fresh.arguments(), e4m3 = bf16;
  for (const char* pool : {"k_buffer", "v_buffer"}) e4m3.set(pool, converted(*bf16.find(pool), DType::f8_e4m3));
  for (const Mode mode : all_modes) EXPECT_TRUE(same_bits(run(bf16, mode), run(e4m3, mode))) << name(mode);
  Arguments exact = behind.arguments(), rounded;
  for (const char* pool : {"k_buffer", "v_buffer"}) exact.set(pool, converted(*exact.find(pool), DType::f8_e4m3));
  rounded = exact;
  rounded.set("q_extend", converted(converted(*exact.find("q_extend"), DType::f8_e4m3), DType::bf16));
  for (const Mode mode : all_modes) EXPECT_FALSE(same_bits(run(exact, mode), run(rounded, mode))) << name(mode);
  Arguments of_zeros = exact, of_rounded_zeros = rounded;
  for (Arguments* a : {&of_zeros, &of_rounded_zeros}) a->set("k_extend", filled(DType::bf16, {9, 2, 64}, 0));
  for (const Mode mode : all_modes) EXPECT_TRUE(same_bits(run(of_zeros, mode), run(of_rounded_zeros, mode))) << name(mode);
}

TEST(ExtendAttention, OfHeadsOfOddWidthsOnlySlotsThatAreNamedAreCopied) {
  Extend e{{2, 1}, {3, 2}};
  e.width = 40, e.value_width = 24;
  Arguments few = e.arguments();
  few.set("k_buffer", normal(DType::bf16, {1, 2, 40}, "kb")), few.set("v_buffer", normal(DType::bf16, {1, 2, 24}, "vb"));
  few.set("kv_indices", ints({0, 0, 0, 0, 0}));
  Arguments many = few;
  for (const char* name : {"k_buffer", "v_buffer"}) {
    // 2^40 slots in the memory of one: nothing could hold a copy of them.
    const Tensor& slot = *few.find(name);
    many.set(name, Tensor(static_cast<const void*>(slot.data()), slot.dtype(), {std::int64_t{1} << 40, slot.size(1), slot.size(2)},
                          {0, slot.stride(1), 1}));
  }
  many.set("kv_indices", ints({7, 1 << 30, 7, 0, 99}));
  for (const Mode mode : {Mode::golden, Mode::fast}) EXPECT_TRUE(same_bits(run(few, mode), run(many, mode))) << name(mode);
}

TEST(ExtendAttention, ASinkIsAKeyOfValueZero) {
  // A pool row that no query likes more than the others: its score is 0, as a sink of 0.
  const Extend e{{5}, {6}};
  Arguments with_key = e.arguments(), with_sink = with_key;
  Tensor keys = with_key.find("k_buffer")->clone(), values = with_key.find("v_buffer")->clone();
  std::vector<std::int32_t> at(with_key.find("kv_indices")->as<const std::int32_t>(),
                               with_key.find("kv_indices")->as<const std::int32_t>() + 6);
  at.push_back(299);
  for (std::int64_t d = 0; d < 2 * 64; ++d) quant::set(keys, 299 * 128 + d, 0), quant::set(values, 299 * 128 + d, 0);
  with_key.set("k_buffer", keys), with_key.set("v_buffer", values);
  with_key.set("kv_indices", ints(at)), with_key.set("kv_indptr", ints({0, 7}));
  for (const DType type : {DType::bf16, DType::f32}) {
    with_sink.set("sinks", filled(type, {4}, 0));
    for (const Mode mode : {Mode::golden, Mode::fast})
      EXPECT_EQ(op.failing(with_key, {{"o_extend", run(with_sink, mode)}}), 0) << name(mode);
    EXPECT_EQ(op.failing(with_sink, {{"o_extend", run(with_sink, Mode::hopper)}}), 0);
  }
  EXPECT_GT(op.failing(with_sink, {{"o_extend", run(e.arguments(), Mode::golden)}}), 0);
  // A sink above all scores takes nearly everything, one of -infinity nothing.
  with_sink.set("sinks", filled(DType::f32, {4}, 1e4));
  for (const Mode mode : all_modes) EXPECT_EQ(quant::get(run(with_sink, mode), 7), 0) << name(mode);
  with_sink.set("sinks", filled(DType::f32, {4}, -infinity));
  for (const Mode mode : all_modes) EXPECT_TRUE(same_bits(run(with_sink, mode), run(e.arguments(), mode))) << name(mode);
}

TEST(ExtendAttention, WithASinkAQueryThatSeesNoKeyGivesZerosInEveryMode) {
  const Extend e{{3}, {0}};
  Arguments a = e.arguments();
  e.set_mask(a, [](std::int64_t, std::int64_t i, std::int64_t) { return i == 1; });
  a.set("sinks", filled(DType::f32, {4}, 0.5));
  for (const Mode mode : all_modes) EXPECT_TRUE(same_bits(run(a, mode).slice(0, 0, 1), filled(DType::bf16, {1, 4, 64}, 0))) << name(mode);
}

TEST(ExtendAttention, PoolsOfOtherTypesAreErrors) {
  const Extend e{{3}, {5}};
  Arguments a = e.arguments();
  a.set("k_buffer", filled(DType::f16, {slots, 2, 64}, 0));
  const Error error = error_from([&] { run(a, Mode::fast); });
  EXPECT_NE(std::string(error.what()).find("k_buffer has dtype f16, expected bf16 as q_extend or f8_e4m3"), std::string::npos)
      << error.what();
}

TEST(ExtendAttention, MasksThatAreTooShortAndOffsetsThatFallAreErrors) {
  const auto message = [](const Arguments& a) -> std::string { return message_in([&] { run(a, Mode::fast); }); };
  const Extend e{{3, 4}, {5, 6}};
  Arguments a = e.arguments();
  e.set_mask(a, causal);
  a.set("custom_mask", a.find("custom_mask")->slice(0, 0, 60));
  EXPECT_NE(message(a).find("mask_indptr holds 24 at element 1, expected 0 to 20 for the mask of request 1, 4 queries and 10 keys"),
            std::string::npos)
      << message(a);
  Arguments falling = e.arguments();
  falling.set("qo_indptr", ints({0, 8, 7}));
  EXPECT_NE(message(falling).find("qo_indptr holds 8 at element 1"), std::string::npos) << message(falling);
  Arguments lone = e.arguments();
  lone.set("mask_indptr", ints({0, 0, 0}));
  EXPECT_NE(message(lone).find("mask_indptr is given, expected none without custom_mask"), std::string::npos) << message(lone);
}

}  // namespace
}  // namespace dodona
