// FlashInfer's prefill over ragged keys and values: what queries see, and the bits of its tiles.
#include <gtest/gtest.h>

#include <cmath>

#include "dodona/error.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/ints.h"

namespace dodona {
namespace {

using namespace helpers;

const NamedOp op{"batch_prefill_with_ragged_kv_cache"};

/// Requests of some queries and keys.
Arguments prefill(const std::vector<std::int32_t>& queries, const std::vector<std::int32_t>& keys, std::int64_t width, bool causal,
                  DType type = DType::bf16) {
  const auto ends_of = [](const std::vector<std::int32_t>& lengths) {
    std::vector<std::int32_t> ends{0};
    for (const std::int32_t n : lengths) ends.push_back(ends.back() + n);
    return ends;
  };
  const std::int64_t value_width = width == 192 ? 128 : width;
  Arguments a;
  a.set("q", normal(type, {ends_of(queries).back(), 4, width}, "q"));
  a.set("k", normal(type, {ends_of(keys).back(), 2, width}, "k"));
  a.set("v", normal(type, {ends_of(keys).back(), 2, value_width}, "v"));
  a.set("qo_indptr", ints(ends_of(queries)));
  a.set("kv_indptr", ints(ends_of(keys)));
  a.set_attr("causal", causal);
  a.set_attr("sm_scale", 0.07);
  a.set_attr("return_lse", true);
  return a;
}

TEST(RaggedPrefill, LengthsAtTheEdgesOfTilesAreWithinTheBudgetInEveryMode) {
  for (const std::int64_t width : {64, 128, 192, 256})
    for (const bool causal : {false, true}) {
      const Arguments a = prefill({1, 0, 65, 129, 3}, {1, 5, 193, 127, 0}, width, causal, width == 64 ? DType::f16 : DType::bf16);
      for (const Mode mode : {Mode::hopper, Mode::fast}) EXPECT_EQ(op.failing(a, op.outputs(a, in_mode(mode))), 0) << name(mode) << width;
    }
}

Arguments by_fa2(Arguments a, double window = -1, double cap = 0, double split = 0) {
  a.set_attr("backend", "fa2");
  if (window >= 0) a.set_attr("window_left", static_cast<std::int64_t>(window));
  if (cap > 0) a.set_attr("logits_soft_cap", cap);
  if (split > 0) a.set_attr("fixed_split_size", static_cast<std::int64_t>(split));
  return a;
}

TEST(RaggedPrefill, Fa2IsWithinTheBudgetAtTheEdgesOfItsTilesWithWindowsCapsAndSinks) {
  for (const std::int64_t width : {64, 128, 192, 256})
    for (const bool causal : {false, true})
      for (const double cap : {0.0, 2.0}) {
        // Blocks of 128 or 64 rows, then of 16.
        for (const auto& queries : {std::vector<std::int32_t>{1, 0, 65, 127, 3}, {1, 0, 7, 2, 3}}) {
          Arguments a = prefill(queries, {1, 5, 193, 127, 16}, width, causal, width == 64 ? DType::f16 : DType::bf16);
          EXPECT_EQ(op.failing(by_fa2(a, -1, cap), op.outputs(by_fa2(a, -1, cap), in_mode(Mode::hopper))), 0) << width;
          if (!causal) continue;  // whose windows lose keys of splits
          a.set("sinks", filled(DType::f32, {4}, 1.25));
          EXPECT_EQ(op.failing(by_fa2(a, 33, cap), op.outputs(by_fa2(a, 33, cap), in_mode(Mode::hopper))), 0) << width;
        }
      }
}

TEST(RaggedPrefill, Fa2MayRoundWhatGroupsOfThreadsHaveOfManySplits) {
  // 9 splits for 4 groups; scores of some size, so that few keys make a row and roundings do not cancel.
  Arguments a = by_fa2(prefill({300}, {129}, 256, false), -1, 0, 16);
  a.set_attr("sm_scale", 0.3);
  const auto outputs = op.outputs(a, in_mode(Mode::hopper));
  EXPECT_EQ(op.failing(a, outputs), 0);
  a.set_attr("fixed_split_size", std::int64_t{1} << 20);
  EXPECT_FALSE(same_bits(outputs[0].second, op.outputs(a, in_mode(Mode::hopper))[0].second));
}

TEST(RaggedPrefill, Fa2DoesNotMaskWholeTilesOfRequestsOfMoreQueriesThanKeys) {
  // Counts of keys below 0 wrap around: the first query sees all keys of the first tile, as the kernel has it.
  const Arguments a = by_fa2(prefill({200}, {130}, 64, true));
  EXPECT_FALSE(same_bits(op.outputs(a, in_mode(Mode::hopper))[0].second.slice(0, 0, 1), filled(DType::bf16, {1, 4, 64}, 0)));
  EXPECT_TRUE(same_bits(op.outputs(a, in_mode(Mode::golden))[0].second.slice(0, 0, 1), filled(DType::bf16, {1, 4, 64}, 0)));
}

TEST(RaggedPrefill, Fa2HasNoNaturalLogarithmsInHopperMode) {
  Arguments a = by_fa2(prefill({2}, {3}, 64, false));
  a.set_attr("return_lse_base_on_e", true);
  EXPECT_NE(
      message_in([&] { op.outputs(a, in_mode(Mode::hopper)); }).find("batch_prefill_with_ragged_kv_cache: return_lse_base_on_e is true"),
      std::string::npos);
}

TEST(RaggedPrefill, AQueryThatSeesNoKeyGivesZerosAndMinusInfinity) {
  const Arguments a = prefill({6}, {4}, 192, true);
  for (const Mode mode : all_modes) {
    const auto outputs = op.outputs(a, in_mode(mode));
    EXPECT_TRUE(same_bits(outputs[0].second.slice(0, 0, 2), filled(DType::bf16, {2, 4, 128}, 0))) << name(mode);
    EXPECT_TRUE(same_bits(outputs[1].second.slice(0, 0, 2), filled(DType::f32, {2, 4}, -infinity))) << name(mode);
    EXPECT_NE(quant::get(outputs[0].second, 2 * 4 * 128), 0);
  }
}

TEST(RaggedPrefill, HiddenRowsBesideAWindowAreAKnownDefectAndFarOnesAreNot) {
  for (const auto& [hidden, outcome] : {std::pair{500, oracle::Outcome::known_defect}, {100, oracle::Outcome::fail}}) {
    Arguments a = prefill({2}, {700}, 64, true);
    a.set_attr("window_left", 5);
    Tensor v = a.find("v")->clone();
    quant::set(v, hidden * 2 * 64, infinity);  // of the first two heads
    a.set("v", v);
    auto outputs = op.outputs(a, in_mode(Mode::golden));
    quant::set(outputs[0].second, 0, std::nan(""));
    EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, outcome) << hidden;
    quant::set(outputs[0].second, 0, 7);
    EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, oracle::Outcome::fail) << "a number is none of theirs";
  }
}

