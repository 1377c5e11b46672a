// dodona/testing/gtest.h as a C++17 project meets it: GoogleTest, the header and libdodona.so, nothing else of this tree.
#include <dodona/testing/gtest.h>
#include <gtest/gtest-spi.h>

#include <cmath>
#include <cstring>

namespace {

std::vector<float> my_rmsnorm(const dodona::Case& c) {
  const auto& x = c.input("input");
  const auto& w = c.input("weight");
  const auto rows = static_cast<std::size_t>(x.shape[0]), columns = static_cast<std::size_t>(x.shape[1]);
  std::vector<float> y(rows * columns);
  for (std::size_t t = 0; t < rows; ++t) {
    float squares = 0;
    for (std::size_t h = 0; h < columns; ++h) squares += x.as<float>()[t * columns + h] * x.as<float>()[t * columns + h];
    const float factor = 1 / std::sqrt(squares / static_cast<float>(columns) + 1e-6F);
    for (std::size_t h = 0; h < columns; ++h) y[t * columns + h] = x.as<float>()[t * columns + h] * factor * w.as<float>()[h];
  }
  return y;
}

const char* const line = "rmsnorm T=3 H=64 --dtype input=f32 --seed 5";

TEST(GtestHeader, ARightKernelPasses) {
  const dodona::Case c(line);
  EXPECT_EQ(c.op(), "rmsnorm");
  EXPECT_EQ(c.input("input").bytes(), 3U * 64 * 4);
  EXPECT_EQ(c.golden("output").shape, (std::vector<std::ptrdiff_t>{3, 64}));
  const std::vector<float> y = my_rmsnorm(c);
  EXPECT_DODONA(c, {"output", y.data()});
}

TEST(GtestHeader, AWrongKernelFailsWithTheVerdictAndTheLine) {
  static const dodona::Case c(line);
  static std::vector<float> y = my_rmsnorm(c);
  y[70] += 0.25F;
  EXPECT_NONFATAL_FAILURE(EXPECT_DODONA(c, {"output", y.data()}), "1 of 192 elements");
  EXPECT_NONFATAL_FAILURE(EXPECT_DODONA(c, {"output", y.data()}),
                          "dodona gen rmsnorm H=64 T=3 --dtype input=f32 --seed 5 -o case.safetensors");
}

/// With so large a scale the scores overflow, and the contract leaves everything open.
TEST(GtestHeader, AVerdictThatComparedNothingFails) {
  static const dodona::Case c("trtllm_batch_decode_with_kv_cache_mla B=1 Q=1 N=2 pages=2 P=32 W=1 --attr bmm1_scale=1e36");
  EXPECT_FALSE(c.judge({{"out", c.golden("out").data}}));
  EXPECT_NONFATAL_FAILURE(EXPECT_DODONA(c, {"out", c.golden("out").data}), "nothing was compared");
}

TEST(GtestHeader, RunsOfTheSameBitsPassAndOthersAreNamed) {
  static const dodona::Case c(line);
  static const std::vector<float> first = my_rmsnorm(c);
  static std::vector<float> other = first;
  EXPECT_DODONA_SAME_BITS(c, {{"output", first.data()}}, {{"output", other.data()}});
  other[70] = std::nextafter(other[70], 9.0F);
  EXPECT_NONFATAL_FAILURE(EXPECT_DODONA_SAME_BITS(c, {{"output", first.data()}}, {{"output", other.data()}}, {{"output", first.data()}}),
                          "run 2, from run 1");
  EXPECT_NONFATAL_FAILURE(EXPECT_DODONA_SAME_BITS(c, {{"output", first.data()}}, {{"output", other.data()}}), "the first at [1, 6]");
}

TEST(GtestHeader, StridedOutputsAreRead) {
  const dodona::Case c(line);
  const std::vector<float> y = my_rmsnorm(c);
  std::vector<float> wide(3 * 80, -9);
  for (std::size_t t = 0; t < 3; ++t) std::memcpy(&wide[t * 80], &y[t * 64], 64 * sizeof(float));
  EXPECT_DODONA(c, {"output", wide.data(), {80, 1}});
}

TEST(GtestHeader, InPlaceOutputsAreTheArgumentsThemselves) {
  const dodona::Case c("fused_add_rmsnorm T=2 H=32");
  const auto& normalised = c.golden("input");
  const auto& sum = c.golden("residual");
  EXPECT_DODONA(c, {"input", normalised.data}, {"residual", sum.data});
  EXPECT_FALSE(c.judge({{"input", normalised.data}, {"residual", normalised.data}}));
}

TEST(GtestHeader, WhatCannotBeIsSaid) {
  EXPECT_THROW(dodona::Case("rmsnorm T=3"), dodona::CaseError);
  EXPECT_THROW(dodona::Case("no/such.safetensors"), dodona::CaseError);
  const dodona::Case c(line);
  EXPECT_THROW(c.input("x"), std::out_of_range);
  EXPECT_FALSE(c.judge({}));                     // the output is missing
  EXPECT_FALSE(c.judge({{"output", nullptr}}));  // and here its memory
}

}  // namespace
