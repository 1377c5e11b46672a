// Attention of tokens of several requests, laid one behind the other, to keys and values laid likewise: prefill.
#pragma once

#include <vector>

#include "ops/softmax/attention.h"

namespace dodona::ops {

/// One request: its queries and keys. Where `causal`, query i sees the keys up to i + keys - queries, and of those behind it `further`.
struct RaggedRequest {
  std::int64_t first_query, queries, first_key, keys;
  bool causal;
  std::int64_t further = 0;
};

/// Causal masks as they are, and as kernels get them wrong.
enum class CausalMask {
  right,
  from_first_key,  ///< aligned to the first key, not to the last
  own_key_hidden,  ///< a query does not see its own key
  next_key_seen,   ///< a query sees the key behind its own
};
std::vector<RaggedRequest> masked_by(CausalMask mask, std::vector<RaggedRequest> requests);
/// Each query by itself, with the keys at most `window` before its own position, the last query's being that of the last key. `tile`: a
/// mistake of kernels, see core/flaw.h.
std::vector<RaggedRequest> windowed(const std::vector<RaggedRequest>& requests, std::int64_t window, std::int64_t tile = 0);

struct Ragged {
  Tensor query;       ///< [tokens, N, Dk]
  Tensor key, value;  ///< [keys, Nk, Dk] and [keys, Nk, Dv]; inner strides 1, N a multiple of Nk
  Tensor out;         ///< [tokens, N, Dv]
  Tensor lse;         ///< f32 [tokens, N], contiguous; may be undefined
  Tensor sinks = {};  ///< [N]: scores of no value; may be undefined
  double scale = 1, out_scale = 1;
  double cap = 0;  ///< see Attention
};

/// A row is one head of up to 64 tokens that follow each other.
class RaggedAttention final : public Attention {
 public:
  RaggedAttention(const Ragged& call, const std::vector<RaggedRequest>& requests);
  std::int64_t visible(std::int64_t row) const override;
  std::int64_t visible_to(std::int64_t row, std::int64_t query) const override;
  std::int64_t queries_of(std::int64_t row) const override { return block(row).queries; }
  std::int64_t out_row(std::int64_t row) const override { return block(row).first_query * heads_ + row % heads_; }
  double sink(std::int64_t row, std::int64_t query) const override;
  QueryParts queries(std::int64_t row) const override;
  void list(std::int64_t row, std::int64_t first, std::int64_t count, const std::byte** keys, const std::byte** values) const override;

 private:
  struct Block {
    std::int64_t first_query, queries, first_key, keys;
    std::int64_t first_sees;  ///< keys that its first query sees, less than 0 where later ones see none either
    bool causal;              ///< each query one more than the one before it
  };
  const Block& block(std::int64_t row) const { return blocks_[static_cast<std::size_t>(row / heads_)]; }

  Ragged call_;
  std::int64_t heads_, group_;
  std::vector<Block> blocks_;
};

}  // namespace dodona::ops
