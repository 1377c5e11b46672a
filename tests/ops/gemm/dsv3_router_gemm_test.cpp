// Rules of dsv3_router_gemm.
#include "ops/gemm/dsv3_router_gemm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dodona/error.h"
#include "quant/element.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using helpers::in_mode;

ops::Dsv3RouterGemm call(std::int64_t tokens, std::int64_t experts) {
  ops::Dsv3RouterGemm op{.hidden_states = Tensor(DType::bf16, {tokens, 7168}),
                         .router_weights = Tensor(DType::bf16, {experts, 7168}),
                         .output = {},
                         .out_dtype = DType::f32};
  for (std::int64_t i = 0; i < tokens * 7168; ++i) op.hidden_states.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(0x3F00 + i % 251);
  for (std::int64_t i = 0; i < experts * 7168; ++i)
    op.router_weights.as<std::uint16_t>()[i] = static_cast<std::uint16_t>((i * 7 % 509 < 254 ? 0x3F00 : 0xBF00) + i % 127);
  return op;
}

TEST(Dsv3RouterGemm, TakesOneToSixteenTokensAnd256Or384Experts) {
  for (const std::int64_t tokens : {1, 16}) EXPECT_NO_THROW(ops::run(call(tokens, 256), in_mode(Mode::fast)));
  EXPECT_NO_THROW(ops::run(call(1, 384), in_mode(Mode::fast)));
  EXPECT_THROW(ops::run(call(0, 256), in_mode(Mode::fast)), Error);
  EXPECT_THROW(ops::run(call(17, 256), in_mode(Mode::fast)), Error);
  EXPECT_THROW(ops::run(call(1, 128), in_mode(Mode::fast)), Error);
  auto narrow = call(1, 256);
  narrow.hidden_states = narrow.hidden_states.slice(1, 0, 7152).clone();
  EXPECT_THROW(ops::run(narrow, in_mode(Mode::fast)), Error);
}

TEST(Dsv3RouterGemm, TheOrderOfAdditionsIsTheKernels) {
  auto op = call(1, 256);
  for (std::int64_t i = 0; i < 7168; ++i) quant::set(op.hidden_states, i, 1.0), quant::set(op.router_weights, i, 0.0);
  // 2^24 + 1 + 1 in one thread is 2^24 (k = 0, 1 and 1024 are thread 0's); from two threads it is exact.
  quant::set(op.router_weights, 0, 0x1p24), quant::set(op.router_weights, 1, 1.0), quant::set(op.router_weights, 1024, 1.0);
  EXPECT_EQ(quant::get(ops::run(op, in_mode(Mode::hopper)).output, 0), 0x1p24);
  quant::set(op.router_weights, 1, 0.0), quant::set(op.router_weights, 1024, 0.0);
  quant::set(op.router_weights, 8, 1.0), quant::set(op.router_weights, 15, 1.0);  // thread 1
  EXPECT_EQ(quant::get(ops::run(op, in_mode(Mode::hopper)).output, 0), 0x1p24 + 2);
  // Thread 32 is the next warp's; its 1 is added to 2^24, and lost, before thread 64's.
  quant::set(op.router_weights, 8, 0.0), quant::set(op.router_weights, 15, 0.0);
  quant::set(op.router_weights, 8 * 32, 1.0), quant::set(op.router_weights, 8 * 64, 1.0);
  EXPECT_EQ(quant::get(ops::run(op, in_mode(Mode::hopper)).output, 0), 0x1p24);
}

TEST(Dsv3RouterGemm, ATokenHasTheBitsItHasAmongOthers) {
  const auto op = call(16, 256);
  for (const Mode mode : {Mode::fast, Mode::hopper}) {
    const Tensor all = ops::run(op, in_mode(mode)).output;
    auto alone = op;
    alone.hidden_states = op.hidden_states.slice(0, 9, 10);
    const Tensor one = ops::run(alone, in_mode(mode)).output;
    for (std::int64_t e = 0; e < 256; ++e) EXPECT_EQ(quant::get_bits(one, e), quant::get_bits(all, 9 * 256 + e));
  }
}

TEST(Dsv3RouterGemm, ProductsOfFlushedInputsMayBeLost) {
  const helpers::NamedOp router{"dsv3_router_gemm"};
  const Arguments inputs = router.case_of("T=1 E=256 --attr out_dtype=f32");
  const Tensor x = *inputs.find("hidden_states"), w = *inputs.find("router_weights");
  // Times 2^20 they add up to far more than 2^-126 a sum and a product.
  for (std::int64_t i = 0; i < x.elements(); ++i) quant::set(x, i, 0x1p-127);
  for (std::int64_t i = 0; i < w.elements(); ++i) quant::set(w, i, 0x1p20);
  const auto logits = router.outputs(inputs, in_mode(Mode::hopper));
  EXPECT_EQ(quant::get(logits.front().second, 0), 0.0);
  EXPECT_EQ(router.failing(inputs, logits), 0);
  // With normal inputs nothing but the sums and the products is small.
  for (std::int64_t i = 0; i < x.elements(); ++i) quant::set(x, i, 0x1p-125);
  EXPECT_EQ(router.failing(inputs, logits), 256);
  // Infinity times nothing is NaN.
  quant::set(x, 5, 0x1p-127), quant::set(w, 5, helpers::infinity);
  EXPECT_EQ(router.failing(inputs, router.outputs(inputs, in_mode(Mode::hopper))), 0);
}

}  // namespace
}  // namespace dodona
