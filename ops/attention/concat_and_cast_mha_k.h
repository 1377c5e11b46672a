#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// k[t,h] = [k_nope[t,h] | k_rope[t,0]] in the type of k: the one rope part of a token goes behind every head.
/// Source: SGLang `concat_and_cast_mha_k` (`concat_and_cast_mha_k_triton`).
struct ConcatAndCastMhaK {
  Tensor k, k_nope, k_rope;
  DType dst_dtype = bf16;

  static constexpr OpInfo info{"concat_and_cast_mha_k", Category::attention, Source::triton};
  void describe(auto& op) {
    op.signature("k, k_nope, k_rope, dst_dtype");
    op.in("k_nope", k_nope, {bf16, f16, f32}, "T Nh Dn").doc("heads; tokens and heads may be strided");
    op.in("k_rope", k_rope, {bf16, f16, f32}, "T 1 Dr").doc("shared by all heads; of any of the types");
    op.dtype_attr("dst_dtype", dst_dtype, {bf16, f16, f8_e4m3, f8_e5m2, f32}).doc("element type of k");
    op.out("k", k, dtype_of_attr("dst_dtype"), "T Nh Dn+Dr").judged(Judge::exact).doc("tokens and heads may be strided");
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
