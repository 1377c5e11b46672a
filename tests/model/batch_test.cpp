// Batches: what they may be, and where the cache puts their tokens.
#include "model/layer/batch.h"

#include <numeric>

#include "helpers.h"
#include "model/layer/attention/kv_cache.h"

namespace dodona::model {
namespace {

using testing::expect_error;
using Values = std::vector<std::int64_t>;

const Values lengths{140, 1, 66};

Batch placed(const PagedKvCache& cache, Batch batch) {
  cache.place(batch);
  return batch;
}

TEST(Batch, DecodingBringsTheLastTokenOfEachRequest) {
  const PagedKvCache cache(preset("tiny"), DType::bf16, lengths, 5);
  const Batch batch = placed(cache, decode_batch(lengths));
  EXPECT_EQ(batch.requests, (Values{0, 1, 2}));
  EXPECT_EQ(batch.query_starts, (Values{0, 1, 2, 3}));
  EXPECT_EQ(batch.positions, (Values{139, 0, 65}));
  EXPECT_EQ(batch.slots, (Values{cache.slot(0, 139), cache.slot(1, 0), cache.slot(2, 65)}));
  EXPECT_TRUE(batch.one_token_each());
  cache.check(batch);
}

TEST(Batch, ExtendingBringsSomeAndPrefillAll) {
  const PagedKvCache cache(preset("tiny"), DType::bf16, lengths, 5);
  const Batch batch = placed(cache, extend_batch(lengths, Values{3, 1, 66}));
  EXPECT_EQ(batch.query_starts, (Values{0, 3, 4, 70}));
  EXPECT_EQ(batch.tokens(), 70);
  EXPECT_EQ(batch.tokens_of(2), 66);
  EXPECT_EQ(batch.positions[0], 137);
  EXPECT_EQ(batch.positions[4], 0);
  EXPECT_EQ(batch.positions[69], 65);
  EXPECT_FALSE(batch.one_token_each());
  for (std::size_t t = 4; t < 70; ++t) EXPECT_EQ(batch.slots[t], cache.slot(2, batch.positions[t]));
  cache.check(batch);
}

TEST(Batch, APartOfTheCachesRequestsHasTheirRowsOfThePageTable) {
  const PagedKvCache cache(preset("tiny"), DType::bf16, lengths, 5);
  Batch batch = decode_batch(Values{60, 141});
  batch.requests = {2, 0};
  expect_error([&] { cache.place(batch); }, ErrorCode::bad_value, {"batch lengths", "141", "request 0", "140"});
  batch.lengths = {60, 139};
  batch.positions = {59, 138};
  cache.place(batch);
  EXPECT_EQ(batch.slots, (Values{cache.slot(2, 59), cache.slot(0, 138)}));
  const Tensor table = cache.page_table(batch.requests);
  ASSERT_EQ(to_string(table.shape()), "[2, 2]");
  EXPECT_EQ(table.as<std::int32_t>()[0], cache.page_table().as<std::int32_t>()[4]);
  EXPECT_EQ(table.as<std::int32_t>()[3], cache.page_table().as<std::int32_t>()[1]);
}

TEST(Batch, WhatContradictsItselfIsRefusedByField) {
  const PagedKvCache cache(preset("tiny"), DType::bf16, lengths);
  const Batch good = placed(cache, extend_batch(lengths, Values{2, 1, 1}));
  const auto refuses = [&](const std::function<void(Batch&)>& change, ErrorCode code, const std::vector<std::string>& parts) {
    Batch batch = good;
    change(batch);
    expect_error([&] { cache.check(batch); }, code, parts);
  };
  refuses([](Batch& b) { b = {}; }, ErrorCode::bad_value, {"batch requests", "none"});
  refuses([](Batch& b) { b.query_starts.pop_back(); }, ErrorCode::bad_shape, {"batch query_starts", "3 values", "expected 4"});
  refuses([](Batch& b) { b.query_starts = {0, 2, 2, 4}; }, ErrorCode::bad_value, {"batch query_starts", "request 1 no token"});
  refuses([](Batch& b) { b.query_starts = {1, 2, 3, 4}; }, ErrorCode::bad_value, {"batch query_starts", "begin at 1"});
  refuses([](Batch& b) { b.query_starts.back() = 5; }, ErrorCode::bad_shape, {"batch query_starts", "end at 5", "expected 4"});
  refuses([](Batch& b) { b.lengths.push_back(1); }, ErrorCode::bad_shape, {"batch lengths", "4 values", "expected 3"});
  refuses([](Batch& b) { b.slots.pop_back(); }, ErrorCode::bad_shape, {"batch slots", "3 values", "expected 4"});
  refuses([](Batch& b) { b.positions[2] = 1; }, ErrorCode::bad_value, {"batch positions", "1 for token 2", "request 1 has 1 token"});
  refuses([](Batch& b) { b.positions[0] = -1; }, ErrorCode::bad_value, {"batch positions", "-1"});
  refuses([](Batch& b) { b.requests[1] = 0; }, ErrorCode::bad_value, {"batch requests", "has 0", "once"});
  refuses([](Batch& b) { b.requests[1] = 3; }, ErrorCode::bad_value, {"batch requests", "has 3", "0 to 2"});
  refuses([](Batch& b) { b.slots[1] = b.slots[0]; }, ErrorCode::bad_value, {"batch slots", "token 1"});
  refuses([](Batch& b) { b.slots[3] = b.slots[0] + 1; }, ErrorCode::bad_value, {"batch slots", "token 3", "request 2"});
  refuses([](Batch& b) { b.slots[3] = -5; }, ErrorCode::bad_value, {"batch slots", "-5"});
  expect_error([] { extend_batch(Values{5, 3}, Values{1, 4}); }, ErrorCode::bad_value, {"new tokens", "request 1", "4", "length, 3"});
  expect_error([] { extend_batch(Values{5, 3}, Values{1}); }, ErrorCode::bad_shape, {"new tokens", "1 values", "expected 2"});
  expect_error([] { decode_batch(Values{}); }, ErrorCode::bad_value, {"batch requests", "none"});
  expect_error([] { decode_batch(Values{0}); }, ErrorCode::bad_value, {"batch lengths", "0"});
}

}  // namespace
}  // namespace dodona::model
