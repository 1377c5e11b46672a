// Rules of the ops that cut rows of probabilities and draw from them: which tokens can come out, how ties and odd rows are treated, what
// the judge accepts beside the exact token, and the order of a block's sums.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "core/philox.h"
#include "dodona/error.h"
#include "ops/draws/blocked_row.h"
#include "ops/sampling/min_p_sampling_from_probs.h"
#include "ops/sampling/softmax.h"
#include "ops/sampling/top_k_mask_logits.h"
#include "ops/sampling/top_k_renorm_prob.h"
#include "ops/sampling/top_k_top_p_sampling_from_probs.h"
#include "ops/sampling/top_p_renorm_prob.h"
#include "ops/sampling/top_p_sampling_from_probs.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Tensor row_of(const Values& values) {
  return tensor_of(DType::f32, {1, static_cast<std::int64_t>(values.size())}, values);
}
/// One row, drawn from so many times.
Tensor draws_of_one_row(std::int64_t count) {
  return filled(DType::i32, {count}, 0);
}
std::set<double> tokens(const Tensor& samples) {
  const Values values = values_of(samples);
  return {values.begin(), values.end()};
}

using TopKTopP = ops::TopKTopPSamplingFromProbs;
std::set<double> drawn(const Values& row, std::int64_t k, double p, const char* order, Mode mode) {
  return tokens(
      ops::run(TopKTopP{.probs = row_of(row), .indices = draws_of_one_row(4000), .top_k = k, .top_p = p, .filter_apply_order = order},
               in_mode(mode))
          .samples);
}

TEST(Sampling, TheOrderOfFiltersDecidesWhatTheNucleusIsMeasuredOn) {
  const Values row{0.4, 0.3, 0.15, 0.1, 0.05};
  for (const Mode mode : all_modes) {
    EXPECT_EQ(drawn(row, 3, 0.8, "joint", mode), (std::set<double>{0, 1, 2})) << name(mode);
    EXPECT_EQ(drawn(row, 3, 0.8, "top_k_first", mode), (std::set<double>{0, 1})) << name(mode);
    EXPECT_EQ(drawn(row, 2, 1.0, "joint", mode), (std::set<double>{0, 1})) << name(mode);
    EXPECT_EQ(drawn(row, -1, 0.4, "joint", mode), (std::set<double>{0})) << name(mode);
  }
}

TEST(Sampling, TiesAreKeptTogether) {
  for (const Mode mode : all_modes) {
    EXPECT_EQ(drawn({0.25, 0.5, 0.25}, 1, 1.0, "joint", mode), (std::set<double>{1})) << name(mode);
    EXPECT_EQ(drawn({0.25, 0.5, 0.25}, 2, 1.0, "joint", mode), (std::set<double>{0, 1, 2})) << name(mode);
    EXPECT_EQ(drawn({0.25, 0.5, 0.25}, -1, 0.5, "top_k_first", mode), (std::set<double>{1})) << name(mode);
    EXPECT_EQ(drawn({0.25, 0.5, 0.25}, -1, 0.75, "top_k_first", mode), (std::set<double>{0, 1, 2})) << name(mode);
  }
}

TEST(Sampling, WhatIsNegativeOrNaNIsNeverDrawn) {
  for (const Mode mode : all_modes)
    EXPECT_EQ(drawn({nan, 0.5, -0.5, 0.5, nan}, -1, 0.9, "joint", mode), (std::set<double>{1, 3})) << name(mode);
}

TEST(Sampling, MinPKeepsWhatHasItsShareOfTheLargest) {
  using MinP = ops::MinPSamplingFromProbs;
  const auto kept = [](double min_p, const Values& row, Mode mode) {
    return tokens(ops::run(MinP{.probs = row_of(row), .indices = draws_of_one_row(4000), .min_p = min_p}, in_mode(mode)).samples);
  };
  for (const Mode mode : all_modes) {
    EXPECT_EQ(kept(0.5, {0.1, 0.4, 0.2, 0.1, 0.2}, mode), (std::set<double>{1, 2, 4})) << name(mode);
    EXPECT_EQ(kept(1, {0.1, 0.4, 0.1, 0.4}, mode), (std::set<double>{1, 3})) << name(mode);
    // A row of zeros: everything passes, nothing adds up, the last one is left.
    EXPECT_EQ(kept(0.5, {0, 0, 0, 0}, mode), (std::set<double>{3})) << name(mode);
  }
}

