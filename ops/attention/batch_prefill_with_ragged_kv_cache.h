#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Prefill of several requests, each with keys and values of its own heads: query i of request b's n_q = qo_indptr[b+1] - qo_indptr[b] sees
/// the keys j of its n_k = kv_indptr[b+1] - kv_indptr[b], all of them or with causal those up to i + n_k - n_q, and out[i,h] = sum of p[j]
/// * v[j, h / G], p = softmax(sm_scale * (q[i,h] . k[j, h / G])), G = N / Nk. Source: FlashInfer `BatchPrefillWithRaggedKVCacheWrapper`
/// (its fa3 and fa2 backends), plan and run in one; with sinks FlashAttention 3's `flash_attn_varlen_func`.
struct BatchPrefillWithRaggedKvCache {
  Tensor q, k, v, qo_indptr, kv_indptr, sinks, out, lse;
  std::int64_t window_left = -1, fixed_split_size = 0;
  bool causal = false, return_lse = false, return_lse_base_on_e = false;
  double sm_scale = 0, logits_soft_cap = 0;
  std::string backend = "fa3";

  static constexpr OpInfo info{"batch_prefill_with_ragged_kv_cache", Category::attention, Source::flashinfer};
  void describe(auto& op) {
    op.signature("q, k, v, qo_indptr, kv_indptr, causal, sm_scale, out, lse, return_lse");
    op.in("q", q, {bf16, f16}, "Tq N D").doc("tokens and heads may be strided");
    op.in("k", k, same_as("q"), "Tk Nk D").doc("tokens and heads may be strided; N is a multiple of Nk");
    op.in("v", v, same_as("q"), "Tk Nk Dv").doc("likewise: often a slice of wider rows");
    op.in("qo_indptr", qo_indptr, {i32}, "B+1")
        .role(Role::indptr, "Tq")
        .layout(Layout::contiguous)
        .doc("first query of each request, and the end, Tq");
    op.in("kv_indptr", kv_indptr, {i32}, "B+1")
        .role(Role::indptr, "Tk")
        .layout(Layout::contiguous)
        .doc("first key of each request, and the end");
    op.in("sinks", sinks, {bf16, f32}, "N")
        .on_request()
        .layout(Layout::contiguous)
        .doc("a score of each head, as it is, whose value is 0: a term more of the sum of the weights");
    op.attr("causal", causal).doc("masks keys behind the query, the last query seeing all keys");
    op.attr("sm_scale", sm_scale, at_least(0)).doc("scale of the scores; 0: D^-0.5");
    op.attr("window_left", window_left, between(-1, 1 << 24)).recipe().doc("W >= 0: a query sees keys at most W before its own position");
    op.attr("logits_soft_cap", logits_soft_cap, between(0, 1e6))
        .recipe()
        .doc("not 0: scores s become logits_soft_cap * tanh(s / logits_soft_cap)");
    op.attr("return_lse", return_lse).doc("makes lse where it is not given");
    op.attr("return_lse_base_on_e", return_lse_base_on_e).recipe().doc("lse is a natural logarithm, else in base 2");
    op.choice("backend", backend, {"fa3", "fa2"})
        .recipe()
        .doc("whose sums: fa3 adds up the weights as they are, fa2 rounded to the type, and may round outputs of splits");
    op.attr("fixed_split_size", fixed_split_size, between(0, 1 << 30))
        .recipe()
        .doc("of fa2 in hopper mode: keys of a split; 0: what the planner chooses for 132 multiprocessors");
    op.out("out", out, same_as("q"), "Tq N Dv").doc("rounded once; zeros for a query that sees no key");
    op.out("lse", lse, {f32}, "Tq N")
        .when("return_lse")
        .role(Role::lse_base_2)
        .layout(Layout::contiguous)
        .doc("written when given: logarithm of the sum of exp(sm_scale * score); -inf for a query that sees no key");
    op.symbol("D", {.choices = {192, 128, 64, 256}});
    op.symbol("Dv", {.choices = {128, 64, 256}});
    op.symbol("B", {.minimum = 1});
    op.symbol("Nk", {.minimum = 1});
  }
};

}  // namespace dodona::ops
