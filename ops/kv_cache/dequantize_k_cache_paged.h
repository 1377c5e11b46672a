#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// output[i] = the row page_table_1_flattened[i] of a cache of 656-byte rows, as dequantize_k_cache has it.
/// Source: SGLang `dequantize_k_cache_paged` (sparse attention's prefill).
struct DequantizeKCachePaged {
  Tensor quant_k_cache, page_table_1_flattened, output;

  static constexpr OpInfo info{"dequantize_k_cache_paged", Category::kv_cache, Source::triton};
  void describe(auto& op) {
    op.in("quant_k_cache", quant_k_cache, {u8}, "S... 656")
        .kin("rows of codes, scales and rotated parts")
        .doc(
            "bytes: 512 codes, 4 fp32 scales (little-endian), 64 bf16 elements; [slots, 1, 656] or any leading dimensions, counted "
            "through");
    op.in("page_table_1_flattened", page_table_1_flattened, {i32, i64}, "n")
        .role(Role::positions, "S")
        .doc("slots, each as often as one likes");
    op.out("output", output, {bf16}, "n 1 576 | n 576").judged(Judge::exact).doc("rounded once");
    op.rows_independent("n");
  }
};

}  // namespace dodona::ops
