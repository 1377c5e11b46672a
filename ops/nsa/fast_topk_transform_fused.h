#pragma once

#include "ops/schemes/index_topk.h"

namespace dodona::ops {

/// dst_page_table[b]: page_table_size_1[q(b), i] for the positions i that fast_topk_v2 chooses, -1 for what pads a short row. Row b belongs
/// to the request q(b) with cu_seqlens_q[q] <= b < cu_seqlens_q[q + 1]; without row_starts, and with as many requests as rows, to request
/// b, whatever cu_seqlens_q says. Source: sgl-kernel `fast_topk_transform_fused` (sparse attention over a paged cache; pages of a single
/// token).
struct FastTopkTransformFused : IndexTopkCall {
  Tensor page_table_size_1, cu_seqlens_q, dst_page_table;

  static constexpr OpInfo info{"fast_topk_transform_fused", Category::nsa, Source::sgl_kernel};
  static constexpr std::string_view output_name = "dst_page_table";
  void describe(auto& op) {
    op.signature("score, lengths, page_table_size_1, cu_seqlens_q, topk, row_starts");
    describe_scores(op);
    op.in("page_table_size_1", page_table_size_1, {i32}, "R W")
        .role(Role::page_table, "R*W")
        .doc("slot of each token of each request, as many as the longest of its rows has positions; rows may be strided");
    op.in("cu_seqlens_q", cu_seqlens_q, {i32}, "R+1")
        .layout(Layout::contiguous)
        .role(Role::indptr, "B")
        .may_stray()
        .doc("first row of each request; the number of rows");
    describe_topk(op);
    op.out(output_name, dst_page_table, {i32}, "B topk").layout(Layout::contiguous).judged(Judge::grouping).doc("slots of each row");
  }
  IndexTopkOutput output() const { return {dst_page_table, output_name}; }
  /// The request of row b, or -1 for none.
  std::int64_t request_of(std::int64_t b) const;
  std::vector<IndexRow> rows() const;
};

}  // namespace dodona::ops
