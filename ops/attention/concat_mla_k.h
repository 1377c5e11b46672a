#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// k[t,h] = [k_nope[t,h] | k_rope[t,0]]: the one rope part of a token goes behind every head.
/// Source: sgl-kernel `concat_mla_k`, FlashInfer `concat_mla_k`.
struct ConcatMlaK {
  Tensor k, k_nope, k_rope;

  static constexpr OpInfo info{"concat_mla_k", Category::attention, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("k, k_nope, k_rope");
    op.in("k_nope", k_nope, {bf16, f16, f8_e4m3, f8_e5m2}, "T Nh Dn")
        .aligned(16)
        .doc("heads may be a slice of wider ones, a multiple of 4 elements apart");
    op.in("k_rope", k_rope, same_as("k_nope"), "T 1 Dr").aligned(16).doc("shared by all heads");
    op.out("k", k, same_as("k_nope"), "T Nh Dn+Dr")
        .aligned(16)
        .judged(Judge::exact)
        .doc("heads may be strided, a multiple of 4 elements apart");
    op.symbol("Nh", {.choices = {128}});
    op.symbol("Dn", {.choices = {128}});
    op.symbol("Dr", {.choices = {64}});
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
