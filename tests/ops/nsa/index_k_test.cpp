// Rules of the indexer's quantizer and of its keys' buffer.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "dodona/error.h"
#include "ops/nsa/act_quant.h"
#include "ops/nsa/fused_store_index_k_cache.h"
#include "ops/nsa/get_index_k_scale_buffer.h"
#include "ops/nsa/set_index_k_scale_buffer.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

ops::ActQuant quantized(const Tensor& x, Mode mode, const std::string& scale_fmt = "none", const std::string& kernel = "tilelang") {
  const ops::ActQuant op{.x = x, .scale_fmt = scale_fmt, .kernel = kernel};
  return ops::run(op, in_mode(mode));
}

TEST(ActQuant, ScalesAreMaximaOver448OrThePowerOfTwoAtOrAboveThat) {
  for (const Mode mode : all_modes)
    for (const auto& [most, plain, power] :
         {std::tuple{448.0, 1.0, 1.0}, {450.0, 450.0 / 448, 2.0}, {-896.0, 2.0, 2.0}, {1.0, 1.0 / 448, 0x1p-8}}) {
      Tensor x(DType::bf16, {1, 128});
      quant::set(x, 77, most);
      EXPECT_NEAR(quant::get(quantized(x, mode).s, 0), plain, 1e-6 * plain) << most;
      const ops::ActQuant powers = quantized(x, mode, "ue8m0");
      EXPECT_EQ(quant::get(powers.s, 0), power) << most;
      EXPECT_EQ(quant::get(powers.y, 77) * power, most == 450.0 ? 448.0 : most) << "rounded to e4m3 once";
    }
}

TEST(ActQuant, BlocksOfZerosHaveTheLeastScale) {
  for (const Mode mode : all_modes)
    for (const char* kernel : {"tilelang", "triton"}) {
      const Tensor x(DType::bf16, {2, 256});
      EXPECT_NEAR(quant::get(quantized(x, mode, "none", kernel).s, 3), 1e-4 / 448, 1e-13);
      EXPECT_EQ(quant::get(quantized(x, mode, "ue8m0", kernel).s, 3), 0x1p-22);
      EXPECT_EQ(quant::get_bits(quantized(x, mode, "ue8m0", kernel).y, 300), 0u);
    }
}

TEST(ActQuant, BlocksAreQuantizedApart) {
  const Tensor x = normal(DType::bf16, {3, 256}, "x");
  for (const Mode mode : all_modes) {
    const ops::ActQuant whole = quantized(x, mode), second = quantized(x.reshape({6, 128}), mode);
    EXPECT_TRUE(same_bits(whole.y, second.y));
    EXPECT_TRUE(same_bits(whole.s, second.s));
  }
}

TEST(IndexK, StoredKeysComeBackThroughAPageTable) {
  const std::vector<double> slots{70, 3, 191, 64, 0};
  ops::SetIndexKScaleBuffer set{.buf = filled(DType::u8, {3, 8448}, 9), .loc = tensor_of(DType::i64, {5}, slots)};
  set.index_k = normal(DType::f8_e4m3, {5, 128}, "k");
  set.index_k_scale = tensor_of(DType::f32, {5, 1}, {1, 2, 3, 4, 5});
  for (const Mode mode : all_modes) {
    set.buf = filled(DType::u8, {3, 8448}, 9);
    const Tensor buf = ops::run(set, in_mode(mode)).buf;
    // Page 2 before page 1: token 127 is slot 63 of page 1.
    const ops::GetIndexKScaleBuffer get{.buf = buf, .page_indices = tensor_of(DType::i32, {2}, {2, 1}), .seq_len = 128};
    const ops::GetIndexKScaleBuffer got = ops::run(get, in_mode(mode));
    const auto expect_token = [&](std::int64_t token, std::int64_t stored) {
      EXPECT_EQ(std::memcmp(got.index_k.as<std::byte>() + 128 * token, set.index_k.as<std::byte>() + 128 * stored, 128), 0) << token;
      EXPECT_EQ(std::memcmp(got.index_k_scale.as<std::byte>() + 4 * token, set.index_k_scale.as<std::byte>() + 4 * stored, 4), 0) << token;
    };
    expect_token(63, 2);
    expect_token(64 + 6, 0);
    expect_token(64, 3);
    std::int64_t untouched = 0;
    for (std::int64_t i = 0; i < buf.elements(); ++i) untouched += quant::get(buf, i) == 9 ? 1 : 0;
    EXPECT_GE(untouched, 3 * 8448 - 5 * 132);
    EXPECT_EQ(quant::get(buf, 8448 + 128 * 6), quant::get_bits(set.index_k, 0)) << "slot 70 is slot 6 of page 1";
  }
}

