#pragma once

#include "ops/softmax/layouts/pool_type.h"

namespace dodona::ops {

using enum DType;

/// Attention of one query token of each request to rows of a pool: o[b,h] = sum of p[j] * v_buffer[s[j], h / G], p = softmax(sm_scale *
/// (q[b,h] . k_buffer[s[j], h / G])), s the slots kv_indices[kv_indptr[b]] to kv_indices[kv_indptr[b+1] - 1], G = N / Nk. For MLA Nk = 1,
/// and values are the first v_head_dim elements of their keys. Source: SGLang `decode_attention_fwd` (Triton; normal and grouped).
struct DecodeAttentionFwd {
  Tensor q, k_buffer, v_buffer, kv_indptr, kv_indices, num_kv_splits, sinks, o;
  std::int64_t max_kv_splits = 8, v_head_dim = 512, xai_temperature_len = -1;
  double sm_scale = 1, logit_cap = 0;
  bool v_is_slice_of_k = false;

  static constexpr OpInfo info{"decode_attention_fwd", Category::attention, Source::triton};
  void describe(auto& op) {
    op.signature(
        "q, k_buffer, v_buffer, o, kv_indptr, kv_indices, num_kv_splits, max_kv_splits, sm_scale, logit_cap, sinks, v_is_slice_of_k, "
        "v_head_dim, xai_temperature_len");
    op.in("q", q, {bf16, f16}, "B N D").doc("one query token of each request; tokens and heads may be strided");
    op.in("k_buffer", k_buffer, same_as_or_e4m3("q"), "S Nk D").doc("pool of keys; slots and heads may be strided");
    op.in("v_buffer", v_buffer, same_as("k_buffer"), "S Nk v_head_dim").optional().doc("pool of values; not given with v_is_slice_of_k");
    op.in("kv_indptr", kv_indptr, {i32}, "B+1")
        .role(Role::indptr, "n")
        .layout(Layout::contiguous)
        .doc("first index of each request, and the end");
    op.in("kv_indices", kv_indices, {i32, i64}, "n")
        .role(Role::positions, "S")
        .layout(Layout::contiguous)
        .doc("slots of the requests' tokens");
    op.in("num_kv_splits", num_kv_splits, {i32}, "B")
        .role(Role::lengths, "9")
        .may_stray()
        .layout(Layout::contiguous)
        .doc("splits of each request's keys: part of the H200's bits");
    op.in("sinks", sinks, {bf16, f32}, "N")
        .on_request()
        .layout(Layout::contiguous)
        .doc("a score of each head, as it is, whose value is 0: a term more of the sum of the weights");
    op.attr("max_kv_splits", max_kv_splits, between(1, 1 << 16)).doc("bound of num_kv_splits");
    op.attr("sm_scale", sm_scale).required().doc("scale of the scores, positive");
    op.attr("logit_cap", logit_cap, between(0, 1e6)).doc("not 0: scores s become logit_cap * tanh(s / logit_cap)");
    op.attr("v_is_slice_of_k", v_is_slice_of_k).doc("values are the first v_head_dim elements of their keys");
    op.attr("v_head_dim", v_head_dim, between(9, 1024)).doc("width of a value");
    op.attr("xai_temperature_len", xai_temperature_len, between(-1, 1 << 24))
        .doc("n > 1: scores of a request whose last position p is beyond n are multiplied by log p / log n after the cap");
    op.out("o", o, same_as("q"), "B N v_head_dim").doc("rounded once");
    op.symbol("D", {.minimum = 9, .maximum = 1024});
    op.symbol("B", {.minimum = 1});
    op.symbol("Nk", {.minimum = 1});
  }
};

}  // namespace dodona::ops
