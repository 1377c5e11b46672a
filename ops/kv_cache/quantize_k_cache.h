#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Rows of MLA's cache, bf16 [latent (512) | rotated part (64)], as 656 bytes each: the latent as e4m3 codes x / s[g], s[g] = max |x| / 448
/// over each 128 of them; the four scales in fp32; the rotated part as it is.
/// Source: SGLang `quantize_k_cache` (sparse attention's cache, its Triton kernel).
struct QuantizeKCache {
  Tensor cache_k, output;

  static constexpr OpInfo info{"quantize_k_cache", Category::kv_cache, Source::triton};
  void describe(auto& op) {
    op.in("cache_k", cache_k, {bf16}, "S... 576").doc("[blocks, block, 1, 576] or any leading dimensions; rows may be strided");
    op.out("output", output, {u8}, "S... 656")
        .judged(Judge::code)
        .doc("bytes, which upstream types as e4m3: 512 codes, 4 fp32 scales (little-endian), 64 bf16 elements");
    op.rows_independent("S");
  }
};

}  // namespace dodona::ops
