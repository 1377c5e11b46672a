#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Rows of 656 bytes, as quantize_k_cache writes them, as bf16 [latent (512) | rotated part (64)]: code * s[g], and a copy.
/// Source: SGLang `dequantize_k_cache` (sparse attention's cache).
struct DequantizeKCache {
  Tensor quant_k_cache, output;

  static constexpr OpInfo info{"dequantize_k_cache", Category::kv_cache, Source::triton};
  void describe(auto& op) {
    op.in("quant_k_cache", quant_k_cache, {u8}, "S... 656")
        .kin("rows of codes, scales and rotated parts")
        .doc("bytes, which upstream types as e4m3: 512 codes, 4 fp32 scales (little-endian), 64 bf16 elements; rows may be strided");
    op.out("output", output, {bf16}, "S... 576").judged(Judge::exact).doc("rounded once");
    op.rows_independent("S");
  }
};

}  // namespace dodona::ops
