#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// chunk_kv_indices[chunk_cu_seq_lens[b] + i] = req_to_token[req_pool_indices[b], chunk_start_idx[b] + i] for i < chunk_seq_lens[b]: the
/// slots of one chunk of each request's prefix. Source: SGLang `create_chunked_prefix_cache_kv_indices`.
struct CreateChunkedPrefixCacheKvIndices {
  Tensor req_to_token, req_pool_indices, chunk_start_idx, chunk_seq_lens, chunk_cu_seq_lens, chunk_kv_indices;

  static constexpr OpInfo info{"create_chunked_prefix_cache_kv_indices", Category::kv_cache, Source::triton};
  void describe(auto& op) {
    op.in("req_to_token", req_to_token, {i32}, "R C").doc("slot of each token of each request");
    op.in("req_pool_indices", req_pool_indices, {i64, i32}, "B").role(Role::positions, "R").doc("row of each request");
    op.in("chunk_start_idx", chunk_start_idx, {i32}, "B")
        .role(Role::positions, "C+1")
        .kin("a choice of where the chunk fits")
        .doc("first token of each request's chunk");
    op.in("chunk_seq_lens", chunk_seq_lens, {i32}, "B")
        .role(Role::positions, "C+1")
        .kin("differences of chunk_cu_seq_lens")
        .doc("tokens of each chunk, 0 where a request has none left");
    op.in("chunk_cu_seq_lens", chunk_cu_seq_lens, {i32}, "B+1")
        .role(Role::indptr, "n")
        .layout(Layout::contiguous)
        .doc("where each chunk begins, and the end: 0 and the running sums of chunk_seq_lens");
    op.out("chunk_kv_indices", chunk_kv_indices, {i32}, "n")
        .judged(Judge::exact)
        .doc("slots, chunk after chunk; as many as the chunks have tokens");
  }
};

}  // namespace dodona::ops
