#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// kv_buffer[loc[t]] = [k_nope[t] | k_rope[t]]: stores the latents of new tokens in the slots of a paged MLA cache. Slot s is row s mod P
/// of page s / P, so a buffer [pages, P, D] is meant with its rows counted through.
/// Source: SGLang `set_mla_kv_buffer` (`set_mla_kv_buffer_triton`).
struct SetMlaKvBuffer {
  Tensor kv_buffer, loc, k_nope, k_rope;
  std::string slot_zero = "written";

  static constexpr OpInfo info{"set_mla_kv_buffer", Category::kv_cache, Source::triton};
  void describe(auto& op) {
    op.inout("kv_buffer", kv_buffer, {bf16, f16, f8_e4m3, f8_e5m2, f32}, "S... Dn+Dr")
        .judged(Judge::exact)
        .doc("[slots, D], [slots, 1, D] or [pages, P, D]; rows that loc does not name keep their bits");
    op.in("loc", loc, {i64, i32}, "T").role(Role::indices, "S").doc("slot of each token; of tokens that share one the last is stored");
    op.in("k_nope", k_nope, {bf16, f16, f8_e4m3, f8_e5m2, f32}, "T Dn | T 1 Dn").doc("latent after its norm; 512 wide in DeepSeek");
    op.in("k_rope", k_rope, same_as("k_nope"), "T Dr | T 1 Dr").doc("key part after rope; 64 wide; often a slice of wider rows");
    op.choice("slot_zero", slot_zero, {"written", "reserved"})
        .doc(
            "what becomes of tokens whose slot is 0: written: stored there as anywhere; reserved: dropped, for the slot is that of padded "
            "tokens (newer sglang)");
  }
};

}  // namespace dodona::ops
