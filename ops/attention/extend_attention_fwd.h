#pragma once

#include "ops/softmax/layouts/pool_type.h"

namespace dodona::ops {

using enum DType;

/// Prefill behind a prefix: query i of request b's n_q = qo_indptr[b+1] - qo_indptr[b] new tokens sees the n_p slots
/// kv_indices[kv_indptr[b]] to kv_indices[kv_indptr[b+1] - 1] of the pools, then the new tokens up to itself (is_causal) or all of them;
/// o_extend[i,h] = sum of p[j] * v[j, h / G], p = softmax(s[j]), s = sm_scale * (q_extend[i,h] . k[j, h / G]), G = N / Nk, k and v of the
/// pools or of k_extend and v_extend. To pools of e4m3 the queries are rounded to e4m3, for theirs alone. Source: SGLang
/// `extend_attention_fwd` (Triton).
struct ExtendAttentionFwd {
  Tensor q_extend, k_extend, v_extend, k_buffer, v_buffer, qo_indptr, kv_indptr, kv_indices, custom_mask, mask_indptr, window_kv_offsets,
      sinks, o_extend;
  std::int64_t max_len_extend = 0, sliding_window_size = -1, xai_temperature_len = -1, v_head_dim = 0, BLOCK_M = 0;
  double sm_scale = 0, logit_cap = 0;
  bool is_causal = true, skip_prefix_custom_mask = true, v_is_slice_of_k = false;

  static constexpr OpInfo info{"extend_attention_fwd", Category::attention, Source::triton};
  void describe(auto& op) {
    op.signature(
        "q_extend, k_extend, v_extend, o_extend, k_buffer, v_buffer, qo_indptr, kv_indptr, kv_indices, custom_mask, is_causal, "
        "mask_indptr, max_len_extend, sm_scale, logit_cap, skip_prefix_custom_mask, sliding_window_size, sinks, "
        "window_kv_offsets, xai_temperature_len");
    op.in("q_extend", q_extend, {bf16, f16}, "T N D").doc("new tokens of all requests; tokens and heads may be strided");
    op.in("k_extend", k_extend, same_as("q_extend"), "T Nk D").doc("their keys; N is a multiple of Nk");
    op.in("v_extend", v_extend, same_as("q_extend"), "T Nk Dv").doc("their values");
    op.in("k_buffer", k_buffer, same_as_or_e4m3("q_extend"), "S Nk D").doc("pool of keys; slots and heads may be strided");
    op.in("v_buffer", v_buffer, same_as("k_buffer"), "S Nk Dv").optional().doc("pool of values; not given with v_is_slice_of_k");
    op.in("qo_indptr", qo_indptr, {i32}, "B+1")
        .role(Role::indptr, "T")
        .layout(Layout::contiguous)
        .doc("first new token of each request, and the end, T");
    op.in("kv_indptr", kv_indptr, {i32}, "B+1")
        .role(Role::indptr, "n")
        .layout(Layout::contiguous)
        .doc("first index of each request's prefix, and the end");
    op.in("kv_indices", kv_indices, {i64, i32}, "n")
        .role(Role::positions, "S")
        .layout(Layout::contiguous)
        .doc("slots of the prefixes' tokens");
    op.in("custom_mask", custom_mask, {boolean, u8}, "masked")
        .on_request()
        .layout(Layout::contiguous)
        .doc(
            "tree mask: request by request n_q rows of n_p + n_q keys; keys whose lowest bit is 0 are not seen. In the place of is_causal");
    op.in("mask_indptr", mask_indptr, {i64, i32}, "B+1")
        .on_request()
        .kin("running sums of the sizes of the masks")
        .layout(Layout::contiguous)
        .doc("where each request's mask begins; given with custom_mask");
    op.in("window_kv_offsets", window_kv_offsets, {i32}, "B")
        .on_request()
        .kin("choices below 4")
        .layout(Layout::contiguous)
        .doc("keys before the prefix that rows of custom_mask begin with; looked at with custom_mask and a window alone");
    op.in("sinks", sinks, {bf16, f32}, "N")
        .on_request()
        .layout(Layout::contiguous)
        .doc("a score of each head, as it is, whose value is 0: a term more of the sum of the weights");
    op.attr("is_causal", is_causal)
        .doc(
            "masks new tokens behind each one; with custom_mask: those behind its block of BLOCK_M alone, as upstream's kernel loads no "
            "more");
    op.attr("max_len_extend", max_len_extend, at_least(0)).ignored().doc("bound of the new tokens of a request, without effect on values");
    op.attr("sm_scale", sm_scale, at_least(0)).doc("scale of the scores; 0: D^-0.5");
    op.attr("logit_cap", logit_cap, between(0, 1e6)).doc("not 0: scores s become logit_cap * tanh(s / logit_cap)");
    op.attr("skip_prefix_custom_mask", skip_prefix_custom_mask).doc("custom_mask is for the new tokens alone");
    op.attr("sliding_window_size", sliding_window_size, at_least(-1)).doc("W > 0: a query sees keys at most W before itself");
    op.attr("xai_temperature_len", xai_temperature_len, between(-1, 1 << 24))
        .doc("n > 1: scores of a query at a position p > n are multiplied by log p / log n after the cap");
    op.attr("v_is_slice_of_k", v_is_slice_of_k).doc("values of the pool are the first Dv elements of their keys");
    op.attr("v_head_dim", v_head_dim, at_least(0)).doc("Dv once more; 0: not given");
    op.attr("BLOCK_M", BLOCK_M, at_least(0))
        .recipe()
        .doc("queries of one block of the kernel; 0: upstream's choice, 128 for D <= 256, else 32");
    op.out("o_extend", o_extend, same_as("q_extend"), "T N Dv").doc("rounded once");
    op.symbol("D", {.minimum = 9, .maximum = 576});
    op.symbol("Dv", {.minimum = 9, .maximum = 512});
    op.symbol("B", {.minimum = 1});
    op.symbol("Nk", {.minimum = 1});
  }
};

}  // namespace dodona::ops
