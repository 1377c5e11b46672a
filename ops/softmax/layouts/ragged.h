// Attention of tokens of several requests, laid one behind the other, to keys and values laid likewise: prefill.
#pragma once

#include <vector>

#include "ops/softmax/attention.h"

namespace dodona::ops {

/// One request: its queries and keys. Query i lies at i + keys - queries. Where `causal`, it sees the keys up to there, and of those behind
/// it `further`; of those before it the last `window`, where that is not negative.
struct RaggedRequest {
  std::int64_t first_query, queries, first_key, keys;
  bool causal;
  std::int64_t further = 0, window = -1;
};

/// Causal masks as they are, and as kernels get them wrong.
enum class CausalMask {
  right,
  from_first_key,  ///< aligned to the first key, not to the last
  own_key_hidden,  ///< a query does not see its own key
  next_key_seen,   ///< a query sees the key behind its own
};
std::vector<RaggedRequest> masked_by(CausalMask mask, std::vector<RaggedRequest> requests);
/// The same with windows: each query by itself with the keys that it sees. `tile`: a mistake of kernels, see core/flaw.h.
std::vector<RaggedRequest> one_by_one(const std::vector<RaggedRequest>& requests, std::int64_t tile = 0);

struct Ragged {
  Tensor query;       ///< [tokens, N, Dk]
  Tensor key, value;  ///< [keys, Nk, Dk] and [keys, Nk, Dv]; inner strides 1, N a multiple of Nk
  Tensor out;         ///< [tokens, N, Dv]
  Tensor lse;         ///< f32 [tokens, N], contiguous; may be undefined
  Tensor sinks = {};  ///< [N]: scores of no value; may be undefined
  double scale = 1, out_scale = 1;
  double cap = 0;  ///< see Attention
};

/// A row is one head of up to 128 tokens that follow each other; where no request has more than one, the heads that share a key head.
class RaggedAttention final : public Attention {
 public:
  RaggedAttention(const Ragged& call, const std::vector<RaggedRequest>& requests);
  std::int64_t visible(std::int64_t row) const override;
  std::int64_t visible_to(std::int64_t row, std::int64_t query) const override;
  std::int64_t hidden_to(std::int64_t row, std::int64_t query) const override;
  std::int64_t queries_of(std::int64_t row) const override { return one_token_ ? group_ : block(row).queries; }
  std::int64_t out_row(std::int64_t row) const override { return block(row).first_query * heads_ + first_head(row); }
  double sink(std::int64_t row, std::int64_t query) const override;
  QueryParts queries(std::int64_t row) const override;
  void list(std::int64_t row, std::int64_t first, std::int64_t count, const std::byte** keys, const std::byte** values) const override;

 private:
  struct Block {
    std::int64_t first_query, queries, first_key, keys;
    std::int64_t first_sees;   ///< the key behind the last one that its first query sees, less than 0 where later ones see none either
    std::int64_t first_hides;  ///< the first one that it sees, likewise
    bool causal, hides;        ///< whether each query sees one more than the one before it, and one more is hidden from it
  };
  const Block& block(std::int64_t row) const { return blocks_[static_cast<std::size_t>(row / units_)]; }
  std::int64_t first_head(std::int64_t row) const { return row % units_ * (one_token_ ? group_ : 1); }
  /// Of the row's queries.
  std::int64_t token_of(std::int64_t query) const { return one_token_ ? 0 : query; }

  Ragged call_;
  std::int64_t heads_, group_, units_;  ///< units: rows of a block
  bool one_token_;
  std::vector<Block> blocks_;
};

}  // namespace dodona::ops
