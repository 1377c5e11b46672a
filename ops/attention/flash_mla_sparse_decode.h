#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Absorbed MLA decode of each query token to the slots of an fp8 latent cache that its list names: out[b,i,h] = sum of p[j] * c[j][0:512],
/// p = softmax(softmax_scale * (q[b,i,h] . c[j])), c[j] = the row of 656 bytes at slot indices[b,i,j] (page times 64 and the token in it),
/// over the j whose number is a slot. There is no other mask: neither block tables nor lengths enter.
/// Source: sgl-kernel `flash_mla_with_kvcache` with `is_fp8_kvcache` and `indices` (FlashMLA's sparse decode, SM90).
struct FlashMlaSparseDecode {
  Tensor q, k_cache, indices, tile_scheduler_metadata, num_splits, out, softmax_lse;
  std::int64_t head_dim_v = 512;
  double softmax_scale = 0;

  static constexpr OpInfo info{"flash_mla_sparse_decode", Category::attention, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("q, k_cache, indices, tile_scheduler_metadata, num_splits, head_dim_v, softmax_scale");
    op.in("q", q, {bf16}, "B Q N 576").doc("[absorbed query | rotated part]");
    op.in("k_cache", k_cache, {u8, f8_e4m3}, "pages 64 1 656")
        .kin("rows of codes, scales and rotated parts")
        .layout(Layout::contiguous)
        .doc("bytes of a token: 512 codes of e4m3, 4 fp32 scales (little-endian), 64 bf16 elements, as quantize_k_cache writes them");
    op.in("indices", indices, {i32}, "B Q topk")
        .kin("slots, some absent")
        .doc("slots of the cache, each as often as one likes; -1 and numbers that are none are absent");
    op.in("tile_scheduler_metadata", tile_scheduler_metadata, {i32}, "parts 8")
        .kin("as get_mla_metadata makes it")
        .layout(Layout::contiguous)
        .doc("how the work is cut, see get_mla_metadata: part of the H200's bits");
    op.in("num_splits", num_splits, {i32}, "B+1")
        .kin("as get_mla_metadata makes it")
        .layout(Layout::contiguous)
        .doc("running sums of the requests' splits");
    op.attr("head_dim_v", head_dim_v, between(512, 512)).doc("width of the latent part: 512");
    op.attr("softmax_scale", softmax_scale, at_least(0.0)).doc("scale of the scores; 0: 576^-0.5");
    op.out("out", out, {bf16}, "B Q N 512").doc("rounded once");
    op.out("softmax_lse", softmax_lse, {f32}, "B N Q")
        .role(Role::lse_base_e)
        .layout(Layout::contiguous)
        .doc("natural logarithm of the sum of exp(softmax_scale * score); inf where a query names no slot");
    op.symbol("B", {.minimum = 1});
    op.symbol("Q", {.minimum = 1, .maximum = 1024});
    op.symbol("N", {.maximum = 1024});
    op.symbol("topk", {.multiple_of = 64, .minimum = 64});
    op.symbol("parts", {.minimum = 1});
  }
};

}  // namespace dodona::ops