TEST(IndexK, PagesThatAreTooFewOrOutsideAreErrors) {
  ops::GetIndexKScaleBuffer get{.buf = Tensor(DType::u8, {2, 8448}), .page_indices = tensor_of(DType::i32, {1}, {0}), .seq_len = 65};
  EXPECT_THROW(ops::run(get, in_mode(Mode::fast)), Error);
  get.seq_len = 64;
  EXPECT_NO_THROW(ops::run(get, in_mode(Mode::fast)));
  get.page_indices = tensor_of(DType::i32, {1}, {2});
  EXPECT_THROW(ops::run(get, in_mode(Mode::fast)), Error);
}

TEST(IndexK, TheFusedStoreQuantizesAsActQuantDoes) {
  const Tensor key = normal(DType::bf16, {4, 128}, "key");
  for (const Mode mode : all_modes) {
    const ops::ActQuant apart = quantized(key, mode);
    ops::SetIndexKScaleBuffer set{.buf = Tensor(DType::u8, {2, 8448}), .loc = tensor_of(DType::i64, {4}, {5, 66, 1, 127})};
    set.index_k = apart.y;
    set.index_k_scale = apart.s.reshape({4});
    const Tensor expected = ops::run(set, in_mode(mode)).buf;
    ops::FusedStoreIndexKCache fused{.key = key, .index_k_with_scale = Tensor(DType::u8, {2, 8448}), .out_cache_loc = set.loc};
    const Tensor stored = ops::run(fused, in_mode(mode)).index_k_with_scale;
    // A scale's last bit, and what follows from it, may differ: a division by 448 here, a product with its reciprocal there.
    for (std::int64_t i = 0; i < stored.elements(); ++i) EXPECT_NEAR(quant::get(stored, i), quant::get(expected, i), 1) << i;
  }
}

TEST(IndexK, OfFusedStoresThatShareASlotTheLastCountsAndRowsThatLieApartAreNoOthers) {
  constexpr std::int64_t keys = 300;
  const Tensor wide = normal(DType::bf16, {keys, 256}, "key"), key = wide.slice(1, 0, 128);
  Values slots;
  for (std::int64_t i = 0; i < keys; ++i) slots.push_back(static_cast<double>(i * 11 % 97));
  const auto stored = [&](const Tensor& rows, const Values& to, const Tensor& buffer, int threads) {
    return ops::run(
               ops::FusedStoreIndexKCache{
                   .key = rows, .index_k_with_scale = buffer, .out_cache_loc = tensor_of(DType::i64, {rows.size(0)}, to)},
               in_mode(Mode::fast, threads))
        .index_k_with_scale;
  };
  Tensor one_by_one(DType::u8, {2, 8448});
  for (std::int64_t i = 0; i < keys; ++i) one_by_one = stored(key.slice(0, i, i + 1), {slots[static_cast<std::size_t>(i)]}, one_by_one, 1);
  for (const int threads : {1, 2, 5})
    for (const Tensor& rows : {key, key.clone()})
      EXPECT_TRUE(same_bits(stored(rows, slots, Tensor(DType::u8, {2, 8448}), threads), one_by_one)) << threads;
}

TEST(IndexK, OtherPageSizesArePowersOfTwo) {
  ops::FusedStoreIndexKCache op{.key = normal(DType::bf16, {1, 128}, "key"),
                                .index_k_with_scale = Tensor(DType::u8, {2, 132 * 16}),
                                .out_cache_loc = tensor_of(DType::i64, {1}, {17}),
                                .page_size = 16};
  const Tensor stored = ops::run(op, in_mode(Mode::fast)).index_k_with_scale;
  float scale;
  std::memcpy(&scale, stored.as<std::byte>() + 132 * 16 + 128 * 16 + 4, 4);
  EXPECT_GT(scale, 1e-3);
  op.page_size = 12;
  op.index_k_with_scale = Tensor(DType::u8, {2, 132 * 12});
  EXPECT_THROW(ops::run(op, in_mode(Mode::fast)), Error);
}

}  // namespace
}  // namespace dodona
