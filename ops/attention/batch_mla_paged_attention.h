#pragma once

#include "ops/softmax/layouts/pool_type.h"

namespace dodona::ops {

using enum DType;

/// Absorbed MLA over pages of latent rows and of rotated key parts, for any number of queries of each request: token t = qo_indptr[b] + i
/// of request b sees its kv_len_arr[b] tokens, with causal all but the last n_q - 1 - i; token j is row j mod P of page
/// kv_indices[kv_indptr[b] + j / P]; out[t,h] = sum of p[j] * ckv_cache[j], p = softmax(sm_scale * (q_nope[t,h] . ckv_cache[j] + q_pe[t,h]
/// . kpe_cache[j])). Caches of e4m3 are widened to bf16 first, times their scales. Source: FlashInfer `BatchMLAPagedAttentionWrapper`, plan
/// and run in one.
struct BatchMlaPagedAttention {
  Tensor q_nope, q_pe, ckv_cache, kpe_cache, qo_indptr, kv_indptr, kv_indices, kv_len_arr, ckv_scale_arr, out, lse;
  double sm_scale = 1, ckv_scale = 0, kpe_scale = 0;
  bool causal = false, return_lse = false, return_lse_base_on_e = false;
  std::string backend = "fa3";

  static constexpr OpInfo info{"batch_mla_paged_attention", Category::attention, Source::flashinfer};
  void describe(auto& op) {
    op.signature(
        "q_nope, q_pe, ckv_cache, kpe_cache, qo_indptr, kv_indptr, kv_indices, kv_len_arr, causal, sm_scale, out, lse, return_lse, "
        "return_lse_base_on_e, ckv_scale, ckv_scale_arr, kpe_scale");
    op.in("q_nope", q_nope, {bf16, f16}, "T N 512").doc("absorbed queries; tokens and heads may be strided");
    op.in("q_pe", q_pe, same_as("q_nope"), "T N 64").doc("their rotated parts");
    op.in("ckv_cache", ckv_cache, same_as_or_e4m3("q_nope"), "pages P 512")
        .doc("latent rows; may be columns of a wider pool. e4m3 beside queries of bf16 alone");
    op.in("kpe_cache", kpe_cache, same_as("ckv_cache"), "pages P 64").doc("rotated key parts, likewise");
    op.in("qo_indptr", qo_indptr, {i32}, "B+1")
        .role(Role::indptr, "T")
        .layout(Layout::contiguous)
        .doc("first query of each request, and the end, T");
    op.in("kv_indptr", kv_indptr, {i32}, "B+1")
        .kin("running sums of the pages that kv_len_arr needs")
        .role(Role::indptr, "n")
        .layout(Layout::contiguous)
        .doc("first index of each request's pages, and the end");
    op.in("kv_indices", kv_indices, {i32}, "n")
        .role(Role::positions, "pages")
        .layout(Layout::contiguous)
        .doc("pages of the requests in order");
    op.in("kv_len_arr", kv_len_arr, {i32}, "B")
        .kin("choices below P * (n / B) + 1, the first P * (n / B)")
        .role(Role::positions, "n*P+1")
        .layout(Layout::contiguous)
        .doc("tokens of each request, none allowed");
    op.in("ckv_scale_arr", ckv_scale_arr, {f32}, "pages P 4")
        .on_request()
        .role(Role::scale)
        .layout(Layout::contiguous)
        .doc("of e4m3: a scale of each token's 128 columns, in the place of ckv_scale");
    op.attr("ckv_scale", ckv_scale, at_least(0)).doc("of e4m3: what latent codes are multiplied with, rounded to bf16; 0: not given");
    op.attr("kpe_scale", kpe_scale, at_least(0)).doc("of e4m3: likewise of kpe_cache");
    op.attr("causal", causal).doc("the last query of a request sees all its tokens, each one before it one less");
    op.attr("sm_scale", sm_scale).required().doc("scale of the scores, positive");
    op.attr("return_lse", return_lse).doc("makes lse where it is not given");
    op.attr("return_lse_base_on_e", return_lse_base_on_e).doc("lse is a natural logarithm, else in base 2");
    op.choice("backend", backend, {"fa3", "fa2"}).recipe().doc("whose kernel; both are judged alike, and hopper mode has fa2");
    op.out("out", out, same_as("q_nope"), "T N 512").doc("rounded once; zeros for a query that sees no token");
    op.out("lse", lse, {f32}, "T N")
        .when("return_lse")
        .role(Role::lse_base_2)
        .layout(Layout::contiguous)
        .doc("written when given: logarithm of the sum of exp(sm_scale * score); -inf for a query that sees no token");
    op.symbol("B", {.minimum = 1});
    op.symbol("P", {.minimum = 1});
  }
};

}  // namespace dodona::ops