TEST(Sampling, AnOutputRowDrawsFromItsOwnSubsequenceWhateverRowItReads) {
  const Tensor probs = filled(DType::f32, {3, 1000}, 0.001);
  for (const Mode mode : all_modes) {
    const auto plain = ops::run(ops::TopPSamplingFromProbs{.probs = probs, .top_p = 1.0, .philox_seed = 5}, in_mode(mode)).samples;
    const auto turned =
        ops::run(
            ops::TopPSamplingFromProbs{.probs = probs, .indices = tensor_of(DType::i32, {4}, {2, 0, 0, 1}), .top_p = 1.0, .philox_seed = 5},
            in_mode(mode))
            .samples;
    for (std::int64_t b = 0; b < 3; ++b) {
      EXPECT_EQ(quant::get(plain, b), quant::get(turned, b));
      const double u = PhiloxStream(5, static_cast<std::uint64_t>(b), 0).next_uniform();
      EXPECT_NEAR(quant::get(plain, b), std::floor(u * 1000), 1);
    }
  }
}

/// A position in the stream at which the number lies within `distance` of a half.
std::int64_t offset_near_a_half(double distance) {
  for (std::uint64_t offset = 0;; ++offset)
    if (std::fabs(static_cast<double>(PhiloxStream(11, 0, offset).next_uniform()) - 0.5) < distance)
      return static_cast<std::int64_t>(offset);
}

TEST(Sampling, ANumberAtTheEndOfATokensShareAllowsItsNeighbourAndNoOther) {
  const NamedOp op{"top_p_sampling_from_probs"};
  const auto failing = [&](double distance, double token) {
    Arguments inputs;
    inputs.set("probs", filled(DType::f32, {1, 100}, 0.01));
    inputs.set_attr("top_p", 1.0);
    inputs.set_attr("philox_seed", std::int64_t{11});
    inputs.set_attr("philox_offset", offset_near_a_half(distance));
    auto outputs = op.outputs(inputs, in_mode(Mode::golden));
    quant::set(outputs.front().second, 0, token);
    return op.failing(inputs, outputs);
  };
  EXPECT_EQ(failing(1e-6, 49), 0);
  EXPECT_EQ(failing(1e-6, 50), 0);
  EXPECT_EQ(failing(1e-6, 48), 1);
  EXPECT_EQ(failing(1e-6, 51), 1);
  // Well inside a share there is one token.
  const double u = PhiloxStream(11, 0, 0).next_uniform();
  ASSERT_GT(std::fabs(u * 100 - std::nearbyint(u * 100)), 0.01);
  EXPECT_EQ(failing(1.0, std::floor(u * 100)), 0);
  EXPECT_EQ(failing(1.0, std::floor(u * 100) + 1), 1);
}

template <class Op>
std::string error_of(const Op& op, Mode mode) {
  return message_in([&] { ops::run(op, in_mode(mode)); });
}

TEST(Sampling, WhatCouldNeverBeDrawnIsRefusedAndNothingIsWritten) {
  const Tensor good = row_of({0.5, 0.5});
  for (const Mode mode : all_modes) {
    EXPECT_NE(error_of(TopKTopP{.probs = good, .top_k = 0, .top_p = 0.5}, mode).find("top_k is 0"), std::string::npos);
    EXPECT_NE(error_of(TopKTopP{.probs = good, .top_k = 1, .top_p = 0.0}, mode).find("top_p is 0"), std::string::npos);
    EXPECT_NE(error_of(TopKTopP{.probs = good, .top_k = 1, .top_p = nan}, mode).find("top_p"), std::string::npos);
    EXPECT_NE(error_of(TopKTopP{.probs = good, .top_k = 1, .top_p = 1e-39}, mode).find("expected above the denormals"), std::string::npos);
    EXPECT_NE(
        error_of(ops::TopPSamplingFromProbs{.probs = good, .top_p_arr = tensor_of(DType::f32, {1}, {-1})}, mode).find("top_p in row 0"),
        std::string::npos);
    EXPECT_NE(
        error_of(ops::MinPSamplingFromProbs{.probs = good, .min_p_arr = tensor_of(DType::f32, {1}, {1.5})}, mode).find("min_p holds 1.5"),
        std::string::npos);
    const Tensor samples = filled(DType::i32, {2}, 77);
    const Tensor rows = tensor_of(DType::f32, {2, 2}, {0.5, 0.5, 0, nan});
    EXPECT_NE(error_of(ops::TopPSamplingFromProbs{.probs = rows, .samples = samples, .top_p = 0.9}, mode).find("row 1"), std::string::npos);
    EXPECT_EQ(values_of(samples), (Values{77, 77}));
  }
}