TEST(RaggedPrefill, TheSinkAloneAsTheLogSumExpOfNoKeysIsAKnownDefect) {
  Arguments a = prefill({6}, {4}, 64, true);
  a.set_attr("return_lse_base_on_e", true);
  a.set("sinks", filled(DType::f32, {4}, 1.25));
  auto outputs = op.outputs(a, in_mode(Mode::golden));
  EXPECT_EQ(quant::get(outputs[1].second, 0), -infinity);
  quant::set(outputs[1].second, 0, 1.25);
  EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, oracle::Outcome::known_defect);
  quant::set(outputs[1].second, 0, 1.5);
  EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, oracle::Outcome::fail);
}

TEST(RaggedPrefill, ASplitOfNoWeightMayLeaveOutItsNaNAndNothingElse) {
  Arguments a = prefill({1}, {8}, 64, false);
  Tensor k = filled(DType::bf16, {8, 2, 64}, 0), q = filled(DType::bf16, {1, 4, 64}, 4), v = a.find("v")->clone();
  for (int i = 0; i < 64; ++i) quant::set(k, i, 8);  // the first key's scores lie 143 above the others'
  quant::set(v, 5 * 2 * 64, std::nan(""));
  a.set("q", q), a.set("k", k), a.set("v", v);
  auto outputs = op.outputs(a, in_mode(Mode::golden));
  EXPECT_TRUE(std::isnan(quant::get(outputs[0].second, 0)));
  const double of_first = quant::get(v, 0);
  quant::set(outputs[0].second, 0, of_first);
  EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, oracle::Outcome::known_defect);
  quant::set(outputs[0].second, 0, of_first * 1.1 + 0.1);
  EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, oracle::Outcome::fail) << "a number is none of the others'";
}

