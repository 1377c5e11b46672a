#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Rotates the heads of query and key by their positions, in place, with a table in the type of the query; see ops/rows/rotation/rotate.h
/// for the rotation. In 16 bits every product and every sum is rounded, which apply_rope_with_cos_sin_cache_inplace does not do. Source:
/// sgl-kernel `rotary_embedding`.
struct RotaryEmbedding {
  Tensor positions, query, key, cos_sin_cache;
  std::int64_t head_size = 64;
  bool is_neox = true;

  static constexpr OpInfo info{"rotary_embedding", Category::rope, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("positions, query, key, head_size, cos_sin_cache, is_neox");
    op.in("positions", positions, {i64, i32}, "T | B S").role(Role::positions, "P").doc("row of the table for each token");
    // Dimensions more than two mean what the rank of positions makes of them: [T, Nq, head_size] or [B, S, Nq*head_size]. See check().
    op.inout("query", query, {bf16, f16, f32}, "T Nq*head_size | Query...")
        .doc("[T or B S, Nq*head_size] or [T or B S, Nq, head_size], rotated in place; may be a slice of wider rows and heads");
    op.inout("key", key, same_as("query"), "T Nk*head_size | Key...")
        .optional()
        .doc("as query, Nk a divisor of Nq; heads as far apart as the query's");
    op.in("cos_sin_cache", cos_sin_cache, same_as("query"), "P R")
        .role(Role::cos_sin)
        .layout(Layout::contiguous)
        .doc("R/2 cosines, then R/2 sines a row; the first R elements of a head are rotated");
    op.attr("head_size", head_size, at_least(1)).required().doc("elements of a head");
    op.attr("is_neox", is_neox).doc("pairs (i, i + R/2); false: pairs (2i, 2i + 1)");
    op.symbol("R", {.multiple_of = 2, .minimum = 2});
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
