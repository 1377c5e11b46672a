#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Prefill of several requests, each with keys and values of its own heads: query i of request b's n_q sees the keys j of its n_k, all of
/// them or with is_causal those up to i + n_k - n_q, and out[i,h] = bmm2_scale * sum of p[j] * value[j,h], p = softmax(bmm1_scale *
/// (query[i,h] . key[j,h])). Source: FlashInfer `trtllm_ragged_attention_deepseek` (trtllm-gen kernels, SM100).
struct TrtllmRaggedAttentionDeepseek {
  Tensor query, key, value, workspace_buffer, seq_lens, cum_seq_lens_q, cum_seq_lens_kv, out, lse;
  std::int64_t max_q_len = 0, max_kv_len = 0, batch_size = 0, window_left = -1;
  double bmm1_scale = 1, bmm2_scale = 1, o_sf_scale = 1;
  bool enable_pdl = false, is_causal = true, return_lse = false;

  static constexpr OpInfo info{"trtllm_ragged_attention_deepseek", Category::attention, Source::flashinfer};
  void describe(auto& op) {
    op.signature(
        "query, key, value, workspace_buffer, seq_lens, max_q_len, max_kv_len, bmm1_scale, bmm2_scale, o_sf_scale, batch_size, "
        "window_left, "
        "cum_seq_lens_q, cum_seq_lens_kv, enable_pdl, is_causal, return_lse");
    op.in("query", query, {bf16, f16, f8_e4m3, f32}, "Tq N D").doc("tokens and heads may be strided. f32 is this library's own");
    op.in("key", key, same_as("query"), "Tk Nk D").doc("tokens and heads may be strided; N is a multiple of Nk");
    op.in("value", value, same_as("query"), "Tk Nk Dv").doc("likewise: often a slice of wider rows");
    op.in("workspace_buffer", workspace_buffer, {u8}, "workspace_bytes")
        .optional()
        .doc("upstream's scratch memory; neither needed nor touched");
    op.in("seq_lens", seq_lens, {i32}, "B")
        .role(Role::positions, "Tk+1")
        .kin("differences of cum_seq_lens_kv")
        .layout(Layout::contiguous)
        .doc("keys of each request, none allowed");
    op.in("cum_seq_lens_q", cum_seq_lens_q, {i32}, "B+1")
        .role(Role::indptr, "Tq")
        .layout(Layout::contiguous)
        .doc("first query of each request, and the end, Tq");
    op.in("cum_seq_lens_kv", cum_seq_lens_kv, {i32}, "B+1")
        .role(Role::indptr, "Tk")
        .layout(Layout::contiguous)
        .doc("first key of each request, and the end");
    op.attr("max_q_len", max_q_len, at_least(0)).ignored().doc("bound of the queries of a request, without effect on values");
    op.attr("max_kv_len", max_kv_len, at_least(0)).ignored().doc("bound of the keys of a request, without effect on values");
    op.attr("bmm1_scale", bmm1_scale).doc("all scales of the scores in one, positive");
    op.attr("bmm2_scale", bmm2_scale).doc("scale of the output");
    op.attr("o_sf_scale", o_sf_scale).ignored().doc("scale of an FP4 output, without effect on others");
    op.attr("batch_size", batch_size, at_least(0)).doc("B once more; 0: not given");
    op.attr("window_left", window_left, between(-1, -1)).doc("-1: no sliding window");
    op.attr("enable_pdl", enable_pdl).ignored().doc("programmatic dependent launch, without effect on values");
    op.attr("is_causal", is_causal).doc("masks keys behind the query, the last query seeing all keys");
    op.attr("return_lse", return_lse).doc("makes lse where it is not given");
    op.out("out", out, {bf16, f16, f32}, "Tq N Dv").doc("rounded once; bf16, or the type of the queries where that is f16 or f32");
    op.out("lse", lse, {f32}, "Tq N")
        .when("return_lse")
        .role(Role::lse_base_2)
        .layout(Layout::contiguous)
        .doc("written when given: log2 of the sum of exp(bmm1_scale * score)");
    op.symbol("D", {.choices = {192, 128, 256}});
    op.symbol("Dv", {.choices = {128, 256}});
    op.symbol("B", {.minimum = 1});
    op.symbol("Nk", {.minimum = 1});
  }
};

}  // namespace dodona::ops
