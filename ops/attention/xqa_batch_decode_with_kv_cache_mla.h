#pragma once

#include "ops/softmax/layouts/trtllm_mla.h"

namespace dodona::ops {

using enum DType;

/// As trtllm_batch_decode_with_kv_cache_mla with one query token a request, but for the scales: bmm2_scale stands for one scale of keys and
/// values, out[b,0,h] = bmm2_scale * sum of p[j] * kv[j][0:512], p = softmax(bmm1_scale * bmm2_scale * (query[b,0,h] . kv[j])).
/// Source: FlashInfer `xqa_batch_decode_with_kv_cache_mla` (SM120).
struct XqaBatchDecodeWithKvCacheMla {
  Tensor query, kv_cache, workspace_buffer, block_tables, seq_lens, out;
  std::int64_t qk_nope_head_dim = 128, kv_lora_rank = 512, qk_rope_head_dim = 64, max_seq_len = 0;
  double bmm1_scale = 1, bmm2_scale = 1;
  bool enable_pdl = false;

  static constexpr OpInfo info{"xqa_batch_decode_with_kv_cache_mla", Category::attention, Source::flashinfer};
  void describe(auto& op) {
    op.signature(
        "query, kv_cache, workspace_buffer, qk_nope_head_dim, kv_lora_rank, qk_rope_head_dim, block_tables, seq_lens, max_seq_len, out, "
        "bmm1_scale, bmm2_scale");
    op.in("query", query, {bf16, f8_e4m3}, "B 1 N kv_lora_rank+qk_rope_head_dim")
        .doc("[absorbed query | rotated part]; upstream has kernels for 128 heads alone");
    describe_trtllm_cache(op, *this, "semaphores and scratch memory");
    op.in("block_tables", block_tables, {i32}, "B W")
        .role(Role::page_table, "pages")
        .layout(Layout::contiguous)
        .doc("pages of each request in order; entries beyond its last page may be anything");
    op.in("seq_lens", seq_lens, {i32}, "B")
        .role(Role::lengths, "W*P+1")
        .layout(Layout::contiguous)
        .doc("tokens of each request, the new one included");
    describe_trtllm_widths(op, *this);
    op.attr("bmm1_scale", bmm1_scale).doc("scale of the scores beside bmm2_scale, positive: q_scale * sm_scale");
    op.attr("bmm2_scale", bmm2_scale).doc("scale of the cache, of keys and values alike, positive");
    op.attr("enable_pdl", enable_pdl).ignored().doc("programmatic dependent launch, without effect on values");
    op.out("out", out, {bf16}, "B 1 N kv_lora_rank").doc("rounded once");
    op.symbol("B", {.minimum = 1, .maximum = 65536});
    op.symbol("N", {.maximum = 128});
    op.symbol("P", {.choices = {32, 64}});
    op.symbol("W", {.minimum = 1});
    op.symbol("kv_lora_rank", {.choices = {512}});
    op.symbol("qk_rope_head_dim", {.choices = {64}});
    op.rows_independent("B");
  }
};

}  // namespace dodona::ops