TEST(Sampling, InfinityIsRefusedWhereUpstreamWouldSearchForEver) {
  for (const Mode mode : all_modes) {
    const Tensor rows = tensor_of(DType::f32, {2, 2}, {0.5, 0.5, infinity, 0.5}), out = filled(DType::f32, {2, 2}, 7);
    EXPECT_NE(error_of(ops::TopKRenormProb{.probs = rows, .renorm_probs = out, .top_k = 1}, mode).find("infinity in row 1"),
              std::string::npos);
    EXPECT_NE(error_of(ops::TopPRenormProb{.probs = rows, .renorm_probs = out, .top_p = 0.5}, mode).find("infinity in row 1"),
              std::string::npos);
    EXPECT_NE(error_of(ops::TopKMaskLogits{.logits = rows, .mask_logits = out, .top_k = 1}, mode).find("infinity in row 1"),
              std::string::npos);
    EXPECT_EQ(values_of(out), (Values{7, 7, 7, 7}));
  }
}

Values top_k(const Values& row, std::int64_t k, Mode mode) {
  return values_of(ops::run(ops::TopKRenormProb{.probs = row_of(row), .top_k = k}, in_mode(mode)).renorm_probs);
}
Values top_p(const Values& row, double p, Mode mode) {
  return values_of(ops::run(ops::TopPRenormProb{.probs = row_of(row), .top_p = p}, in_mode(mode)).renorm_probs);
}

TEST(Renorm, ANanHidesWhatComesAfterItFromTheMaximumOfTheGpusSearch) {
  // One element a thread: the NaN of lane 1 takes lane 2's place, but lane 0 has its own; the NaN of lane 0 takes everybody's.
  EXPECT_EQ(top_p({0.125, nan, 0.5, 0.25, 0.125}, 0.25, Mode::golden), (Values{0, 0, 1, 0, 0}));
  EXPECT_EQ(top_p({nan, 0.5, 0.25, 0.25, 0}, 0.25, Mode::golden), (Values{0, 1, 0, 0, 0}));
  EXPECT_EQ(top_p({nan, 0.5, 0.25, 0.25, 0}, 0.25, Mode::hopper), (Values{0, 0.5, 0.25, 0.25, 0}));
}

TEST(Renorm, ARowThatIsKeptWholeIsNotDivided) {
  for (const Mode mode : all_modes) {
    EXPECT_EQ(top_k({0.25, 0.125, 0.125}, 3, mode), (Values{0.25, 0.125, 0.125})) << name(mode);
    EXPECT_EQ(top_k({0.25, 0.125, 0.125}, -1, mode), (Values{0.25, 0.125, 0.125})) << name(mode);
    // Fewer than k are positive.
    EXPECT_EQ(top_k({0.25, 0, 0, 0.25}, 3, mode), (Values{0.25, 0, 0, 0.25})) << name(mode);
    // The bound is never met.
    EXPECT_EQ(top_p({0.25, 0.125}, 0.5, mode), (Values{0.25, 0.125})) << name(mode);
    EXPECT_EQ(top_p({0.25, 0.25}, 1, mode), (Values{0.5, 0.5})) << name(mode);
  }
}

TEST(Renorm, TiesAreKeptAndTheCrossingValueToo) {
  for (const Mode mode : all_modes) {
    EXPECT_EQ(top_k({0.5, 0.125, 0.25, 0.125}, 3, mode), (Values{0.5, 0.125, 0.25, 0.125})) << name(mode);
    EXPECT_EQ(top_k({0.5, 0.125, 0.5, 0.125}, 1, mode), (Values{0.5, 0, 0.5, 0})) << name(mode);
    EXPECT_EQ(top_k({0.5, 0.125, 0.5, 0.125}, 0, mode), (Values{0.5, 0, 0.5, 0})) << name(mode);
    EXPECT_EQ(top_p({0.5, 0.25, 0.25}, 0.5, mode), (Values{1, 0, 0})) << name(mode);
    EXPECT_EQ(top_p({0.5, 0.25, 0.25}, 0.0, mode), (Values{1, 0, 0})) << name(mode);
    EXPECT_EQ(top_p({0.5, 0.25, 0.25}, 0.75, mode), (Values{0.5, 0.25, 0.25})) << name(mode);
    EXPECT_EQ(top_p({0, 0, 0}, 0.75, mode), (Values{0, 0, 0})) << name(mode);
    EXPECT_EQ(top_k({0, nan, -1}, 1, mode), (Values{0, 0, 0})) << name(mode);
  }
}

