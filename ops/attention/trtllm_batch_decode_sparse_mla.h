#pragma once

#include "ops/softmax/layouts/trtllm_mla.h"

namespace dodona::ops {

using enum DType;

/// Absorbed MLA decode over chosen tokens: the keys of query i of request b are the tokens t = block_tables[b,i,:] of the pool, token t in
/// row t mod P of page t / P, and those below 0 are none; out[b,i,h] = bmm2_scale * sum of p[j] * kv[j][0:512], p = softmax(bmm1_scale *
/// (query[b,i,h] . kv[j])). Source: FlashInfer `trtllm_batch_decode_with_kv_cache_mla` with sparse_mla_top_k (trtllm-gen kernels, SM100).
struct TrtllmBatchDecodeSparseMla {
  Tensor query, kv_cache, workspace_buffer, block_tables, seq_lens, out, lse;
  std::int64_t qk_nope_head_dim = 128, kv_lora_rank = 512, qk_rope_head_dim = 64, max_seq_len = 0, sparse_mla_top_k = 0;
  double bmm1_scale = 1, bmm2_scale = 1;
  bool return_lse = false, enable_pdl = false;

  static constexpr OpInfo info{"trtllm_batch_decode_sparse_mla", Category::attention, Source::flashinfer};
  void describe(auto& op) {
    op.signature(
        "query, kv_cache, workspace_buffer, qk_nope_head_dim, kv_lora_rank, qk_rope_head_dim, block_tables, seq_lens, max_seq_len, "
        "sparse_mla_top_k");
    op.in("query", query, {bf16, f8_e4m3, f16}, "B Q N kv_lora_rank+qk_rope_head_dim")
        .doc("[absorbed query | rotated part] of the last Q tokens");
    describe_trtllm_cache(op, *this, "scratch memory");
    op.in("block_tables", block_tables, {i32}, "B Q topk")
        .role(Role::positions, "pages*P")
        .may_stray()
        .layout(Layout::contiguous)
        .doc("chosen tokens of each query, in any order; numbers below 0 are none");
    op.in("seq_lens", seq_lens, {i32}, "B")
        .optional()
        .role(Role::lengths, "pages*P+1")
        .may_stray()
        .layout(Layout::contiguous)
        .doc("tokens of each request, without effect: the lists say which are seen");
    describe_trtllm_widths(op, *this);
    op.attr("sparse_mla_top_k", sparse_mla_top_k, at_least(0)).doc("topk once more; 0: not given");
    op.attr("bmm1_scale", bmm1_scale).doc("all scales of the scores in one, positive: q_scale * k_scale * sm_scale");
    op.attr("bmm2_scale", bmm2_scale).doc("scale of the output: v_scale * o_scale");
    op.attr("return_lse", return_lse).doc("makes lse where it is not given");
    op.attr("enable_pdl", enable_pdl).ignored().doc("programmatic dependent launch, without effect on values");
    op.out("out", out, {bf16, f16}, "B Q N kv_lora_rank").doc("rounded once; bf16, or f16 where query is");
    op.out("lse", lse, {f32}, "B Q N | B*Q N")
        .when("return_lse")
        .role(Role::lse_base_2)
        .layout(Layout::contiguous)
        .doc("written when given: log2 of the sum of exp(bmm1_scale * score)");
    op.symbol("B", {.minimum = 1, .maximum = 65536});
    op.symbol("Q", {.minimum = 1, .maximum = 1024});
    op.symbol("N", {.maximum = 1024});
    op.symbol("P", {.choices = {32, 64}});
    op.symbol("topk", {.minimum = 1});
    op.symbol("kv_lora_rank", {.choices = {512}});
    op.symbol("qk_rope_head_dim", {.choices = {64}});
    op.rows_independent("B");
  }
};

}  // namespace dodona::ops
