#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Prefill without a prefix: of request b the tokens b_start_loc[b] to b_start_loc[b] + b_seq_len[b] - 1 attend each other, with is_causal
/// up to themselves; o[i,h] = sum of p[j] * v[j, h / G], p = softmax(D^-0.5 * (q[i,h] . k[j, h / G])), G = N / Nk. Source: SGLang
/// `context_attention_fwd` (Triton).
struct ContextAttentionFwd {
  Tensor q, k, v, b_start_loc, b_seq_len, o;
  std::int64_t max_input_len = 0;
  bool is_causal = true;

  static constexpr OpInfo info{"context_attention_fwd", Category::attention, Source::triton};
  void describe(auto& op) {
    op.signature("q, k, v, o, b_start_loc, b_seq_len, max_input_len, is_causal");
    op.in("q", q, {bf16, f16}, "T N D").doc("tokens of all requests; tokens and heads may be strided");
    op.in("k", k, same_as("q"), "T Nk D").doc("keys");
    op.in("v", v, same_as("q"), "T Nk D").doc("values, as wide as keys");
    op.in("b_start_loc", b_start_loc, {i32}, "B")
        .role(Role::positions, "T+1")
        .kin("running sums of b_seq_len")
        .layout(Layout::contiguous)
        .doc("first token of each request");
    op.in("b_seq_len", b_seq_len, {i32}, "B")
        .role(Role::positions, "T+1")
        .kin("parts of T by sorted choices")
        .layout(Layout::contiguous)
        .doc("tokens of each request, none allowed; together T");
    op.attr("max_input_len", max_input_len, at_least(0)).ignored().doc("bound of b_seq_len, without effect on values");
    op.attr("is_causal", is_causal).doc("masks the tokens behind each one");
    op.out("o", o, same_as("q"), "T N D").doc("rounded once");
    op.symbol("D", {.minimum = 9, .maximum = 256});
    op.symbol("B", {.minimum = 1});
    op.symbol("Nk", {.minimum = 1});
  }
};

}  // namespace dodona::ops
