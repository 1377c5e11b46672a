#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Keys and scales of the first seq_len tokens of a sequence, whose pages are page_indices: token i is slot i mod 64 of page
/// page_indices[i / 64], see set_index_k_scale_buffer.
/// Source: SGLang `get_index_k_scale_buffer` (index_buf_accessor's `GetKAndS`, Triton).
struct GetIndexKScaleBuffer {
  Tensor buf, page_indices, index_k, index_k_scale;
  std::int64_t seq_len = 0;

  static constexpr OpInfo info{"get_index_k_scale_buffer", Category::nsa, Source::triton};
  void describe(auto& op) {
    op.signature("buf, seq_len, page_indices");
    op.in("buf", buf, {u8}, "pages 8448").layout(Layout::contiguous).doc("pages of 64 keys, then 64 scales");
    op.attr("seq_len", seq_len, between(0, std::int64_t{1} << 30)).required().doc("tokens");
    op.in("page_indices", page_indices, {i32, i64}, "P")
        .role(Role::positions, "pages")
        .doc("pages of the sequence, in order; those behind its end are not looked at");
    op.out("index_k", index_k, {u8}, "seq_len 128").layout(Layout::contiguous).judged(Judge::exact).doc("codes of e4m3, as bytes");
    op.out("index_k_scale", index_k_scale, {u8}, "seq_len 4").layout(Layout::contiguous).judged(Judge::exact).doc("fp32 scales, as bytes");
    op.symbol("P", {.minimum = 1});
    op.symbol("pages", {.minimum = 1});
  }
};

}  // namespace dodona::ops
