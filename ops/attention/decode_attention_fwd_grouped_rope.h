#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// MLA decode that rotates on the way: the last R elements of q[b,h] and of the key of each request's last token are rotated by
/// positions[b] (use_rope), the latter is also written to k_pe_tokens[b], and o[b,h] = sum of p[j] * v_buffer[s[j]], p = softmax(sm_scale *
/// (q[b,h] . k_buffer[s[j]])), s the slots kv_indices[kv_indptr[b]] to kv_indices[kv_indptr[b+1] - 1]. The pool itself is not changed.
/// Source: SGLang `decode_attention_fwd_grouped_rope` (Triton, rocm_mla_decode_rope.py).
struct DecodeAttentionFwdGroupedRope {
  Tensor q, k_buffer, v_buffer, kv_indptr, kv_indices, cos_sin_cache, positions, o, k_pe_tokens;
  std::int64_t kv_lora_rank = 512, rotary_dim = 64, num_kv_splits = 8;
  double sm_scale = 1, logit_cap = 0;
  bool use_rope = false, is_neox_style = false;

  static constexpr OpInfo info{"decode_attention_fwd_grouped_rope", Category::attention, Source::triton};
  void describe(auto& op) {
    op.signature(
        "q, k_buffer, v_buffer, o, kv_indptr, kv_indices, k_pe_tokens, kv_lora_rank, rotary_dim, cos_sin_cache, positions, num_kv_splits, "
        "sm_scale, logit_cap, use_rope, is_neox_style");
    op.in("q", q, {bf16, f16}, "B N kv_lora_rank+rotary_dim").doc("absorbed query, then the part that is rotated; may be strided");
    op.in("k_buffer", k_buffer, same_as("q"), "S 1 kv_lora_rank+rotary_dim")
        .doc("pool of latent rows and rotated key parts, of each request's last token not rotated yet; slots may be strided");
    op.in("v_buffer", v_buffer, same_as("q"), "S 1 kv_lora_rank").doc("pool of values: upstream's callers give the latent rows again");
    op.in("kv_indptr", kv_indptr, {i32}, "B+1")
        .role(Role::indptr, "n")
        .layout(Layout::contiguous)
        .doc("first index of each request, and the end");
    op.in("kv_indices", kv_indices, {i32, i64}, "n")
        .role(Role::positions, "S")
        .layout(Layout::contiguous)
        .doc("slots of the requests' tokens");
    op.in("cos_sin_cache", cos_sin_cache, same_as("q"), "P rotary_dim")
        .optional()
        .role(Role::cos_sin)
        .layout(Layout::contiguous)
        .doc("cosines of a position, then its sines; with use_rope. Upstream's kernel compiles with tables of the queries' type alone");
    op.in("positions", positions, {i64, i32}, "B")
        .optional()
        .role(Role::positions, "P")
        .layout(Layout::contiguous)
        .doc("position of each query token; with use_rope");
    op.attr("kv_lora_rank", kv_lora_rank).doc("width of a latent row: 512");
    op.attr("rotary_dim", rotary_dim).doc("width of the rotated part: 64");
    op.attr("num_kv_splits", num_kv_splits, between(1, 1 << 16)).recipe().doc("splits of every request's keys: part of the H200's bits");
    op.attr("sm_scale", sm_scale).required().doc("scale of the scores, positive");
    op.attr("logit_cap", logit_cap, between(0, 1e6)).doc("not 0: scores s become logit_cap * tanh(s / logit_cap)");
    op.attr("use_rope", use_rope).doc("false: nothing is rotated");
    op.attr("is_neox_style", is_neox_style).doc("pairs (i, i + R/2); false: pairs (2i, 2i + 1)");
    op.out("o", o, same_as("q"), "B N kv_lora_rank").doc("rounded once");
    op.out("k_pe_tokens", k_pe_tokens, same_as("q"), "B 1 rotary_dim")
        .when("use_rope")
        .doc("rotated key part of each request's last token, to be stored in the pool");
    op.symbol("kv_lora_rank", {.choices = {512}});
    op.symbol("rotary_dim", {.choices = {64}});
    op.symbol("B", {.minimum = 1});
  }
};

}  // namespace dodona::ops
