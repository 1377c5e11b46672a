#include "model/layer/attention/rope_table.h"

#include <cmath>

#include "helpers.h"

namespace dodona::model {
namespace {

TEST(RopeTable, YarnKeepsFastDimensionsAndStretchesSlowOnes) {
  const ModelConfig config = preset("r1-nvfp4");
  const std::vector<float> inverse = rope_inverse_frequencies(config);
  ASSERT_EQ(inverse.size(), 32u);
  for (int i = 0; i < 32; ++i) {
    const double plain = std::pow(10000.0, -2.0 * i / 64);
    // low = 10, high = 23 for R1.
    const double ramp = std::clamp((i - 10) / 13.0, 0.0, 1.0);
    const double expected = plain / 40 * ramp + plain * (1 - ramp);
    EXPECT_NEAR(inverse[static_cast<std::size_t>(i)], expected, 4e-7 * expected) << i;
  }
  EXPECT_EQ(inverse[0], 1.0f);
}

TEST(RopeTable, AnglesAreRoundedToFp32BeforeCosAndSin) {
  const ModelConfig config = preset("r1-nvfp4");
  const float inverse = rope_inverse_frequencies(config)[1];
  const std::int64_t position = 163839;
  const Tensor row = rope_table_rows(config, {position});
  const float angle = static_cast<float>(position) * inverse;
  EXPECT_NEAR(row.as<float>()[1], std::cos(static_cast<double>(angle)), 1e-7);
  EXPECT_NEAR(row.as<float>()[33], std::sin(static_cast<double>(angle)), 1e-7);
  // The angle in double would give another number: this is what the rounding is worth.
  EXPECT_GT(std::abs(row.as<float>()[1] - std::cos(static_cast<double>(position) * static_cast<double>(inverse))), 1e-5);
}

TEST(RopeTable, RowZeroIsOnesAndZeros) {
  const Tensor table = rope_table(preset("tiny"), 3);
  EXPECT_EQ(to_string(table.shape()), "[3, 64]");
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(table.as<float>()[i], 1.0f);
    EXPECT_EQ(table.as<float>()[32 + i], 0.0f);
  }
}

TEST(RopeTable, ChosenRowsAreTheTablesOwn) {
  const ModelConfig config = preset("tiny");
  const Tensor table = rope_table(config, 100, 2), rows = rope_table_rows(config, {99, 7});
  EXPECT_EQ(0, std::memcmp(rows.as<float>(), table.as<float>() + 99 * 64, 64 * sizeof(float)));
  EXPECT_EQ(0, std::memcmp(rows.as<float>() + 64, table.as<float>() + 7 * 64, 64 * sizeof(float)));
}

TEST(RopeTable, WithoutYarnFrequenciesAndSoftmaxScaleArePlain) {
  ModelConfig config = preset("tiny");
  config.yarn.reset();
  EXPECT_NEAR(rope_inverse_frequencies(config)[31], std::pow(10000.0, -62.0 / 64), 1e-10);
  EXPECT_EQ(config.softmax_scale(), 1 / std::sqrt(192.0));
}

TEST(RopeTable, PositionsBeyondTheModelAreRefused) {
  testing::expect_error([] { rope_table_rows(preset("r1-nvfp4"), {163840}); }, ErrorCode::bad_value, {"position 163840", "163840"});
  testing::expect_error([] { rope_table_rows(preset("r1-nvfp4"), {-1}); }, ErrorCode::bad_value, {"position -1"});
}

}  // namespace
}  // namespace dodona::model
