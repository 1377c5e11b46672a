#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Segments of yes and no as bits: element 8i + j of x[input_indptr[b] .. input_indptr[b+1]) becomes bit j of byte i of y from
/// output_indptr[b] on; bits beyond the segment are 0. What lies between the segments' bytes is left as it was.
/// Source: sgl-kernel `segment_packbits`.
struct SegmentPackbits {
  Tensor x, input_indptr, output_indptr, y;
  std::int64_t batch_size = 0;

  static constexpr OpInfo info{"segment_packbits", Category::speculative, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("x, input_indptr, output_indptr, y, batch_size");
    op.in("x", x, {boolean}, "N").layout(Layout::contiguous).doc("elements, segment after segment; any byte but 0 is yes");
    op.in("input_indptr", input_indptr, {i32}, "batch_size+1")
        .layout(Layout::contiguous)
        .kin("0, sorted choices up to N, N")
        .doc("where each segment begins, and the end of the last");
    op.in("output_indptr", output_indptr, {i32}, "batch_size+1")
        .layout(Layout::contiguous)
        .kin("running sums of the segments' bytes")
        .doc("where each segment's bytes begin; gaps are legal, overlaps are not");
    op.attr("batch_size", batch_size, between(0, 1 << 24)).required().doc("segments");
    op.inout("y", y, {u8}, "M").layout(Layout::contiguous).judged(Judge::exact).doc("bytes, with room for all segments");
  }
};

}  // namespace dodona::ops
