#pragma once

#include "core/define.h"
#include "ops/base/block_scales.h"

namespace dodona::ops {

using enum DType;

/// NVFP4 quantization: e2m1 codes in blocks of 16, an e4m3 scale for each, in any layout of scales; rows shuffled as trtllm-gen's products
/// take weights.
/// Source: FlashInfer `nvfp4_quantize`.
struct Nvfp4Quantize {
  Tensor a, a_global_sf, x_q, sf, per_token_scale;
  bool is_sf_swizzled_layout = true, is_sf_8x4_layout = false, do_shuffle = false, per_token_activation = false;
  std::string padding = "open";

  static constexpr OpInfo info{"nvfp4_quantize", Category::quantization, Source::flashinfer};
  void describe(auto& op) {
    op.in("a", a, {bf16, f16, f8_e4m3}, "M... K").layout(Layout::contiguous).doc("leading dimensions count as one, M");
    op.in("a_global_sf", a_global_sf, {f32}, "1 | ")
        .role(Role::scale)
        .scales("a", 0, 0)
        .doc(
            "encode scale, 448*6 / largest magnitude; with per_token_activation 1 / (448*6), say: what a row's largest magnitude is "
            "multiplied with");
    describe_scale_layout(op, *this);
    describe_padding(op, *this);
    op.attr("do_shuffle", do_shuffle)
        .doc("row p of each 32 is row (p mod 8)*4 + p/8 of a; M is a multiple of 32, scales lie in tiles of 128 x 4");
    op.attr("per_token_activation", per_token_activation)
        .recipe()
        .doc("each row has an encode scale of its own, the inverse of per_token_scale; of 16-bit numbers");
    op.out("x_q", x_q, {u8}, "M... K/2").layout(Layout::contiguous).judged(Judge::code).codes(f4_e2m1).doc("codes");
    op.out("sf", sf, {f8_e4m3}, scale_matrix("K/16")).layout(Layout::contiguous).judged(Judge::code).padded().doc("block scales");
    op.out("per_token_scale", per_token_scale, {f32}, "M")
        .when("per_token_activation")
        .layout(Layout::contiguous)
        .doc("what numbers of a row are multiplied with beside their block scales, in the order of the output's rows");
    op.symbol("K", {.multiple_of = 16});
  }
};

}  // namespace dodona::ops
