#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// How FlashMLA's decode is cut among the SMs of a GPU: tile_scheduler_metadata[p] = (first request, first block of it, last request, end
/// block of it, number of the first split, 0, 0, 0) of each part p, num_splits the running sums of the splits of the requests. With topk
/// the sparse kernel's, whose requests all have topk tokens; with is_fp8_kvcache and no topk the dense kernel's of e4m3 caches, which
/// counts tokens in the place of blocks. Source: sgl-kernel `get_mla_metadata` (FlashMLA).
struct GetMlaMetadata {
  Tensor cache_seqlens, tile_scheduler_metadata, num_splits;
  std::int64_t num_q_tokens_per_head_k = 0, num_heads_k = 1, num_heads_q = 0, topk = 0, sm_count = 132;
  bool is_fp8_kvcache = false;

  static constexpr OpInfo info{"get_mla_metadata", Category::attention, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("cache_seqlens, num_q_tokens_per_head_k, num_heads_k, num_heads_q, is_fp8_kvcache, topk");
    op.in("cache_seqlens", cache_seqlens, {i32}, "B")
        .role(Role::positions, "8193")
        .may_stray()
        .layout(Layout::contiguous)
        .doc("tokens of each request");
    op.attr("num_q_tokens_per_head_k", num_q_tokens_per_head_k, between(1, 1 << 30))
        .required()
        .doc("rows of each key head: query tokens times query heads over key heads");
    op.attr("num_heads_k", num_heads_k, between(1, 1 << 20)).required().doc("key heads, 1 for MLA");
    op.attr("num_heads_q", num_heads_q, between(0, 1 << 20)).doc("query heads, with topk: two SMs share 128 heads of one query token");
    op.attr("topk", topk, between(0, 1 << 30)).doc("tokens that sparse attention selects; 0: the dense kernels");
    op.attr("is_fp8_kvcache", is_fp8_kvcache).doc("the cache is of e4m3, or with topk of 656 bytes a token");
    op.attr("sm_count", sm_count, between(1, 1 << 20)).recipe().doc("streaming multiprocessors of the GPU: 132 of an H100 and an H200 SXM");
    op.out("tile_scheduler_metadata", tile_scheduler_metadata, {i32}, "parts 8")
        .layout(Layout::contiguous)
        .padded()
        .judged(Judge::exact)
        .doc("what each part does; parts that begin at request B do nothing, and the rest of their rows is unspecified");
    op.out("num_splits", num_splits, {i32}, "B+1").layout(Layout::contiguous).judged(Judge::exact).doc("splits of the requests before");
    op.symbol("B", {.minimum = 1});
  }
};

}  // namespace dodona::ops
