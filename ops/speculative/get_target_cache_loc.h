#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// The slots of a verification's tokens, D = num_verify_tokens of each request, parted: the first accept_length[b] + 1 are where its
/// accepted tokens go, the last to_free_num_slots[b] are given back.
/// Source: SGLang `get_target_cache_loc`.
struct GetTargetCacheLoc {
  Tensor tgt_cache_loc, to_free_slots, accept_length, to_free_num_slots, out_cache_loc;
  std::int64_t num_verify_tokens = 0;

  static constexpr OpInfo info{"get_target_cache_loc", Category::speculative, Source::triton};
  void describe(auto& op) {
    op.signature("tgt_cache_loc, to_free_slots, accept_length, to_free_num_slots, out_cache_loc, num_verify_tokens");
    op.in("accept_length", accept_length, {i32, i64}, "B")
        .layout(Layout::contiguous)
        .kin("shares of n - B")
        .doc("accepted draft tokens, below D");
    op.in("to_free_num_slots", to_free_num_slots, {i64, i32}, "B")
        .layout(Layout::contiguous)
        .kin("shares of f")
        .doc("slots to free, at most D");
    op.in("out_cache_loc", out_cache_loc, {i64}, "B*num_verify_tokens").layout(Layout::contiguous).doc("slots, request after request");
    op.attr("num_verify_tokens", num_verify_tokens, between(1, 1 << 16)).required().doc("D, the root counted");
    op.out("tgt_cache_loc", tgt_cache_loc, {i64}, "n")
        .given()
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("n = the sum of accept_length + 1");
    op.out("to_free_slots", to_free_slots, {i64}, "f")
        .given()
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("f = the sum of to_free_num_slots");
  }
};

}  // namespace dodona::ops
