#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// The projection of a few tokens to the latents of attention: output = mat_a mat_b. Columns 0..1535 are the query's latent, 1536..2047 the
/// key-value latent, 2048..2111 the key's rotary part.
/// Source: sgl-kernel `dsv3_fused_a_gemm`.
struct Dsv3FusedAGemm {
  Tensor mat_a, mat_b, output;

  static constexpr OpInfo info{"dsv3_fused_a_gemm", Category::gemm, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("mat_a, mat_b, output");
    op.in("mat_a", mat_a, {bf16}, "T 7168").layout(Layout::contiguous).doc("one row per token, 1 to 16 of them");
    op.in("mat_b", mat_b, {bf16}, "7168 2112").layout(Layout::column_major).doc("the transposed weight, [2112, 7168] in memory");
    op.out("output", output, {bf16}, "T 2112").layout(Layout::contiguous).doc("rounded once");
    op.symbol("T", {.minimum = 1, .maximum = 16});
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
