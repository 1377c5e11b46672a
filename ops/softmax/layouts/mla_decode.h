// What the MLA decode ops share: attention of all heads to one latent row per token, in a paged cache.
//
// A row of the cache is [c (512) | k_pe (64)], a query [q_nope (512) | q_pe (64)]: keys of 576 elements, whose first 512 are the values.
// Query i of the Q of request b sees the first seq_lens[b] - Q + 1 + i rows.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/softmax/attention.h"

namespace dodona::ops {

inline constexpr std::int64_t mla_latent = 512, mla_rope = 64, mla_width = mla_latent + mla_rope;

struct MlaDecode {
  Tensor q_nope, q_pe;  ///< [B, Q, N, 512] and [B, Q, N, 64], inner stride 1
  Tensor cache;         ///< [pages, P, 576], contiguous
  Tensor page_table;    ///< [B, W] i32, contiguous; or `chosen`: [B, Q, W], for each query the tokens that it sees, as rows of the pool
  Tensor seq_lens;      ///< [B] i32, contiguous
  Tensor out;           ///< B*Q*N rows of 512 in this order, inner stride 1
  Tensor lse;           ///< f32, B*Q*N, contiguous: log2 of the sum of exp(scale * z); may be undefined
  double scale = 1, out_scale = 1;
  bool causal = true;          ///< else every query sees all rows of its request
  bool as_first = false;       ///< a mistake of kernels: every query sees what the request's first one does
  bool chosen = false;         ///< queries see the tokens of their lists, of which those below 0 are none
  bool empty_is_open = false;  ///< what a request of 0 tokens gives is not compared
  bool flash_mla = false;      ///< lse is natural, [B, N, Q], and inf for a query that sees no key
};

class MlaAttention final : public Attention {
 public:
  explicit MlaAttention(const MlaDecode& decode);
  /// 0 where a sequence is shorter than its queries.
  std::int64_t visible(std::int64_t row) const override;
  QueryParts queries(std::int64_t row) const override;
  void list(std::int64_t row, std::int64_t first, std::int64_t count, const std::byte** keys, const std::byte** values) const override;
  std::int64_t lse_row(std::int64_t row) const override;
  bool open_for_none(std::int64_t row) const override;

  /// The tokens of all sequences, and the queries.
  double bytes_read() const;

 private:
  MlaDecode decode_;
  std::vector<std::vector<std::int32_t>> lists_;  ///< of each row, where tokens are chosen
};

/// Throws bad_value when a page of a sequence, or a chosen token, is none of the cache's. Entries beyond a sequence's last page are not
/// looked at.
void check_mla_pages(const MlaDecode& call, std::string_view table_name);
/// Of FlashMLA's kernels, whose weights are rounded to `type`.
ScoreErrors flash_mla_score_errors(DType type, double scale);
/// Throws bad_value unless `scale` is finite and positive.
void check_mla_scale(double scale, std::string_view name);

}  // namespace dodona::ops
