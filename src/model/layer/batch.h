// The tokens that go through the layers together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dodona/tensor.h"

namespace dodona::model {

/// What upstream's dispatch asks of a batch. Requests that decode beside others that extend are extended too.
enum class Forward {
  extend,  ///< prefill, with or without a prefix
  decode,  ///< one new token each
  verify,  ///< draft tokens of each
};

/// New tokens of R requests, T in all: those of a request lie together, in the order of the requests. Decoding brings one of each,
/// extending some, prefill all that a request has.
struct Batch {
  Forward forward = Forward::extend;
  std::vector<std::int64_t> requests;      ///< [R] which request of the cache each is
  std::vector<std::int64_t> query_starts;  ///< [R + 1] request r brings tokens query_starts[r] to query_starts[r + 1] - 1
  std::vector<std::int64_t> positions;     ///< [T] of each token in its sequence, for rope
  std::vector<std::int64_t> slots;         ///< [T] where the cache keeps each token's row
  std::vector<std::int64_t> lengths;       ///< [R] tokens of each request, the new ones included
  /// [T] of draft trees: which of its request's new tokens each one follows, counted from 0; -1: the last cached one. Empty: chains, each
  /// token behind the one before it. A tree's rows lie in the cache in the order of its tokens, not of their positions.
  std::vector<std::int64_t> parents = {};

  std::int64_t size() const { return static_cast<std::int64_t>(requests.size()); }
  std::int64_t tokens() const { return static_cast<std::int64_t>(positions.size()); }
  std::int64_t tokens_of(std::int64_t r) const {
    return query_starts[static_cast<std::size_t>(r) + 1] - query_starts[static_cast<std::size_t>(r)];
  }
  bool one_token_each() const { return tokens() == size(); }
  /// New tokens of every request; 0 where they differ.
  std::int64_t tokens_each() const;
  /// Tokens of request r that are in the cache already.
  std::int64_t prefix(std::int64_t r) const { return lengths[static_cast<std::size_t>(r)] - tokens_of(r); }
  std::int64_t prefixes() const;
  bool trees() const { return !parents.empty(); }
  /// Rows of request r's cache that its new token `i` sees, in the order of the text: the prefix, and what is on the way to it.
  std::vector<std::int64_t> seen_by(std::int64_t r, std::int64_t i) const;

  Tensor slots_tensor() const;    ///< i64 [T]
  Tensor lengths_tensor() const;  ///< i32 [R]
  Tensor starts_tensor() const;   ///< i32 [R + 1], query_starts
  /// Each token as a request of its own: which request it is of, and the tokens that it sees, i32 [T].
  std::vector<std::int64_t> request_of_tokens() const;
  Tensor visible_tensor() const;

  /// Throws Error (bad_shape, bad_value) naming the field unless the counts fit each other, every request brings a token, and each token's
  /// position lies inside its request's length; of trees unless parents come first and stand one before. Slots may not be there yet.
  void validate_tokens() const;
  /// The same with slots.
  void validate() const;
};

/// [n] in i32.
Tensor int32_tensor(std::span<const std::int64_t> values);

/// The last new_tokens[r] tokens of requests 0, 1, ... of lengths[r] tokens; slots are for PagedKvCache::place to fill in. Throws Error
/// (bad_value) for no requests, lengths below 1, and new tokens below 1 or beyond the length.
Batch extend_batch(std::span<const std::int64_t> lengths, std::span<const std::int64_t> new_tokens);
/// One new token of each.
Batch decode_batch(std::span<const std::int64_t> lengths);

}  // namespace dodona::model
