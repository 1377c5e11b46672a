#include "ops/moe/deepep/deepep_low_latency_combine.h"

#include <gtest/gtest.h>

#include "dodona/error.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

/// Two ranks of two tokens, two experts with room for four rows. Expert 0 has token 1 of rank 1, then both of rank 0.
ops::DeepepLowLatencyCombine call() {
  constexpr double from_1 = 0x1p32;
  ops::DeepepLowLatencyCombine op;
  op.x = tensor_of(DType::bf16, {2, 4, 1}, {1, 2, 3, 0, 10, 0, 0, 0});
  op.topk_idx = tensor_of(DType::i64, {2, 2, 2}, {0, -1, 1, 0, -1, -1, 0, -1});
  op.topk_weights = tensor_of(DType::f32, {2, 2, 2}, {2, 9, 0.5, 4, 9, 9, 8, 9});
  op.src_info = tensor_of(DType::i32, {2, 4}, {1, 0, 1, 0, 1, 0, 0, 0});
  op.layout_range = tensor_of(DType::i64, {2, 2}, {from_1 + 2, 1, 1, from_1});
  return op;
}

TEST(DeepepLowLatencyCombine, RowsAreFoundWhereTheDispatchPutThemAndSlotsOfNoExpertAddNothing) {
  for (const Mode mode : {Mode::golden, Mode::fast})
    EXPECT_EQ(values_of(ops::run(call(), in_mode(mode)).combined_x), (Values{2 * 2, 0.5 * 10 + 4 * 3, 0, 8 * 1})) << name(mode);
}

TEST(DeepepLowLatencyCombine, WhatTheDispatchCannotHaveSaidIsRefusedByName) {
  const auto refused = [](const ops::DeepepLowLatencyCombine& op, const char* text) {
    const Error error = error_from([&] { ops::run(op, in_mode(Mode::fast)); });
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  };
  auto op = call();
  op.topk_idx.as<std::int64_t>()[0] = 2;
  refused(op, "topk_idx holds 2");
  op = call();
  op.topk_idx.as<std::int64_t>()[1] = 1;
  refused(op, "topk_idx holds expert 1 at element 1, expected one that src_info has the token for");
  op = call();
  op.src_info.as<std::int32_t>()[0] = 2;
  refused(op, "src_info holds 2");
  op = call();
  op.layout_range.as<std::int64_t>()[0] = std::int64_t{3} << 32 | 2;
  refused(op, "layout_range holds 2 rows from 3 on");
}

}  // namespace
}  // namespace dodona
