#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Quantizes keys of the indexer to e4m3, with a scale s = max(1e-4, max |x|) / 448 for each, and stores both in the slots out_cache_loc of
/// a paged buffer: of slot t, page t / P has the key at byte 128 (t mod P) and the scale, fp32 little-endian, at byte 128 P + 4 (t mod P).
/// Source: SGLang `fused_store_index_k_cache` (jit_kernel: CUDA that is compiled where it runs).
struct FusedStoreIndexKCache {
  Tensor key, index_k_with_scale, out_cache_loc;
  std::int64_t page_size = 64;

  static constexpr OpInfo info{"fused_store_index_k_cache", Category::nsa, Source::triton};
  void describe(auto& op) {
    op.signature("key, index_k_with_scale, out_cache_loc, page_size");
    op.attr("page_size", page_size, between(1, 1 << 16)).doc("slots of a page, a power of two");
    op.in("key", key, {bf16}, "n 128").doc("keys of new tokens; rows may be strided");
    op.inout("index_k_with_scale", index_k_with_scale, {u8}, "pages 132*page_size")
        .layout(Layout::contiguous)
        .judged(Judge::code)
        .doc("pages of keys, then scales; other slots keep their bits");
    op.in("out_cache_loc", out_cache_loc, {i64}, "n").role(Role::indices, "pages*page_size").doc("slot of each token");
  }
};

}  // namespace dodona::ops