TEST(RaggedPrefill, ASinkFarAboveTheFirstKeysMayMakeZerosOfSplitsAndNoOtherNumber) {
  Arguments a = prefill({1}, {8}, 64, false);
  Tensor k = filled(DType::bf16, {8, 2, 64}, 0), q = filled(DType::bf16, {1, 4, 64}, 4), sinks = filled(DType::f32, {4}, -300);
  for (int i = 0; i < 64; ++i) quant::set(k, i, -8), quant::set(k, 7 * 2 * 64 + i, 8);
  quant::set(sinks, 0, 0);
  a.set("q", q), a.set("k", k), a.set("sinks", sinks);
  auto outputs = op.outputs(a, in_mode(Mode::golden));
  for (int i = 0; i < 64; ++i) quant::set(outputs[0].second, i, 0);
  quant::set(outputs[1].second, 0, std::nan(""));
  EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, oracle::Outcome::known_defect);
  quant::set(outputs[0].second, 0, 3);
  EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, oracle::Outcome::fail);
}

TEST(RaggedPrefill, ARequestAloneHasTheBitsOfTheRequestAmongOthers) {
  const Arguments all = prefill({70, 140}, {90, 300}, 128, true);
  Arguments one = all;
  one.set("q", all.find("q")->slice(0, 70, 210));
  for (const char* name : {"k", "v"}) one.set(name, all.find(name)->slice(0, 90, 390));
  one.set("qo_indptr", ints({0, 140}));
  one.set("kv_indptr", ints({0, 300}));
  for (const Mode mode : all_modes)
    EXPECT_TRUE(same_bits(op.outputs(one, in_mode(mode)).front().second, op.outputs(all, in_mode(mode)).front().second.slice(0, 70, 210)))
        << name(mode);
}

TEST(RaggedPrefill, TilesWithoutAMaskAreLargerForHeadsOf128) {
  // The same keys in tiles of 128 and of 192: the last query of a causal call sees all of them.
  const Arguments causal = prefill({1}, {200}, 128, true), plain = prefill({1}, {200}, 128, false);
  EXPECT_FALSE(same_bits(op.outputs(causal, in_mode(Mode::hopper))[1].second, op.outputs(plain, in_mode(Mode::hopper))[1].second) &&
               same_bits(op.outputs(causal, in_mode(Mode::hopper))[0].second, op.outputs(plain, in_mode(Mode::hopper))[0].second));
  for (const Mode mode : {Mode::golden, Mode::fast})
    EXPECT_TRUE(same_bits(op.outputs(causal, in_mode(mode))[0].second, op.outputs(plain, in_mode(mode))[0].second));
}

/// The softmax written out in double: a cap, keys at most `window` before the query's own position (less than 0: all), a sink.
Tensor written_out(const Arguments& a, double cap, std::int64_t window, bool sinks) {
  const Tensor &q = *a.find("q"), &k = *a.find("k"), &v = *a.find("v");
  const std::int64_t queries = q.size(0), keys = k.size(0), width = q.size(2), value_width = v.size(2);
  Tensor out(DType::bf16, {queries, 4, value_width});
  for (std::int64_t row = 0; row < queries * 4; ++row) {
    const std::int64_t i = row / 4, h = row % 4, own = i + keys - queries;
    std::vector<double> sum(static_cast<std::size_t>(value_width), 0.0);
    double total = sinks ? std::exp(quant::get(*a.find("sinks"), h)) : 0.0;
    for (std::int64_t j = 0; j <= own; ++j) {
      if (window >= 0 && own - j > window) continue;
      double dot = 0;
      for (std::int64_t d = 0; d < width; ++d) dot += quant::get(q, row * width + d) * quant::get(k, (j * 2 + h / 2) * width + d);
      const double score = cap == 0 ? 0.07 * dot : cap * std::tanh(0.07 * dot / cap), weight = std::exp(score);
      total += weight;
      for (std::int64_t d = 0; d < value_width; ++d)
        sum[static_cast<std::size_t>(d)] += weight * quant::get(v, (j * 2 + h / 2) * value_width + d);
    }
    for (std::int64_t d = 0; d < value_width; ++d) quant::set(out, row * value_width + d, sum[static_cast<std::size_t>(d)] / total);
  }
  return out;
}

