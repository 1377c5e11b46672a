#pragma once

#include "ops/schemes/index_topk.h"

namespace dodona::ops {

/// topk_indices[b]: the positions of the 2048 largest of score[b, row_starts[b] .. row_starts[b] + lengths[b]), counted from row_starts[b];
/// of rows that have no more all of them in order, then -1. Source: sgl-kernel `fast_topk_v2` (sparse attention's indexer).
struct FastTopkV2 : IndexTopkCall {
  Tensor topk_indices;

  static constexpr OpInfo info{"fast_topk_v2", Category::nsa, Source::sgl_kernel};
  static constexpr std::string_view output_name = "topk_indices";
  void describe(auto& op) {
    op.signature("score, lengths, topk, row_starts");
    describe_scores(op);
    describe_topk(op);
    op.out(output_name, topk_indices, {i32}, "B topk").layout(Layout::contiguous).judged(Judge::grouping).doc("positions of each row");
    op.rows_independent("B");
  }
  IndexTopkOutput output() const { return {topk_indices, output_name}; }
  std::vector<IndexRow> rows() const {
    std::vector<IndexRow> rows;
    for (std::int64_t b = 0; b < lengths.elements(); ++b) rows.push_back(row(b));
    return rows;
  }
};

}  // namespace dodona::ops
