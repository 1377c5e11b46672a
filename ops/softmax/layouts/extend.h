// Attention of new tokens of several requests to a prefix in a pool, by slot, and to each other: prefill behind a prefix.
#pragma once

#include <vector>

#include "ops/softmax/attention.h"

namespace dodona::ops {

/// One request. Its keys are numbered from the prefix on: `prefix` slots, then its `queries` new tokens.
struct ExtendRequest {
  std::int64_t first_query, queries, first_slot, prefix;
  const std::uint8_t* mask = nullptr;  ///< of query 0 and key 0; nullptr: no mask
  std::int64_t mask_stride = 0;        ///< from query to query

  std::int64_t keys() const { return prefix + queries; }
};

struct Extend {
  Tensor query;                  ///< [T, N, Dk], inner stride 1
  Tensor key, value;             ///< [T, Nk, Dk] and [T, Nk, Dv], inner strides 1, N a multiple of Nk
  Tensor key_pool, value_pool;   ///< [slots, Nk, Dk] and [slots, Nk, Dv], inner strides 1; of query's type, or e4m3
  Tensor cached_query = {};      ///< e4m3 pools: query as their keys meet it, rounded_queries(query)
  Tensor sinks = {};             ///< [N]: scores of no value; may be undefined
  Tensor slots;                  ///< i32 or i64 [n]
  Tensor out;                    ///< [T, N, Dv]
  double scale = 1, cap = 0;     ///< cap: see Attention
  bool causal = true;            ///< where there is no mask: new tokens see those up to themselves
  bool mask_on_prefix = false;   ///< else masks are for new tokens alone
  std::int64_t block_rows = 0;   ///< causal requests with a mask: a query sees nothing behind its block of so many queries
  std::int64_t window = 0;       ///< not 0: a query sees this many keys before itself, and itself
  std::int64_t window_tile = 0;  ///< a mistake of kernels, see core/flaw.h
  std::int64_t temperature = 0;  ///< not 0: scores of queries at positions p beyond it are multiplied by log p / log of it

  bool in_fp8() const { return key_pool.dtype() == DType::f8_e4m3; }
  /// Masks or windows: queries see other keys than the first ones.
  bool masked(const ExtendRequest& request) const { return request.mask != nullptr || window > 0; }
  /// Whether query i sees key j. Of bytes of a mask the lowest bit counts.
  bool sees(const ExtendRequest& request, std::int64_t i, std::int64_t j) const;
  /// Slot of a key of the prefix.
  std::int64_t slot(const ExtendRequest& request, std::int64_t j) const;
  /// The keys' rows: of the pool, or of the new tokens.
  const std::byte* key_row(const ExtendRequest& request, std::int64_t j, std::int64_t head) const;
  const std::byte* value_row(const ExtendRequest& request, std::int64_t j, std::int64_t head) const;
};

/// Rounded to e4m3 and saturated.
Tensor rounded_queries(const Tensor& query);

/// A row is one head of up to 64 tokens that follow each other; of requests with masks or windows the heads of one token that share a key
/// head, and the row lists what the token sees.
class ExtendAttention final : public Attention {
 public:
  ExtendAttention(const Extend& call, const std::vector<ExtendRequest>& requests);
  std::int64_t visible(std::int64_t row) const override { return visible_to(row, queries_of(row) - 1); }
  std::int64_t visible_to(std::int64_t row, std::int64_t query) const override;
  std::int64_t queries_of(std::int64_t row) const override { return one_token_ ? heads : piece(row).queries; }
  std::int64_t out_row(std::int64_t row) const override;
  QueryParts queries(std::int64_t row) const override { return queries_in(call_.query, row); }
  void list(std::int64_t row, std::int64_t first, std::int64_t count, const std::byte** keys, const std::byte** values) const override;
  double temperature(std::int64_t row, std::int64_t query) const override;
  std::int64_t cached_keys(std::int64_t row) const override;
  QueryParts cached_queries(std::int64_t row) const override { return queries_in(call_.cached_query, row); }
  double sink(std::int64_t row, std::int64_t query) const override;

 private:
  /// Tokens of a request that follow each other.
  struct Piece {
    std::size_t request;
    std::int64_t first, queries;
    std::vector<std::int32_t> seen;  ///< of one token: its keys
  };
  const Piece& piece(std::int64_t row) const { return pieces_[static_cast<std::size_t>(row / units_)]; }
  const ExtendRequest& request(std::int64_t row) const { return requests_[piece(row).request]; }
  std::int64_t key_head(std::int64_t row) const { return one_token_ ? row % units_ : row % units_ / group_; }
  std::int64_t first_head(std::int64_t row) const { return row % units_ * (one_token_ ? group_ : 1); }
  QueryParts queries_in(const Tensor& q, std::int64_t row) const;

  Extend call_;
  std::vector<ExtendRequest> requests_;
  std::vector<Piece> pieces_;
  std::int64_t group_, units_;  ///< units: rows of a piece
  bool one_token_;
};

}  // namespace dodona::ops
