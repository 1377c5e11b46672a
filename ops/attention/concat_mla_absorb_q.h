#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// out[x,n] = [a[x,n] | b[x,n]]: the absorbed query in the latent space, then its rope part.
/// Source: sgl-kernel `concat_mla_absorb_q`.
struct ConcatMlaAbsorbQ {
  Tensor a, b, out;

  static constexpr OpInfo info{"concat_mla_absorb_q", Category::attention, Source::sgl_kernel};
  void describe(auto& op) {
    op.in("a", a, {bf16}, "X N Da").aligned(16).doc("latent part; often a transposed view of a batched product");
    op.in("b", b, same_as("a"), "X N Db").aligned(16).doc("rope part; often a slice of wider heads");
    op.out("out", out, same_as("a"), "X N Da+Db")
        .aligned(16)
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("512 latent elements, then 64 of rope");
    op.symbol("Da", {.choices = {512}});
    op.symbol("Db", {.choices = {64}});
    op.rows_independent("X");
  }
};

}  // namespace dodona::ops
