#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Absorbed MLA attention of each token to the rows of kv that its list names: out[t,h] = sum of p[i] * c[i][0:512],
/// p = softmax(sm_scale * (q[t,h] . c[i])), c[i] = kv[indices[t,0,i]], over the i whose number lies within kv. There is no other mask.
/// Source: sgl-kernel `flash_mla_sparse_fwd` (FlashMLA's sparse prefill, SM90).
struct FlashMlaSparseFwd {
  Tensor q, kv, indices, out, max_logits, lse;
  double sm_scale = 0;
  std::int64_t d_v = 512;
  std::string logarithms = "base_2";

  static constexpr OpInfo info{"flash_mla_sparse_fwd", Category::attention, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("q, kv, indices, sm_scale, d_v");
    op.in("q", q, {bf16}, "T N 576").doc("[absorbed query | rotated part]");
    op.in("kv", kv, {bf16}, "S 1 576").doc("a token's row is its latent (512), then its rotated key part (64); rows may be strided");
    op.in("indices", indices, {i32}, "T 1 topk")
        .kin("rows of kv, some absent")
        .doc("rows of kv, each as often as one likes; numbers below 0 and from S on are absent");
    op.attr("sm_scale", sm_scale, at_least(0.0)).required().doc("scale of the scores, positive");
    op.attr("d_v", d_v, between(512, 512)).doc("width of the values: 512");
    op.choice("logarithms", logarithms, {"base_2", "natural"})
        .doc(
            "of lse and max_logits: base_2 as sgl-kernel 0.3.21 gives them; natural as later versions of FlashMLA do, with lse = inf "
            "where a token names no row");
    op.out("out", out, {bf16}, "T N 512").doc("rounded once");
    op.out("max_logits", max_logits, {f32}, "T N")
        .layout(Layout::contiguous)
        .doc(
            "log2(e) * sm_scale * the largest score, with natural logarithms sm_scale * the largest score; -inf where a token names no "
            "row");
    op.out("lse", lse, {f32}, "T N")
        .role(Role::lse_base_2)
        .layout(Layout::contiguous)
        .doc("log2, or the natural logarithm, of the sum of exp(sm_scale * score); -inf or inf where a token names no row");
    op.symbol("N", {.maximum = 1024});
    op.symbol("topk", {.multiple_of = 128, .minimum = 128});
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