TEST(RaggedPrefill, WindowsCapsAndSinksAreThoseOfTheSoftmaxWrittenOut) {
  for (const std::int64_t window : {-1, 0, 5, 63, 200})
    for (const double cap : {0.0, 1.5})
      for (const bool sinks : {false, true}) {
        Arguments a = prefill({7}, {90}, 128, true);
        a.set_attr("return_lse", false);
        a.set_attr("window_left", window);
        a.set_attr("logits_soft_cap", cap);
        if (sinks) a.set("sinks", tensor_of(DType::f32, {4}, {1.5, -2.0, 0.0, 4.0}));
        EXPECT_EQ(op.failing(a, {{"out", written_out(a, cap, window, sinks)}}), 0) << window << " " << cap << " " << sinks;
        EXPECT_EQ(op.failing(a, op.outputs(a, in_mode(Mode::fast))), 0) << window << " " << cap << " " << sinks;
        if (window == 5) {
          EXPECT_NE(op.failing(a, {{"out", written_out(a, cap == 0 ? 3.0 : 0.0, window, sinks)}}), 0) << "another cap";
          EXPECT_NE(op.failing(a, {{"out", written_out(a, cap, window == 4 ? 5 : 4, sinks)}}), 0) << "another window";
          EXPECT_THROW(op.outputs(a, in_mode(Mode::hopper)), Error);
        }
      }
}

TEST(RaggedPrefill, ASinkIsInTheLogarithmOfTheSum) {
  Arguments a = prefill({2}, {3}, 64, true);
  const auto plain = op.outputs(a, in_mode(Mode::golden));
  const std::vector<double> sinks{0.5, -1.0, 2.0, 0.0};
  a.set("sinks", tensor_of(DType::f32, {4}, sinks));
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const auto sunk = op.outputs(a, in_mode(mode));
    for (std::int64_t i = 0; i < 8; ++i)
      EXPECT_NEAR(quant::get(sunk[1].second, i),
                  std::log2(std::exp2(quant::get(plain[1].second, i)) + std::exp(sinks[static_cast<std::size_t>(i % 4)])), 1e-5);
  }
}

TEST(RaggedPrefill, OffsetsThatFallOrLeadOutsideAreErrors) {
  const auto message = [](const Arguments& a) -> std::string { return message_in([&] { op.outputs(a, in_mode(Mode::fast)); }); };
  Arguments a = prefill({3, 4}, {5, 6}, 64, true);
  a.set("qo_indptr", ints({0, 3, 6}));
  EXPECT_NE(message(a).find("qo_indptr holds 6 at element 2, expected offsets that begin at 0, do not fall and end at 7, the tokens of q"),
            std::string::npos)
      << message(a);
  a = prefill({3, 4}, {5, 6}, 64, true);
  a.set("kv_indptr", ints({0, 7, 5}));
  EXPECT_NE(message(a).find("kv_indptr holds 5 at element 2, expected offsets that begin at 0, do not fall and stay within 11"),
            std::string::npos)
      << message(a);
  a = prefill({3}, {5}, 192, true);
  a.set("v", normal(DType::bf16, {5, 2, 64}, "v"));
  EXPECT_NE(message(a).find("expected heads of 128 beside those of 192"), std::string::npos) << message(a);
}

}  // namespace
}  // namespace dodona