TEST(MaskLogits, OfLogitsWithMinusInfinityTheOthersAreKept) {
  const auto masked = [](const Values& row, std::int64_t k, Mode mode) {
    return values_of(ops::run(ops::TopKMaskLogits{.logits = row_of(row), .top_k = k}, in_mode(mode)).mask_logits);
  };
  for (const Mode mode : all_modes) {
    EXPECT_EQ(masked({1, -infinity, 3, -infinity}, 3, mode), (Values{1, -infinity, 3, -infinity})) << name(mode);
    EXPECT_EQ(masked({-infinity, -infinity, -infinity}, 1, mode), (Values{-infinity, -infinity, -infinity})) << name(mode);
    EXPECT_EQ(masked({-1, 2, 2, -5}, 1, mode), (Values{-infinity, 2, 2, -infinity})) << name(mode);
  }
}

TEST(MaskLogits, ARadixSearchKeepsTheLeastLogitAndOfNoneNothing) {
  const auto masked = [](const Values& row, std::int64_t k, const char* search, Mode mode) {
    return values_of(ops::run(ops::TopKMaskLogits{.logits = row_of(row), .top_k = k, .search = search}, in_mode(mode)).mask_logits);
  };
  for (const Mode mode : all_modes) {
    EXPECT_EQ(masked({1, -1e38, -1e38, 2}, 3, "radix", mode), (Values{1, -1e38f, -1e38f, 2})) << name(mode);
    EXPECT_EQ(masked({1, -1e38, -1e38, 2}, 3, "thirds", mode), (Values{1, -infinity, -infinity, 2})) << name(mode);
    EXPECT_EQ(masked({1, infinity, 2}, 1, "radix", mode), (Values{-infinity, infinity, -infinity})) << name(mode);
    EXPECT_EQ(masked({1, 3, 2}, 0, "radix", mode), (Values{-infinity, -infinity, -infinity})) << name(mode);
    EXPECT_EQ(masked({1, 3, 2}, 0, "thirds", mode), (Values{-infinity, 3, -infinity})) << name(mode);
  }
}

TEST(Renorm, ARadixSearchForNoneKeepsNothing) {
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const auto kept = [&](const char* search) {
      return values_of(
          ops::run(ops::TopKRenormProb{.probs = row_of({0.25, 0.5, 0.25}), .top_k = 0, .search = search}, in_mode(mode)).renorm_probs);
    };
    EXPECT_EQ(kept("radix"), (Values{0, 0, 0})) << name(mode);
    EXPECT_EQ(kept("thirds"), (Values{0, 1, 0})) << name(mode);
  }
}

TEST(Softmax, DenormalTemperaturesCountAsZeroAndDenormalLogitsAreOpenWhereTheyCount) {
  const NamedOp op{"softmax"};
  const auto judged = [&](double logit, double temperature, const Values& probs) {
    Arguments inputs = op.case_of("B=1 V=2 --attr temperature=1");
    inputs.set("logits", row_of({0, logit})), inputs.set_attr("temperature", temperature);
    oracle::NamedTensors outputs = op.outputs(inputs, in_mode(Mode::hopper));
    for (std::int64_t i = 0; i < 2; ++i) quant::set(outputs.front().second, i, probs[static_cast<std::size_t>(i)]);
    return op.failing(inputs, outputs);
  };
  EXPECT_EQ(judged(1, 1e-39, {0.5, 0.5}), 0);
  EXPECT_EQ(judged(1, 1e-39, {0, 1}), 2);
  EXPECT_EQ(judged(1, 2e-38, {0, 1}), 0);
  EXPECT_EQ(judged(1, 2e-38, {0.5, 0.5}), 2);
  EXPECT_EQ(judged(5e-39, 1, {0.25, 0.75}), 2);
  EXPECT_EQ(judged(5e-39, 1.2e-38, {0.5, 0.5}), 0);
}

TEST(Softmax, ATemperatureOfZeroMakesRowsFlatAndSmallOnesSharp) {
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const auto probs = [&](double temperature) {
      return values_of(ops::run(ops::Softmax{.logits = row_of({1, 2, 3, -infinity}), .temperature = temperature}, in_mode(mode)).probs);
    };
    EXPECT_NEAR(probs(0.01)[2], 1, 1e-12);
    EXPECT_EQ(probs(1)[3], 0);
    EXPECT_NEAR(probs(1)[0] / probs(1)[1], std::exp(-1.0), 1e-6);
    EXPECT_NEAR(probs(2)[0] / probs(2)[1], std::exp(-0.5), 1e-6);
  }
  EXPECT_EQ(values_of(ops::run(ops::Softmax{.logits = row_of({1, 2, 3, 4}), .temperature = 0}, in_mode(Mode::fast)).probs),
            (Values{0.25, 0.25, 0.25, 0.25}));
}

