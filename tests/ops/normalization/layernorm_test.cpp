#include "ops/normalization/layernorm.h"

#include <gtest/gtest.h>

#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr Mode both_modes[] = {Mode::golden, Mode::fast};

Tensor normalised(const Tensor& x, double gemma, double beta, Mode mode) {
  const std::int64_t width = x.size(1);
  return ops::run(ops::Layernorm{x, filled(DType::f32, {width}, gemma), filled(DType::f32, {width}, beta), {}}, in_mode(mode)).out;
}

TEST(Layernorm, AConstantRowIsBeta) {
  for (const Mode mode : both_modes)
    for (const double value : {0.0, 3.0, -1024.0}) {
      const Tensor y = normalised(filled(DType::bf16, {1, 130}, value), 2.5, -0.75, mode);
      for (std::int64_t d = 0; d < 130; ++d) ASSERT_EQ(quant::get(y, d), -0.75) << value;
    }
}

TEST(Layernorm, TheMeanIsTakenAwayBeforeDeviationsAreSquared) {
  // Deviations of 1 about 4096: E[x^2] - mean^2 has lost them in fp32.
  Tensor x(DType::bf16, {1, 64});
  for (std::int64_t d = 0; d < 64; ++d) quant::set(x, d, d % 2 == 0 ? 4096 + 32 : 4096 - 32);
  for (const Mode mode : both_modes) {
    const Tensor y = normalised(x, 1, 0, mode);
    for (std::int64_t d = 0; d < 64; ++d) ASSERT_NEAR(quant::get(y, d), d % 2 == 0 ? 1 : -1, 0.005);
  }
}

TEST(Layernorm, GemmaMultipliesAsItIs) {
  const Tensor x = tensor_of(DType::bf16, {1, 2}, {1, -1});
  for (const Mode mode : both_modes) EXPECT_NEAR(quant::get(normalised(x, 0.5, 0, mode), 0), 0.5, 0.005);
}

}  // namespace
}  // namespace dodona
