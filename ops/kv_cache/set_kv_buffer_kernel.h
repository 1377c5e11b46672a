#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// k_cache[loc[t]] = k[t], v_cache[loc[t]] = v[t]: keys and values of new tokens into the slots of a cache.
/// Source: sgl-kernel `set_kv_buffer_kernel` (`store_kv_cache`).
struct SetKvBufferKernel {
  Tensor k_cache, v_cache, loc, k, v;
  bool fallback = false;

  static constexpr OpInfo info{"set_kv_buffer_kernel", Category::kv_cache, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("k_cache, v_cache, loc, k, v, fallback");
    op.inout("k_cache", k_cache, {bf16, f16, f8_e4m3, f8_e5m2, f32, u8}, "S H D | S D")
        .judged(Judge::exact)
        .doc("[slots, heads, head] or [slots, item]; slots that loc does not name keep their bits");
    op.inout("v_cache", v_cache, same_as("k_cache"), "S H D | S D").judged(Judge::exact).doc("likewise");
    op.in("loc", loc, {i64, i32}, "T").role(Role::indices, "S").doc("slot of each token; of tokens that share one the last is stored");
    op.in("k", k, same_as("k_cache"), "T H D | T D").doc("keys; tokens and heads may be strided");
    op.in("v", v, same_as("k_cache"), "T H D | T D").doc("values");
    op.attr("fallback", fallback).ignored().doc("upstream: index with torch, which gives the same");
  }
};

}  // namespace dodona::ops
