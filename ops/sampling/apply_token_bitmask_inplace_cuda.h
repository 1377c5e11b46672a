#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// logits[b,v] = -infinity where bit v of row b of the bitmask is 0: the tokens that a grammar forbids.
/// Source: sgl-kernel `apply_token_bitmask_inplace_cuda`.
struct ApplyTokenBitmaskInplaceCuda {
  Tensor logits, bitmask, indices;

  static constexpr OpInfo info{"apply_token_bitmask_inplace_cuda", Category::sampling, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("logits, bitmask, indices");
    op.inout("logits", logits, {f32, f16, bf16}, "B V")
        .role(Role::logits)
        .doc("one row for each request; rows may be slices of wider ones");
    op.in("bitmask", bitmask, {i32}, "B W").doc("32 tokens a word, the first in the lowest bit; tokens from 32 W on are left as they are");
    op.in("indices", indices, {i32}, "N")
        .layout(Layout::contiguous)
        .role(Role::indices, "B")
        .on_request()
        .doc("the rows that are masked; without them all");
  }
};

}  // namespace dodona::ops
