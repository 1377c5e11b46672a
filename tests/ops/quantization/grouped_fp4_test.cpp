// Rules of scaled_fp4_grouped_quant and silu_and_mul_scaled_fp4_grouped_quant.
#include <gtest/gtest.h>

#include "dodona/error.h"
#include "ops/quantization/scaled_fp4_grouped_quant.h"
#include "ops/quantization/scaled_fp4_quant.h"
#include "ops/quantization/silu_and_mul_scaled_fp4_grouped_quant.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

TEST(GroupedFp4, EachGroupIsQuantizedAsScaledFp4QuantDoesItsRows) {
  const Tensor x = normal(DType::bf16, {2, 5, 64}, "x");
  ops::ScaledFp4GroupedQuant op;
  op.input_tensor = x;
  op.input_global_scale = tensor_of(DType::f32, {2}, {300, 7});
  op.mask = tensor_of(DType::i32, {2}, {5, 3});
  for (const Mode mode : {Mode::golden, Mode::fast, Mode::hopper}) {
    const auto run = ops::run(op, in_mode(mode));
    for (std::int64_t g = 0; g < 2; ++g) {
      ops::ScaledFp4Quant one;
      one.input = x.slice(0, g, g + 1).reshape({5, 64}).clone();
      one.input_global_scale = tensor_of(DType::f32, {1}, {g == 0 ? 300.0 : 7.0});
      one = ops::run(one, in_mode(mode));
      for (std::int64_t r = 0; r < (g == 0 ? 5 : 3); ++r) {
        for (std::int64_t c = 0; c < 32; ++c)
          EXPECT_EQ(quant::get(run.output, (g * 5 + r) * 32 + c), quant::get(one.output, r * 32 + c)) << name(mode);
        for (std::int64_t c = 0; c < 4; ++c)
          EXPECT_EQ(quant::get_bits(run.output_scales, g * 512 + r * 16 + c), quant::get_bits(one.output_scale, r * 16 + c));
      }
    }
  }
}

TEST(GroupedFp4, SiluTimesUpIsRoundedOnce) {
  // silu(32) is 32; the products are those of the other op's elements.
  ops::SiluAndMulScaledFp4GroupedQuant made;
  ops::ScaledFp4GroupedQuant plain;
  Values gate_and_up(64, 32), x;
  for (std::size_t i = 0; i < 32; ++i) {
    gate_and_up[32 + i] = static_cast<double>(i) / 8;
    x.push_back(4.0 * static_cast<double>(i));
  }
  made.input_tensor = tensor_of(DType::bf16, {1, 1, 64}, gate_and_up);
  plain.input_tensor = tensor_of(DType::bf16, {1, 1, 32}, x);
  made.input_global_scale = plain.input_global_scale = tensor_of(DType::f32, {1}, {2});
  made.mask = plain.mask = tensor_of(DType::i32, {1}, {1});
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const auto a = ops::run(made, in_mode(mode));
    const auto b = ops::run(plain, in_mode(mode));
    EXPECT_TRUE(same_bits(a.output, b.output));
    EXPECT_TRUE(same_bits(a.output_scales, b.output_scales));
  }
}

TEST(GroupedFp4, AMaskBeyondTheRowsIsRefused) {
  ops::ScaledFp4GroupedQuant op;
  op.input_tensor = normal(DType::bf16, {1, 2, 16}, "x");
  op.input_global_scale = tensor_of(DType::f32, {1}, {2});
  op.mask = tensor_of(DType::i32, {1}, {3});
  EXPECT_THROW(ops::run(op, in_mode(Mode::fast)), Error);
}

}  // namespace
}  // namespace dodona
