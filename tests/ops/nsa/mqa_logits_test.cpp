// Rules of the indexer's scores, fp8_mqa_logits and fp8_paged_mqa_logits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "dodona/error.h"
#include "ops/nsa/fp8_mqa_logits.h"
#include "ops/nsa/fp8_paged_mqa_logits.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

Tensor ints(const std::vector<std::int64_t>& values, const Dims& shape) {
  Tensor t(DType::i32, shape);
  for (std::size_t i = 0; i < values.size(); ++i) t.as<std::int32_t>()[i] = static_cast<std::int32_t>(values[i]);
  return t;
}
/// Queries and keys of ones and halves whose heads differ, so that every sum is exact.
ops::Fp8MqaLogits small_call(std::int64_t rows, std::int64_t heads, std::int64_t keys) {
  ops::Fp8MqaLogits op;
  op.q = Tensor(DType::f8_e4m3, {rows, heads, 32});
  op.kv = Tensor(DType::f8_e4m3, {keys, 32});
  op.kv_sf = Tensor(DType::f32, {keys});
  op.weights = Tensor(DType::f32, {rows, heads});
  for (std::int64_t i = 0; i < op.q.elements(); ++i) quant::set(op.q, i, static_cast<double>(i * 7 % 5) - 2);
  for (std::int64_t i = 0; i < op.kv.elements(); ++i) quant::set(op.kv, i, (static_cast<double>(i * 11 % 7) - 3) / 2);
  for (std::int64_t i = 0; i < keys; ++i) quant::set(op.kv_sf, i, i % 2 == 0 ? 0.5 : 2.0);
  for (std::int64_t i = 0; i < op.weights.elements(); ++i) quant::set(op.weights, i, static_cast<double>(i * 3 % 9) - 4);
  op.cu_seq_len_k_start = Tensor(DType::i32, {rows});
  op.cu_seq_len_k_end = Tensor(DType::i32, {rows});
  for (std::int64_t m = 0; m < rows; ++m) op.cu_seq_len_k_end.as<std::int32_t>()[m] = static_cast<std::int32_t>(keys);
  return op;
}
double score(const ops::Fp8MqaLogits& op, std::int64_t m, std::int64_t n) {
  const std::int64_t heads = op.q.size(1), width = op.q.size(2);
  double sum = 0;
  for (std::int64_t h = 0; h < heads; ++h) {
    double product = 0;
    for (std::int64_t d = 0; d < width; ++d) product += quant::get(op.q, (m * heads + h) * width + d) * quant::get(op.kv, n * width + d);
    sum += std::max(0.0, product) * quant::get(op.weights, m * heads + h);
  }
  return sum * quant::get(op.kv_sf, n);
}

TEST(MqaLogits, AreWeightedSumsOfPositiveProducts) {
  const ops::Fp8MqaLogits op = small_call(3, 32, 70);
  for (const Mode mode : all_modes) {
    const Tensor logits = ops::run(op, in_mode(mode)).logits;
    bool negative = false;
    for (std::int64_t m = 0; m < 3; ++m)
      for (std::int64_t n = 0; n < 70; ++n) {
        ASSERT_EQ(quant::get(logits, m * 70 + n), score(op, m, n)) << m << " " << n;
        negative = negative || score(op, m, n) < 0;
      }
    EXPECT_TRUE(negative) << "negative weights make negative scores";
  }
}

TEST(MqaLogits, ColumnsOutsideOfAQuerysKeysAreMinusInfinityWhereCleanIsAsked) {
  ops::Fp8MqaLogits op = small_call(4, 32, 10);
  const std::int32_t starts[] = {0, 3, 7, 12}, ends[] = {10, 5, 7, 20};
  std::memcpy(op.cu_seq_len_k_start.data(), starts, sizeof starts);
  std::memcpy(op.cu_seq_len_k_end.data(), ends, sizeof ends);
  for (const Mode mode : all_modes) {
    const Tensor logits = ops::run(op, in_mode(mode)).logits;
    for (std::int64_t m = 0; m < 4; ++m)
      for (std::int64_t n = 0; n < 10; ++n)
        EXPECT_EQ(quant::get(logits, m * 10 + n), n >= starts[m] && n < ends[m] ? score(op, m, n) : -infinity) << m << " " << n;
  }
}

