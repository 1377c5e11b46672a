#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// What the draft's extend step is given of the tokens that a verification emitted: accept_lens[b] of them for request b, the last
/// tokens of its seq_lens[b].
///   positions = seq_lens[b] - accept_lens[b] + j for its j-th token;  new_verified_id[b] = its last token
/// Source: SGLang `create_extend_after_decode_spec_info`.
struct CreateExtendAfterDecodeSpecInfo {
  Tensor verified_id, seq_lens, accept_lens, positions, new_verified_id;

  static constexpr OpInfo info{"create_extend_after_decode_spec_info", Category::speculative, Source::triton};
  void describe(auto& op) {
    op.in("verified_id", verified_id, {i32, i64}, "n").layout(Layout::contiguous).doc("emitted tokens, request after request");
    op.in("seq_lens", seq_lens, {i64, i32}, "B")
        .layout(Layout::contiguous)
        .kin("accept_lens and choices below 1000")
        .doc("tokens with them");
    op.in("accept_lens", accept_lens, {i32, i64}, "B")
        .layout(Layout::contiguous)
        .kin("1 and shares of the rest of n")
        .doc("emitted tokens of each request, at least 1; n in all");
    op.out("positions", positions, {i64}, "n").layout(Layout::contiguous).judged(Judge::exact).doc("of each emitted token");
    op.out("new_verified_id", new_verified_id, {i32}, "B").layout(Layout::contiguous).judged(Judge::exact).doc("narrowed to 32 bits");
    op.symbol("B", {.minimum = 1});
    op.symbol("n", {.minimum = 1});
  }
};

}  // namespace dodona::ops
