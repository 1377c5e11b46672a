#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// cache_k_nope[t] | cache_k_rope[t] = kv_buffer[loc[t]]: the latents of tokens, out of the slots of an MLA cache.
/// Source: SGLang `get_mla_kv_buffer` (`get_mla_kv_buffer_triton`).
struct GetMlaKvBuffer {
  Tensor kv_buffer, loc, cache_k_nope, cache_k_rope;
  std::int64_t kv_lora_rank = 512, qk_rope_head_dim = 64;
  DType dst_dtype = bf16;

  static constexpr OpInfo info{"get_mla_kv_buffer", Category::kv_cache, Source::triton};
  void describe(auto& op) {
    op.signature("kv_buffer, loc, cache_k_nope, cache_k_rope, kv_lora_rank, qk_rope_head_dim, dst_dtype");
    op.in("kv_buffer", kv_buffer, {bf16, f16, f8_e4m3, f8_e5m2, f32}, "S... kv_lora_rank+qk_rope_head_dim")
        .doc("[slots, D], [slots, 1, D] or [pages, P, D], rows counted through");
    op.in("loc", loc, {i64, i32}, "T").role(Role::indices, "S").doc("slot of each token, more than once if need be");
    op.attr("kv_lora_rank", kv_lora_rank, between(1, 1 << 20)).doc("width of the latent part");
    op.attr("qk_rope_head_dim", qk_rope_head_dim, between(1, 1 << 20)).doc("width of the rope part");
    op.dtype_attr("dst_dtype", dst_dtype, {bf16, f16, f32, f8_e4m3, f8_e5m2}).doc("element type of both outputs");
    op.out("cache_k_nope", cache_k_nope, dtype_of_attr("dst_dtype"), "T 1 kv_lora_rank | T kv_lora_rank")
        .judged(Judge::exact)
        .doc("latents");
    op.out("cache_k_rope", cache_k_rope, dtype_of_attr("dst_dtype"), "T 1 qk_rope_head_dim | T qk_rope_head_dim")
        .judged(Judge::exact)
        .doc("key parts after rope");
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
