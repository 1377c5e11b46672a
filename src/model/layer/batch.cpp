#include "model/layer/batch.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "dodona/error.h"

namespace dodona::model {
namespace {

[[noreturn]] void fail(ErrorCode code, const char* field, const std::string& message) {
  throw Error(code, "", std::string("batch ") + field, message);
}

void check_count(const char* field, std::size_t found, std::int64_t expected, const char* why) {
  if (static_cast<std::int64_t>(found) != expected)
    fail(ErrorCode::bad_shape, field, "has " + std::to_string(found) + " values, expected " + std::to_string(expected) + ", " + why);
}

void check_parents(const Batch& batch) {
  check_count("parents", batch.parents.size(), batch.tokens(), "one for each token");
  for (std::int64_t r = 0; r < batch.size(); ++r) {
    const auto first = static_cast<std::size_t>(batch.query_starts[static_cast<std::size_t>(r)]);
    for (std::int64_t i = 0; i < batch.tokens_of(r); ++i) {
      const std::size_t t = first + static_cast<std::size_t>(i);
      const std::int64_t parent = batch.parents[t];
      if (parent < -1 || parent >= i)
        fail(ErrorCode::bad_value, "parents",
             "has " + std::to_string(parent) + " for new token " + std::to_string(i) + " of request " + std::to_string(r) +
                 ", expected -1 to " + std::to_string(i - 1));
      const std::int64_t position = parent < 0 ? batch.prefix(r) : batch.positions[first + static_cast<std::size_t>(parent)] + 1;
      if (batch.positions[t] != position)
        fail(ErrorCode::bad_value, "positions",
             "has " + std::to_string(batch.positions[t]) + " for new token " + std::to_string(i) + " of request " + std::to_string(r) +
                 ", expected " + std::to_string(position) + ", one behind its parent");
    }
  }
}

}  // namespace

Tensor int32_tensor(std::span<const std::int64_t> values) {
  Tensor tensor = Tensor::uninitialized(DType::i32, {static_cast<std::int64_t>(values.size())});
  std::transform(values.begin(), values.end(), tensor.as<std::int32_t>(), [](std::int64_t n) { return static_cast<std::int32_t>(n); });
  return tensor;
}

Tensor Batch::slots_tensor() const {
  Tensor tensor = Tensor::uninitialized(DType::i64, {tokens()});
  std::copy(slots.begin(), slots.end(), tensor.as<std::int64_t>());
  return tensor;
}

Tensor Batch::lengths_tensor() const {
  return int32_tensor(lengths);
}

Tensor Batch::starts_tensor() const {
  return int32_tensor(query_starts);
}

std::int64_t Batch::tokens_each() const {
  for (std::int64_t r = 1; r < size(); ++r)
    if (tokens_of(r) != tokens_of(0)) return 0;
  return tokens_of(0);
}

std::int64_t Batch::prefixes() const {
  std::int64_t sum = 0;
  for (std::int64_t r = 0; r < size(); ++r) sum += prefix(r);
  return sum;
}

std::vector<std::int64_t> Batch::seen_by(std::int64_t r, std::int64_t i) const {
  const std::int64_t cached = prefix(r), first = query_starts[static_cast<std::size_t>(r)];
  std::vector<std::int64_t> way;
  for (std::int64_t at = i; at >= 0; at = trees() ? parents[static_cast<std::size_t>(first + at)] : at - 1) way.push_back(cached + at);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(cached));
  std::iota(rows.begin(), rows.end(), 0);
  rows.insert(rows.end(), way.rbegin(), way.rend());
  return rows;
}

std::vector<std::int64_t> Batch::request_of_tokens() const {
  std::vector<std::int64_t> owners;
  for (std::int64_t r = 0; r < size(); ++r)
    owners.insert(owners.end(), static_cast<std::size_t>(tokens_of(r)), requests[static_cast<std::size_t>(r)]);
  return owners;
}

Tensor Batch::visible_tensor() const {
  std::vector<std::int64_t> visible;
  for (const std::int64_t position : positions) visible.push_back(position + 1);
  return int32_tensor(visible);
}

void Batch::validate() const {
  validate_tokens();
  check_count("slots", slots.size(), tokens(), "one for each token");
}

void Batch::validate_tokens() const {
  if (requests.empty()) fail(ErrorCode::bad_value, "requests", "are none, expected at least one");
  check_count("query_starts", query_starts.size(), size() + 1, "one for each request and the end");
  check_count("lengths", lengths.size(), size(), "one for each request");
  if (query_starts.front() != 0)
    fail(ErrorCode::bad_value, "query_starts", "begin at " + std::to_string(query_starts.front()) + ", expected 0");
  for (std::int64_t r = 0; r < size(); ++r)
    if (tokens_of(r) < 1)
      fail(ErrorCode::bad_value, "query_starts", "give request " + std::to_string(r) + " no token, expected at least one");
  if (query_starts.back() != tokens())
    fail(ErrorCode::bad_shape, "query_starts",
         "end at " + std::to_string(query_starts.back()) + ", expected " + std::to_string(tokens()) + ", one for each position");
  for (std::size_t r = 0; r < requests.size(); ++r)
    for (std::int64_t t = query_starts[r]; t < query_starts[r + 1]; ++t)
      if (const std::int64_t at = positions[static_cast<std::size_t>(t)]; at < 0 || at >= lengths[r])
        fail(ErrorCode::bad_value, "positions",
             "has " + std::to_string(at) + " for token " + std::to_string(t) + ", expected 0 to " + std::to_string(lengths[r] - 1) +
                 ", as request " + std::to_string(r) + " has " + std::to_string(lengths[r]) + " tokens");
  if (trees()) check_parents(*this);
}

Batch extend_batch(std::span<const std::int64_t> lengths, std::span<const std::int64_t> new_tokens) {
  if (lengths.empty()) fail(ErrorCode::bad_value, "requests", "are none, expected at least one");
  check_count("new tokens", new_tokens.size(), static_cast<std::int64_t>(lengths.size()), "one for each request");
  Batch batch;
  batch.query_starts.push_back(0);
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    if (lengths[r] < 1) fail(ErrorCode::bad_value, "lengths", "has " + std::to_string(lengths[r]) + ", expected 1 or more");
    if (new_tokens[r] < 1 || new_tokens[r] > lengths[r])
      fail(ErrorCode::bad_value, "new tokens",
           "of request " + std::to_string(r) + " are " + std::to_string(new_tokens[r]) + ", expected 1 to its length, " +
               std::to_string(lengths[r]));
    batch.requests.push_back(static_cast<std::int64_t>(r));
    batch.lengths.push_back(lengths[r]);
    for (std::int64_t i = lengths[r] - new_tokens[r]; i < lengths[r]; ++i) batch.positions.push_back(i);
    batch.query_starts.push_back(batch.tokens());
  }
  return batch;
}

Batch decode_batch(std::span<const std::int64_t> lengths) {
  Batch batch = extend_batch(lengths, std::vector<std::int64_t>(lengths.size(), 1));
  batch.forward = Forward::decode;
  return batch;
}

}  // namespace dodona::model
