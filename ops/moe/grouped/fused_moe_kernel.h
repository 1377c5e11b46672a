#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Products of tokens with the weights of their experts, in blocks of pairs of a token and an expert: for pair p = token * topk + slot of
/// expert e, C[p,n] = round(weight * (scales * sum over k of A[p / top_k, k] B[e, n, k] + bias[e, n])). The quantization modes are those
/// of upstream's flags.
/// Source: sglang `fused_moe_kernel` and `fused_moe_kernel_gptq_awq` (Triton), as `invoke_fused_moe_kernel` calls them; A is what the
/// kernels read, already quantized.
struct FusedMoeKernel {
  Tensor A, B, bias, C, A_scale, B_scale, B_zp, topk_weights, topk_ids, sorted_token_ids, expert_ids, num_tokens_post_padded;
  bool mul_routed_weight = false;
  std::int64_t top_k = 1;
  std::int64_t block_size_m = 16, block_size_n = 64, block_size_k = 64;
  bool swap_ab = false;
  DType compute_type = bf16;
  bool use_fp8_w8a8 = false, use_int8_w8a8 = false, use_int8_w8a16 = false, use_int4_w4a16 = false, per_channel_quant = false;
  std::int64_t block_n = 0, block_k = 0;
  bool filter_expert = true;

  static constexpr OpInfo info{"fused_moe_kernel", Category::moe, Source::triton};
  void describe(auto& op) {
    op.signature(
        "A, B, bias, C, A_scale, B_scale, B_zp, topk_weights, topk_ids, sorted_token_ids, expert_ids, num_tokens_post_padded, "
        "mul_routed_weight, top_k, BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K, swap_ab, compute_type, use_fp8_w8a8, use_int8_w8a8, "
        "use_int8_w8a16, use_int4_w4a16, per_channel_quant, block_shape_0, block_shape_1, filter_expert");
    op.in("A", A, {bf16, f16, f8_e4m3, i8}, "M*topk/top_k K")
        .layout(Layout::any)
        .doc("tokens (top_k > 1), or one row for each pair (top_k = 1); strides as upstream passes them, here and for weights and scales");
    op.in("B", B, {bf16, f16, f8_e4m3, i8, u8}, "E N K/(1+use_int4_w4a16)")
        .layout(Layout::any)
        .doc(
            "weights of each expert, K numbers a row: of A's type, i8 for int8 modes, u8 with block_shape: K codes, or K/2 bytes of two, "
            "the first in the low nibble");
    op.in("bias", bias, {f32, bf16, f16}, "E N").layout(Layout::any).on_request().doc("added before the routed weight");
    op.in("A_scale", A_scale, {f32}, "Sa Ka | Sa")
        .layout(Layout::any)
        .role(Role::scale)
        .optional()
        .doc(
            "per tensor [1] or [1, 1]; per channel [rows of A, 1]; of blocks [rows of A, ceil(K / block_shape_1)]; none where A is not "
            "quantized");
    op.in("B_scale", B_scale, {f32, bf16, f16}, "E Sn Kg | E Sn | E")
        .layout(Layout::any)
        .role(Role::scale)
        .optional()
        .doc(
            "per tensor [E] or [E, 1, 1]; per channel [E, N] or [E, N, 1]; of blocks [E, ceil(N / block_shape_0), ceil(K / "
            "block_shape_1)]; of groups "
            "[E, N, K / block_shape_1]; f32 but for groups");
    op.in("B_zp", B_zp, {u8}, "E Zn Kz")
        .layout(Layout::any)
        .on_request()
        .doc(
            "zero points of groups: [E, N, K / block_shape_1], or of 4 bits [E, N/2, K / block_shape_1] with the even n in the low nibble; "
            "without them 128, or 8");
    op.in("topk_weights", topk_weights, {f32}, "M topk").layout(Layout::contiguous).doc("factor of each pair, with mul_routed_weight");
    op.in("topk_ids", topk_ids, {i32}, "M topk")
        .layout(Layout::contiguous)
        .role(Role::expert_ids, "E")
        .may_stray()
        .doc("experts of each token: the kernel reads their number only");
    op.in("sorted_token_ids", sorted_token_ids, {i32}, "EM")
        .layout(Layout::contiguous)
        .kin(
            "as moe_align_block_size sorts topk_ids: experts rising from those elsewhere (-1), pairs rising, as many whole blocks of "
            "BLOCK_SIZE_M as there is "
            "room for; the rest M*topk")
        .doc("pairs in blocks of BLOCK_SIZE_M, each of one expert; M*topk and above: padding");
    op.in("expert_ids", expert_ids, {i32}, "NB")
        .layout(Layout::contiguous)
        .kin("of each block, -1 for every expert of which a choice below 8 is 0 where filter_expert; 0 behind the last block")
        .doc("expert of each block; -1: its weights are elsewhere, and its rows of C become 0");
    op.in("num_tokens_post_padded", num_tokens_post_padded, {i32}, "1")
        .layout(Layout::contiguous)
        .kin("BLOCK_SIZE_M for each block")
        .doc("sorted_token_ids that blocks cover; what follows is not read");
    op.attr("mul_routed_weight", mul_routed_weight).doc("multiply with topk_weights, before the rounding");
    op.attr("top_k", top_k, between(1, 1 << 20)).doc("pairs that share a row of A: topk in the first GEMM, 1 in the second");
    op.attr("BLOCK_SIZE_M", block_size_m, between(1, 1 << 12)).recipe().doc("pairs of a block; fp8: below 64 the units for 16 bits add");
    op.attr("BLOCK_SIZE_N", block_size_n, between(1, 1 << 12))
        .recipe()
        .doc("columns of a tile; above block_shape_0 hopper mode multiplies with one scale after the other");
    op.attr("BLOCK_SIZE_K", block_size_k, between(1, 1 << 12))
        .recipe()
        .doc("numbers of K of a tile: where int8 sums and sums of blocks meet fp32");
    op.attr("swap_ab", swap_ab)
        .recipe()
        .doc("fp8: the transposed tiles are multiplied, so that BLOCK_SIZE_N of 64 and more does as BLOCK_SIZE_M");
    op.dtype_attr("compute_type", compute_type, {bf16, f16}).doc("element type of C, and of weights of 16-bit modes once they are widened");
    op.attr("use_fp8_w8a8", use_fp8_w8a8)
        .doc("A and B are fp8: per tensor, with per_channel_quant per channel, with block_shape of blocks");
    op.attr("use_int8_w8a8", use_int8_w8a8).doc("A and B are int8: with per_channel_quant per channel, with block_shape of blocks");
    op.attr("use_int8_w8a16", use_int8_w8a16).doc("B is int8: per channel, with block_shape_1 u8 of groups");
    op.attr("use_int4_w4a16", use_int4_w4a16).doc("B is u8 of two codes, of groups");
    op.attr("per_channel_quant", per_channel_quant).doc("a scale for each row of A and each n");
    op.attr("block_shape_0", block_n, between(0, 1 << 20)).doc("rows n that share a scale; 0: none, or each its own");
    op.attr("block_shape_1", block_k, between(0, 1 << 20)).doc("numbers of K that share a scale; 0: all");
    op.attr("filter_expert", filter_expert).doc("expert_ids may be -1");
    op.out("C", C, dtype_of_attr("compute_type"), "M topk N")
        .layout(Layout::contiguous)
        .padded()
        .doc("rounded once; rows of pairs that no block holds are unspecified");
    op.symbol("K", {.multiple_of = 8});
    op.symbol("E", {.minimum = 1});
  }
};

}  // namespace dodona::ops
