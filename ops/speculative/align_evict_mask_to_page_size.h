#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Draft tokens of a page that keeps others are not evicted. With f tokens of a request kept (false in its row), the page of the last of
/// them begins at start = (seq_lens[b] + f - 1) / page_size * page_size - seq_lens[b] draft tokens behind the prefix; of
/// evict_mask[b, start .. start + page_size) what there is becomes false.
/// Source: SGLang `align_evict_mask_to_page_size`.
struct AlignEvictMaskToPageSize {
  Tensor seq_lens, evict_mask;
  std::int64_t page_size = 1, num_draft_tokens = 0;

  static constexpr OpInfo info{"align_evict_mask_to_page_size", Category::speculative, Source::triton};
  void describe(auto& op) {
    op.in("seq_lens", seq_lens, {i64, i32}, "B").layout(Layout::contiguous).kin("choices below 1000").doc("tokens before the draft");
    op.inout("evict_mask", evict_mask, {boolean}, "B num_draft_tokens")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("whether a draft token's slot is freed");
    op.attr("page_size", page_size, between(1, 1 << 20)).required().doc("slots of a page");
    op.attr("num_draft_tokens", num_draft_tokens, between(1, 1 << 16)).required().doc("draft tokens of each request, the root counted");
    op.rows_independent("B");
  }
};

}  // namespace dodona::ops
