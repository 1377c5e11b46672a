// From logits to tokens: the order of penalties, mask and bias, which draw a batch asks for, the seeded draw.
#include "model/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dodona/error.h"

namespace dodona::model {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

Exec exec_of(Mode mode) {
  Exec exec;
  exec.mode = mode;
  exec.threads = 2;
  return exec;
}

Tensor rows(std::int64_t count, const std::vector<float>& row) {
  Tensor tensor(DType::f32, {count, static_cast<std::int64_t>(row.size())});
  for (std::int64_t b = 0; b < count; ++b)
    std::copy(row.begin(), row.end(), tensor.as<float>() + b * static_cast<std::int64_t>(row.size()));
  return tensor;
}
std::vector<float> row_of(const Tensor& tensor, std::int64_t b) {
  return {tensor.as<const float>() + b * tensor.size(1), tensor.as<const float>() + (b + 1) * tensor.size(1)};
}

TEST(Sampler, PenaltiesCountTheOutputAndStopTokensWaitForItsLength) {
  SamplingParams params;
  params.frequency_penalty = 0.5;
  params.presence_penalty = 0.25;
  params.min_new_tokens = 4;
  params.stop_token_ids = {4};
  params.logit_bias = {{0, 2.0}, {4, 100.0}};
  const Tensor logits = rows(2, {1, 1, 1, 1, 1});
  apply_logits_bias(logits, {{params, {1, 1, 3}, 3}, {params, {1, 1, 3, 2}, 4}}, {}, exec_of(Mode::fast));
  EXPECT_EQ(row_of(logits, 0), (std::vector<float>{3, -0.25f, 1, 0.25f, -infinity}));
  EXPECT_EQ(row_of(logits, 1), (std::vector<float>{3, -0.25f, 0.25f, 0.25f, 101}));
}

TEST(Sampler, AMaskBarsTokensBeforeTheirBiasIsAdded) {
  SamplingParams params;
  params.logit_bias = {{1, 50.0}};
  const Tensor logits = rows(1, {1, 1, 1});
  Tensor mask(DType::i32, {1, 1});
  mask.as<std::int32_t>()[0] = 0b101;
  apply_logits_bias(logits, {{params, {}, 0}}, mask, exec_of(Mode::golden));
  EXPECT_EQ(row_of(logits, 0), (std::vector<float>{1, -infinity, 1}));
}

TEST(Sampler, ParametersAreThoseThatUpstreamKeeps) {
  SamplingParams params;
  params.temperature = 1e-7;
  EXPECT_EQ(normalized(params, 10).temperature, 1);
  EXPECT_EQ(normalized(params, 10).top_k, 1);
  EXPECT_EQ(normalized(SamplingParams{}, 10).top_k, std::int64_t{1} << 30);
  const auto refused = [](auto change) {
    SamplingParams wrong;
    change(wrong);
    EXPECT_THROW(normalized(wrong, 10), Error);
  };
  refused([](SamplingParams& p) { p.temperature = -1; });
  refused([](SamplingParams& p) { p.top_p = 0; });
  refused([](SamplingParams& p) { p.top_p = 1.1; });
  refused([](SamplingParams& p) { p.min_p = std::nan(""); });
  refused([](SamplingParams& p) { p.top_k = 0; });
  refused([](SamplingParams& p) { p.frequency_penalty = 2.5; });
  refused([](SamplingParams& p) { p.logit_bias = {{10, 1.0}}; });
  refused([](SamplingParams& p) { p.stop_token_ids = {-1}; });
}

std::vector<SamplingRequest> batch_of(const std::vector<SamplingParams>& all) {
  std::vector<SamplingRequest> batch;
  for (const SamplingParams& params : all) batch.push_back({normalized(params, 5), {}, 0});
  return batch;
}

TEST(Sampler, OneRequestChangesTheDrawOfAll) {
  SamplingParams greedy, plain, nucleus, floor;
  greedy.temperature = 0;
  nucleus.top_p = 0.9;
  floor.min_p = 0.1;
  EXPECT_EQ(draw_of(batch_of({greedy, greedy})), Draw::argmax);
  EXPECT_EQ(draw_of(batch_of({plain, plain})), Draw::plain);
  EXPECT_EQ(draw_of(batch_of({plain, greedy})), Draw::joint);
  EXPECT_EQ(draw_of(batch_of({plain, nucleus})), Draw::joint);
  EXPECT_EQ(draw_of(batch_of({plain, nucleus, floor})), Draw::min_p);
}

TEST(Sampler, GreedyRequestsTakeTheFirstOfTheLargest) {
  SamplingParams greedy;
  greedy.temperature = 0;
  for (const Mode mode : {Mode::fast, Mode::golden, Mode::hopper}) {
    const Sampled sampled = sample(rows(1, {0, 3, 1, 3, -infinity}), batch_of({greedy}), {}, exec_of(mode));
    EXPECT_EQ(sampled.tokens.as<const std::int32_t>()[0], 1);
    EXPECT_NEAR(sampled.logprobs.as<const float>()[0], 3 - std::log(2 * std::exp(3.0) + std::exp(1.0) + 1), 1e-5);
  }
}

TEST(Sampler, FilteredDrawsKeepToTheirSets) {
  SamplingParams nucleus, floor;
  nucleus.top_p = 0.6;
  floor.min_p = 0.3;
  const std::vector<float> logits{2, 1, 1.5, -1, 0};  // 0.45, 0.17, 0.28, 0.02, 0.06
  for (const Mode mode : {Mode::fast, Mode::golden, Mode::hopper})
    for (std::int64_t seed = 0; seed < 40; ++seed) {
      const Sampled joint = sample(rows(1, logits), batch_of({nucleus}), {seed, 0}, exec_of(mode));
      EXPECT_TRUE(joint.tokens.as<const std::int32_t>()[0] == 0 || joint.tokens.as<const std::int32_t>()[0] == 2);
      const Sampled both = sample(rows(2, logits), batch_of({nucleus, floor}), {seed, 4}, exec_of(mode));
      EXPECT_TRUE(both.tokens.as<const std::int32_t>()[1] < 3);
      // What a draw by min_p comes from has been filtered; its logarithms are of that.
      EXPECT_EQ(row_of(both.probs, 0)[1], 0);
      EXPECT_NEAR(both.logprobs.as<const float>()[0],
                  std::log(row_of(both.probs, 0)[static_cast<std::size_t>(both.tokens.as<const std::int32_t>()[0])]), 1e-6);
    }
}

TEST(Sampler, TheSeededHashIsUpstreams) {
  const std::uint32_t known[] = {9104972, 398771, 9640370, 2891185};
  for (std::int64_t column = 0; column < 4; ++column) EXPECT_EQ(seeded_bits(42, 10, column), known[column]);
}

TEST(Sampler, ASeedAndAPositionDrawTheSameTokenInAnyBatch) {
  SamplingParams seeded;
  seeded.seed = 7;
  const std::vector<float> logits{0.5, 1, 0, 1.5, -infinity};
  auto batch = batch_of({seeded, seeded});
  batch[0].position = 3;
  batch[1].position = 9;
  const Sampled both = sample(rows(2, logits), batch, {}, exec_of(Mode::golden));
  const Sampled alone = sample(rows(1, logits), {batch[1]}, {}, exec_of(Mode::fast));
  EXPECT_EQ(both.tokens.as<const std::int32_t>()[1], alone.tokens.as<const std::int32_t>()[0]);
  EXPECT_THROW(sample(rows(1, logits), batch_of({SamplingParams{}}), {}, exec_of(Mode::golden)), Error);
}

/// Tokens that upstream's torch code gave.
TEST(Sampler, SeededDrawsAreUpstreams) {
  const std::vector<std::int64_t> of_5{4, 3, 4, 2, 3, 4, 3, 4, 2, 3, 4, 3};
  const std::vector<std::int64_t> of_1000{104, 797, 916, 781, 328, 55, 174, 384, 160, 348, 972, 36};
  for (const auto& [columns, tokens] : {std::pair{5, of_5}, std::pair{1000, of_1000}}) {
    std::vector<float> p;
    double sum = 0;
    for (int i = 0; i < columns; ++i) sum += std::exp(0.5 * (i % 7));
    for (int i = 0; i < columns; ++i) p.push_back(static_cast<float>(std::exp(0.5 * (i % 7)) / sum));
    for (std::size_t k = 0; k < tokens.size(); ++k)
      EXPECT_EQ(multinomial_with_seed(p.data(), columns, 42, 100 + static_cast<std::int64_t>(k)), tokens[k]) << columns << " " << k;
  }
  // The hash is no even one: of two columns the likelier one comes out in half of the positions, three quarters are its share.
  int ones = 0;
  const float p[] = {0.25f, 0.75f};
  for (std::int64_t position = 0; position < 4000; ++position) ones += multinomial_with_seed(p, 2, 5, position) == 1 ? 1 : 0;
  EXPECT_EQ(ones, 2005);
}

}  // namespace
}  // namespace dodona::model