TEST(MqaLogits, HopperModeAddsHeadsInPairsOfEightApart) {
  // Scores of 1; weights 2^24 for head 0, 1 for heads 1 and 9: one after another both ones would be lost.
  ops::Fp8MqaLogits op = small_call(1, 32, 1);
  std::memset(op.q.data(), 0, static_cast<std::size_t>(op.q.elements()));
  std::memset(op.kv.data(), 0, static_cast<std::size_t>(op.kv.elements()));
  for (std::int64_t h = 0; h < 32; ++h) {
    quant::set(op.q, h * 32, 1);
    quant::set(op.weights, h, h == 0 ? 0x1p24 : h == 1 || h == 9 ? 1 : 0);
  }
  quant::set(op.kv, 0, 1);
  quant::set(op.kv_sf, 0, 1);
  EXPECT_EQ(quant::get(ops::run(op, in_mode(Mode::hopper)).logits, 0), 0x1p24 + 2);
  quant::set(op.weights, 9, 0);
  quant::set(op.weights, 8, 1);
  EXPECT_EQ(quant::get(ops::run(op, in_mode(Mode::hopper)).logits, 0), 0x1p24);
}

TEST(MqaLogits, HopperModeHasTheHeadsOfTheKernel) {
  const ops::Fp8MqaLogits op = small_call(1, 40, 3);
  EXPECT_NO_THROW(ops::run(op, in_mode(Mode::fast)));
  EXPECT_THROW(ops::run(op, in_mode(Mode::hopper)), Error);
}

struct Paged {
  ops::Fp8PagedMqaLogits op;
  ops::Fp8MqaLogits ragged;
};
/// One request of 150 keys in pages 4, 0, 2, two queries.
Paged paged_call() {
  Paged both;
  both.ragged = small_call(2, 64, 150);
  both.ragged.cu_seq_len_k_end.as<std::int32_t>()[0] = 149;
  ops::Fp8PagedMqaLogits& op = both.op;
  op.q = both.ragged.q.reshape({1, 2, 64, 32});
  op.weights = both.ragged.weights;
  op.context_lens = ints({150}, {1});
  op.block_table = ints({4, 0, 2, -7}, {1, 4});
  op.max_context_len = 200;
  op.clean_logits = true;
  op.fused_kv_cache = Tensor(DType::u8, {5, 64, 1, 36});
  for (std::int64_t n = 0; n < 150; ++n) {
    std::byte* const page = op.fused_kv_cache.as<std::byte>() + op.block_table.as<std::int32_t>()[n / 64] * 64 * 36;
    std::memcpy(page + n % 64 * 32, both.ragged.kv.as<std::byte>() + n * 32, 32);
    std::memcpy(page + 64 * 32 + n % 64 * 4, both.ragged.kv_sf.as<std::byte>() + 4 * n, 4);
  }
  return both;
}

TEST(MqaLogits, PagesHoldKeysFirstAndScalesBehindThem) {
  for (const Mode mode : all_modes) {
    const Paged both = paged_call();
    const Tensor paged = ops::run(both.op, in_mode(mode)).logits, ragged = ops::run(both.ragged, in_mode(mode)).logits;
    for (std::int64_t m = 0; m < 2; ++m)
      for (std::int64_t n = 0; n < 200; ++n)
        ASSERT_EQ(quant::get(paged, m * 200 + n), n < 150 ? quant::get(ragged, m * 150 + n) : -infinity) << m << " " << n;
  }
}

TEST(MqaLogits, LengthsAndPagesThatLeadOutsideAreErrors) {
  Paged both = paged_call();
  const auto error_of = [&] { return message_in([&] { ops::run(both.op, in_mode(Mode::fast)); }); };
  EXPECT_EQ(error_of(), "");
  both.op.context_lens = ints({200}, {1});
  EXPECT_NE(error_of().find("block_table holds -7 at element 3"), std::string::npos) << error_of();
  both.op.block_table = ints({4, 0, 5, 1}, {1, 4});
  EXPECT_NE(error_of().find("block_table holds 5 at element 2, expected a page of fused_kv_cache, 0 to 4"), std::string::npos)
      << error_of();
  for (const std::int64_t length : {201, -1}) {
    both.op.context_lens = ints({length}, {1});
    EXPECT_NE(error_of().find("context_lens"), std::string::npos) << error_of();
  }
}

}  // namespace
}  // namespace dodona