/// FlashInfer's kernel takes the row's maximum, a rounded product with 1 / temperature, from each product before its rounding.
TEST(Softmax, TheMaximumsOwnRoundingMayShow) {
  const NamedOp op{"softmax"};
  Arguments inputs = op.case_of("B=1 V=24577 --attr temperature=0.7");
  Tensor logits(DType::f32, {1, 24577});
  for (std::int64_t v = 0; v < logits.elements(); ++v) quant::set(logits, v, v == 100 ? 3e5 : 0.0);
  inputs.set("logits", logits);
  const oracle::NamedTensors outputs = op.outputs(inputs, in_mode(Mode::hopper));
  EXPECT_NE(quant::get(outputs.front().second, 100), 1.0);
  EXPECT_EQ(op.failing(inputs, outputs), 0);
  // Nor is it a way to be wrong by more than that rounding.
  quant::set(outputs.front().second, 100, 1.1);
  EXPECT_EQ(op.failing(inputs, outputs), 1);
}

TEST(Softmax, TemperatureZeroIsOpenWhereUpstreamsSlicesGiveNan) {
  const NamedOp op{"softmax"};
  const Arguments inputs = op.case_of("B=1 V=24577 --attr temperature=0");
  const oracle::NamedTensors outputs = op.outputs(inputs, in_mode(Mode::hopper));
  EXPECT_TRUE(std::isnan(quant::get(outputs.front().second, 0)));
  EXPECT_EQ(op.failing(inputs, outputs), 0);
}

/// The sum of a chunk of threads with one element each: lanes pair by pair, then warps in order.
float sum_of_lanes(const float* x, std::size_t count) {
  return count == 1 ? x[0] : sum_of_lanes(x, count / 2) + sum_of_lanes(x + count / 2, count / 2);
}

TEST(BlockedRow, ChunksAreAddedUpByLanesThenWarpsThenChunks) {
  std::vector<float> x(2051);  // one element a thread
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1.0f / static_cast<float>(i + 1);
  const ops::BlockedRow row(x);
  float sum = 0;
  for (std::size_t chunk = 0; chunk < 3; ++chunk) {
    std::vector<float> part(1024);
    for (std::size_t i = 0; i < 1024 && chunk * 1024 + i < x.size(); ++i) part[i] = x[chunk * 1024 + i];
    float of_chunk = sum_of_lanes(part.data(), 32);
    for (std::size_t w = 1; w < 32; ++w) of_chunk += sum_of_lanes(part.data() + 32 * w, 32);
    sum += of_chunk;
  }
  EXPECT_EQ(row.sum({0.0}), sum);
}

TEST(BlockedRow, AThreadAddsItsElementsInPairsUnlessTheyAreCounted) {
  const ops::BlockedRow row(std::vector<float>{1.0f, 0x1p-24f, 0x1p-24f, 0x1p-24f});
  EXPECT_EQ(row.sum({0.0}), 1 + 0x1p-23f);
  EXPECT_EQ(row.sum_beside_count({0.0}), 1.0f);
}

TEST(BlockedRow, BothScansDrawWhatTheExactSumDrawsAwayFromTheEndsOfShares) {
  for (const std::size_t width : {std::size_t{257}, std::size_t{1000}, std::size_t{5002}}) {
    std::vector<float> x(width);
    double total = 0;
    for (std::size_t i = 0; i < width; ++i) total += x[i] = static_cast<float>((i * 7919 % 101) + 1);
    const ops::BlockedRow row(x);
    for (int step = 1; step < 50; ++step) {
      const double u = total * step / 50 + 0.5;
      double sum = 0;
      std::int64_t exact = 0;
      while (sum + static_cast<double>(x[static_cast<std::size_t>(exact)]) <= u)
        sum += static_cast<double>(x[static_cast<std::size_t>(exact++)]);
      for (const ops::Scan scan : {ops::Scan::deterministic, ops::Scan::warp_scans})
        EXPECT_EQ(row.draw({0.0}, static_cast<float>(u), scan, -1), exact) << width << " " << step;
    }
  }
}

}  // namespace
}  // namespace dodona
