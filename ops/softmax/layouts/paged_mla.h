// MLA over pages of latent rows and of rotated key parts in two caches, for any number of queries of each request.
#pragma once

#include <vector>

#include "ops/softmax/attention.h"

namespace dodona::ops {

struct PagedMla {
  Tensor q_nope, q_pe;         ///< [T, N, 512] and [T, N, 64], inner stride 1
  Tensor ckv, kpe;             ///< [pages, P, 512] and [pages, P, 64], inner strides 1; of the queries' type, or e4m3 beside bf16
  Tensor query_offsets;        ///< i32 [B+1]
  Tensor page_offsets, pages;  ///< i32 [B+1] and i32 [n]
  Tensor lengths;              ///< i32 [B]
  Tensor out, lse;             ///< [T, N, 512]; f32 [T, N], or undefined
  double scale = 1;
  float ckv_scale = 1, kpe_scale = 1;  ///< of e4m3
  Tensor ckv_scales = {};              ///< f32 [pages, P, 4], of 128 columns each, in the place of ckv_scale; may be undefined
  bool causal = false;                 ///< query i of n sees all but the last n - 1 - i tokens
  bool nan_codes_count = false;        ///< NaN codes of e4m3 are 480 of their sign, as kernels take them
  bool as_first = false;               ///< a mistake of kernels: every query sees what the request's first one does
};

/// A row is the heads of one token. Keys are rows of 576: those of the caches where these are columns of one pool, else copies, which of
/// e4m3 are bf16: codes times scales, these rounded to bf16 but for those of 128 columns.
class PagedMlaAttention final : public Attention {
 public:
  explicit PagedMlaAttention(const PagedMla& call);
  std::int64_t visible(std::int64_t row) const override;
  /// A query that sees none of the tokens that its request has gets what masked keys make of it.
  bool open_for_none(std::int64_t row) const override;
  QueryParts queries(std::int64_t row) const override;
  void list(std::int64_t row, std::int64_t first, std::int64_t count, const std::byte** keys, const std::byte** values) const override;

 private:
  struct Row {
    std::int64_t request, visible;
  };
  /// Page and slot of a token.
  struct Place {
    std::int64_t page, slot;
  };
  Place place(std::int64_t request, std::int64_t token) const;
  /// A row of e4m3 in bf16.
  void widen(const Place& at, std::uint16_t* row) const;

  PagedMla call_;
  std::vector<Row> rows_;
  std::vector<Tensor> copies_;  ///< of each request; empty where the pool's rows serve
};

}  // namespace dodona::ops
