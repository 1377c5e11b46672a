#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Rotates the heads of query and key by their positions, in place, with a table in fp32; see ops/rows/rotation/rotate.h for the rotation.
/// Optionally stores the rotated key and the value in the rows `cache_loc` of two buffers.
/// Source: sgl-kernel and FlashInfer `apply_rope_with_cos_sin_cache_inplace`.
struct ApplyRopeWithCosSinCacheInplace {
  Tensor positions, query, key, cos_sin_cache;
  Tensor value, k_buffer, v_buffer, cache_loc;
  std::int64_t head_size = 64;
  bool is_neox = true;
  std::string fused_set_kv_buffer_arg;
  bool enable_pdl = false;

  static constexpr OpInfo info{"apply_rope_with_cos_sin_cache_inplace", Category::rope, {Source::sgl_kernel, Source::flashinfer}};
  void describe(auto& op) {
    op.signature("positions, query, key, head_size, cos_sin_cache, is_neox, fused_set_kv_buffer_arg, enable_pdl");
    op.in("positions", positions, {i64, i32}, "T").role(Role::positions, "P").doc("row of the table for each token");
    op.inout("query", query, {bf16, f16, f32}, "T Nq*head_size | T Nq head_size")
        .doc("rotated in place; may be a slice of wider rows and heads");
    op.inout("key", key, same_as("query"), "T Nk*head_size | T Nk head_size")
        .doc("rotated in place; may be a slice of wider rows and heads");
    op.in("cos_sin_cache", cos_sin_cache, {f32}, "P R")
        .role(Role::cos_sin)
        .layout(Layout::contiguous)
        .doc("R/2 cosines, then R/2 sines a row; the first R elements of a head are rotated");
    op.in("value", value, same_as("query"), "T Nv*head_size | T Nv head_size")
        .optional()
        .doc("with k_buffer, v_buffer and cache_loc, or not at all");
    op.inout("k_buffer", k_buffer, same_as("query"), "S Nk*head_size | S Nk head_size")
        .optional()
        .doc("row cache_loc[t] becomes the rotated key of t");
    op.inout("v_buffer", v_buffer, same_as("query"), "S Nv*head_size | S Nv head_size")
        .optional()
        .doc("row cache_loc[t] becomes the value of t");
    op.in("cache_loc", cache_loc, {i64}, "T").role(Role::indices, "S").optional().doc("row of the buffers for each token");
    op.attr("head_size", head_size, at_least(1)).required().doc("elements of a head");
    op.attr("is_neox", is_neox).doc("pairs (i, i + R/2); false: pairs (2i, 2i + 1), as DeepSeek has them");
    op.attr("fused_set_kv_buffer_arg", fused_set_kv_buffer_arg)
        .ignored()
        .doc("upstream's bundle of value, k_buffer, v_buffer and cache_loc");
    op.attr("enable_pdl", enable_pdl).ignored().doc("programmatic dependent launch, without effect on values");
    op.symbol("R", {.multiple_of = 2, .minimum = 2});
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
