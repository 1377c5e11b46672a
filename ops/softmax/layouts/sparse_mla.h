// Attention of all heads of a token to the latent rows that a list names: sparse attention's MLA.
//
// A row of the cache is [c (512) | k_pe (64)], a query [q_nope (512) | q_pe (64)]: keys of 576 elements, whose first 512 are the values.
// Numbers of the list that name no row of the cache count as absent; a row that is named twice counts twice. The order is the list's.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/softmax/attention.h"

namespace dodona::ops {

struct SparseMla {
  Tensor q;                               ///< [B, Q, N, 576] bf16, inner stride 1
  const std::byte* cache;                 ///< row 0 of the cache
  std::int64_t cache_rows, cache_stride;  ///< bytes from row to row
  KeyRows key_rows;
  Tensor indices;  ///< [B, Q, topk] i32, inner stride 1
  Tensor out;      ///< B*Q*N rows of 512
  Tensor lse, top;
  double scale = 1;
  bool flash_mla = false;  ///< lse is natural, [B, N, Q], and inf for a query that sees no key; else log2, [B, Q, N], and -inf
};

class SparseMlaAttention final : public Attention {
 public:
  explicit SparseMlaAttention(const SparseMla& call);
  std::int64_t visible(std::int64_t row) const override;
  QueryParts queries(std::int64_t row) const override;
  void list(std::int64_t row, std::int64_t first, std::int64_t count, const std::byte** keys, const std::byte** values) const override;
  std::int64_t lse_row(std::int64_t row) const override;

  /// The rows that are named, each as often as it is, and the queries.
  double bytes_read() const;

 private:
  SparseMla call_;
  std::vector<std::int64_t> first_;  ///< of each row's keys in slots_, and their end
  std::vector<std::int32_t> slots_;
};

/// The row that a number of the list names, or -1.
inline std::int64_t slot_of(std::int32_t index, std::int64_t cache_rows) {
  return index >= 0 && index < cache_rows ? index : -1;
}

}  // namespace dodona::ops
