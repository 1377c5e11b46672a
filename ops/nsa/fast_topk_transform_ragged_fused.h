#pragma once

#include "ops/schemes/index_topk.h"

namespace dodona::ops {

/// topk_indices_ragged[b]: the positions that fast_topk_v2 chooses, plus topk_indices_offset[b], where the row's keys begin among those of
/// all requests; what pads a short row stays -1. Source: sgl-kernel `fast_topk_transform_ragged_fused` (sparse attention's prefill over
/// keys without pages).
struct FastTopkTransformRaggedFused : IndexTopkCall {
  Tensor topk_indices_offset, topk_indices_ragged;

  static constexpr OpInfo info{"fast_topk_transform_ragged_fused", Category::nsa, Source::sgl_kernel};
  static constexpr std::string_view output_name = "topk_indices_ragged";
  void describe(auto& op) {
    op.signature("score, lengths, topk_indices_offset, topk, row_starts");
    describe_scores(op);
    op.in("topk_indices_offset", topk_indices_offset, {i32}, "B")
        .layout(Layout::contiguous)
        .role(Role::positions, "65536")
        .may_stray()
        .doc("what is added to each row's positions");
    describe_topk(op);
    op.out(output_name, topk_indices_ragged, {i32}, "B topk")
        .layout(Layout::contiguous)
        .judged(Judge::grouping)
        .doc("keys of each row, counted over all requests");
    op.rows_independent("B");
  }
  IndexTopkOutput output() const { return {topk_indices_ragged, output_name}; }
  std::vector<IndexRow> rows() const {
    std::vector<IndexRow> rows;
    for (std::int64_t b = 0; b < lengths.elements(); ++b) {
      rows.push_back(row(b));
      rows.back().offset = topk_indices_offset.as<const std::int32_t>()[b];
    }
    return rows;
  }
};

}  // namespace dodona::ops
