#pragma once

#include "ops/softmax/layouts/trtllm_mla.h"

namespace dodona::ops {

using enum DType;

/// Absorbed MLA decode of the last Q tokens of each request over a paged latent cache: query i of request b sees the keys
/// j < seq_lens[b] - Q + 1 + i, and out[b,i,h] = bmm2_scale * sum of p[j] * kv[j][0:512], p = softmax(bmm1_scale * (query[b,i,h] . kv[j])),
/// kv[j] = kv_cache[block_tables[b, j / P], j mod P].
/// Source: FlashInfer `trtllm_batch_decode_with_kv_cache_mla` (trtllm-gen kernels, SM100).
struct TrtllmBatchDecodeWithKvCacheMla {
  Tensor query, kv_cache, workspace_buffer, block_tables, seq_lens, out, lse;
  std::int64_t qk_nope_head_dim = 128, kv_lora_rank = 512, qk_rope_head_dim = 64, max_seq_len = 0, page_size = 0;
  double bmm1_scale = 1, bmm2_scale = 1;
  bool return_lse = false, enable_pdl = false;

  static constexpr OpInfo info{"trtllm_batch_decode_with_kv_cache_mla", Category::attention, Source::flashinfer};
  void describe(auto& op) {
    op.signature(
        "query, kv_cache, workspace_buffer, qk_nope_head_dim, kv_lora_rank, qk_rope_head_dim, block_tables, seq_lens, max_seq_len");
    op.in("query", query, {bf16, f8_e4m3, f16, f32}, "B Q N kv_lora_rank+qk_rope_head_dim")
        .doc("[absorbed query | rotated part] of the last Q tokens. f32 is this library's own");
    describe_trtllm_cache(op, *this, "scratch memory");
    op.in("block_tables", block_tables, {i32}, "B W")
        .role(Role::page_table, "pages")
        .layout(Layout::contiguous)
        .doc("pages of each request in order; entries beyond its last page may be anything");
    op.in("seq_lens", seq_lens, {i32}, "B")
        .role(Role::lengths, "W*P+1")
        .layout(Layout::contiguous)
        .doc("tokens of each request, the Q new ones included");
    describe_trtllm_widths(op, *this);
    op.attr("page_size", page_size, at_least(0)).doc("P once more; 0: not given");
    op.attr("bmm1_scale", bmm1_scale).doc("all scales of the scores in one, positive: q_scale * k_scale * sm_scale");
    op.attr("bmm2_scale", bmm2_scale).doc("scale of the output: v_scale * o_scale");
    op.attr("return_lse", return_lse).doc("makes lse where it is not given");
    op.attr("enable_pdl", enable_pdl).ignored().doc("programmatic dependent launch, without effect on values");
    op.out("out", out, {bf16, f16, f32}, "B Q N kv_lora_rank")
        .doc("rounded once; bf16, or the type of the queries where that is f16 (as FlashMLA has it) or f32 (this library's own)");
    op.out("lse", lse, {f32}, "B Q N | B*Q N")
        .when("return_lse")
        .role(Role::lse_base_2)
        .layout(Layout::contiguous)
        .doc("written when given: log2 of the sum of exp(bmm1_scale * score)");
    op.symbol("B", {.minimum = 1, .maximum = 65536});
    op.symbol("Q", {.minimum = 1, .maximum = 1024});
    op.symbol("N", {.maximum = 1024});
    op.symbol("P", {.choices = {32, 64}});
    op.symbol("W", {.minimum = 1});
    op.symbol("kv_lora_rank", {.choices = {512}});
    op.symbol("qk_rope_head_dim", {.choices = {64}});
    op.rows_independent("B");
  }
};

}  // namespace dodona::ops
