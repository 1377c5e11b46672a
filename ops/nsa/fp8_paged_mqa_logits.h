#pragma once

#include "ops/schemes/mqa_logits.h"

namespace dodona::ops {

/// logits[b * Q + j, n] = s[n] * sum_h weights[b * Q + j, h] * max(0, q[b, j, h] . k[n]) for n <= context_lens[b] - Q + j: the indexer's
/// scores of a decode step of Q tokens a request. Key n and its scale s are those of slot n mod 64 of page block_table[b, n / 64]; a page
/// has 64 keys of e4m3, then their 64 scales in fp32. Source: DeepGEMM `fp8_paged_mqa_logits`.
struct Fp8PagedMqaLogits {
  Tensor q, fused_kv_cache, weights, context_lens, block_table, schedule_meta, logits;
  std::int64_t max_context_len = 0;
  bool clean_logits = false;

  static constexpr std::int64_t page = 64;
  static constexpr OpInfo info{"fp8_paged_mqa_logits", Category::nsa, Source::deep_gemm};
  void describe(auto& op) {
    op.signature("q, fused_kv_cache, weights, context_lens, block_table, schedule_meta, max_context_len, clean_logits");
    op.in("q", q, {f8_e4m3}, "B Q H D").layout(Layout::contiguous).doc("queries of the indexer; their scales are part of the weights");
    op.in("fused_kv_cache", fused_kv_cache, {u8}, "pages 64 1 D+4")
        .layout(Layout::contiguous)
        .aligned(4)
        .kin("codes, and scales of whole exponents")
        .doc("pages: 64 keys of D codes, then 64 scales (fp32, little-endian), whatever the shape says");
    op.in("weights", weights, {f32}, "B*Q H").doc("of each query's heads; rows may be strided");
    op.in("context_lens", context_lens, {i32}, "B")
        .layout(Layout::contiguous)
        .role(Role::lengths, "max_context_len+1")
        .doc("tokens of each request, those of this step among them");
    op.in("block_table", block_table, {i32}, "B W").role(Role::page_table, "pages").doc("pages of each request; rows may be strided");
    op.in("schedule_meta", schedule_meta, {i32}, "parts 2").on_request().doc("which part of the GPU does what; without effect on values");
    op.attr("max_context_len", max_context_len, between(1, std::int64_t{1} << 30)).required().doc("columns of logits");
    op.attr("clean_logits", clean_logits).doc("-inf in the columns that are not a query's, of which else nothing is said");
    op.out("logits", logits, {f32}, "B*Q max_context_len").padded().doc("scores; rows may be strided");
    op.symbol("D", {.choices = {32, 64, 128}});
    op.symbol("H", {.multiple_of = 8, .minimum = 8});
  }
  MqaLogits call() const;
};

}  // namespace dodona::ops
