#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// New slots entered into the table of requests: req_to_token[req_pool_indices[b], start_offset[b] + j] = the next of out_cache_loc, for
/// j < end_offset[b] - start_offset[b], request after request.
/// Source: SGLang `assign_req_to_token_pool`.
struct AssignReqToTokenPool {
  Tensor req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc;

  static constexpr OpInfo info{"assign_req_to_token_pool", Category::speculative, Source::triton};
  void describe(auto& op) {
    op.in("req_pool_indices", req_pool_indices, {i64, i32}, "B")
        .layout(Layout::contiguous)
        .role(Role::indices, "R")
        .doc("row of each request; of requests that share one the later writes over the earlier, which upstream leaves to chance");
    op.inout("req_to_token", req_to_token, {i32}, "R C").layout(Layout::contiguous).judged(Judge::exact).doc("slot of each token");
    op.in("start_offset", start_offset, {i64, i32}, "B").layout(Layout::contiguous).kin("where the span fits").doc("first new token");
    op.in("end_offset", end_offset, {i64, i32}, "B").layout(Layout::contiguous).kin("shares of n").doc("behind the last new token");
    op.in("out_cache_loc", out_cache_loc, {i64, i32}, "n").layout(Layout::contiguous).doc("new slots, narrowed to 32 bits; n or more");
  }
};

}  // namespace dodona::ops
