// Rules of per_token_quant_int8.
#include "ops/quantization/per_token_quant_int8.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

ops::PerTokenQuantInt8 quantized(const Tensor& x, Mode mode, DType scale = DType::f32, bool sums = false) {
  return ops::run(ops::PerTokenQuantInt8{.x = x, .x_q = {}, .scales = {}, .x_sum = {}, .scale_dtype = scale, .cal_sum = sums},
                  in_mode(mode));
}

TEST(PerTokenQuantInt8, HalvesGoAwayFromZero) {
  const Tensor x = tensor_of(DType::f32, {1, 8}, {127, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, -126.5});
  for (const Mode mode : all_modes) {
    const auto op = quantized(x, mode);
    EXPECT_EQ(values_of(op.x_q), (Values{127, 1, -1, 2, 3, -3, 0, -127})) << name(mode);
    EXPECT_EQ(quant::get(op.scales, 0), 1.0) << name(mode);
  }
}

TEST(PerTokenQuantInt8, ZeroRowsHaveTheLeastScaleAndNanElementsTheCodeZero) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = tensor_of(DType::bf16, {3, 2}, {0, -0.0, nan, 2, infinity, 3});
  for (const Mode mode : all_modes) {
    const auto op = quantized(x, mode);
    EXPECT_EQ(values_of(op.x_q), (Values{0, 0, 0, 127, 0, 0})) << name(mode);
    EXPECT_EQ(quant::get(op.scales, 0), static_cast<double>(1e-10f * (1.0f / 127.0f))) << name(mode);
    EXPECT_EQ(quant::get(op.scales, 2), infinity) << name(mode);
    // In f16 the least scale is nothing.
    EXPECT_EQ(quant::get(quantized(x, mode, DType::f16).scales, 0), 0.0) << name(mode);
  }
}

TEST(PerTokenQuantInt8, SumsAreOfTheElementsAndInTheirType) {
  const Tensor x = tensor_of(DType::f16, {2, 3}, {1.5, 2, -4.25, 60000, 60000, 0});
  for (const Mode mode : all_modes) {
    const auto op = quantized(x, mode, DType::f32, true);
    EXPECT_EQ(op.x_sum.shape(), (Dims{2}));
    EXPECT_EQ(quant::get(op.x_sum, 0), -0.75) << name(mode);
    EXPECT_EQ(quant::get(op.x_sum, 1), infinity) << name(mode);
    EXPECT_FALSE(quantized(x, mode).x_sum.defined());
  }
}

}  // namespace
}  // namespace dodona
