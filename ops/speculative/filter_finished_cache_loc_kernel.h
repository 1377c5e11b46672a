#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// The slots of accepted tokens without those of finished requests: of request b's accept_length[b] + 1 slots the first
/// accept_length_filter[b], none for one that is finished.
/// Source: SGLang `filter_finished_cache_loc_kernel`.
struct FilterFinishedCacheLocKernel {
  Tensor out_cache_loc, tgt_cache_loc, accept_length, accept_length_filter;

  static constexpr OpInfo info{"filter_finished_cache_loc_kernel", Category::speculative, Source::triton};
  void describe(auto& op) {
    op.signature("out_cache_loc, tgt_cache_loc, accept_length, accept_length_filter");
    op.in("tgt_cache_loc", tgt_cache_loc, {i64}, "n").layout(Layout::contiguous).doc("slots of all accepted tokens, request after request");
    op.in("accept_length", accept_length, {i32, i64}, "B").layout(Layout::contiguous).kin("shares of n - B").doc("accepted draft tokens");
    op.in("accept_length_filter", accept_length_filter, {i32, i64}, "B")
        .layout(Layout::contiguous)
        .kin("shares of m")
        .doc("slots that stay, at most accept_length + 1");
    op.out("out_cache_loc", out_cache_loc, {i64}, "m")
        .given()
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("m = the sum of accept_length_filter");
  }
};

}  // namespace dodona::ops
