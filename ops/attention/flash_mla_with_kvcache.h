#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Absorbed MLA decode of the last Q tokens of each request over a paged latent cache: out[b,i,h] = sum of p[j] * c[j][0:512],
/// p = softmax(softmax_scale * (q[b,i,h] . c[j])), c[j] = k_cache[block_table[b, j / 64], j mod 64], over the keys j < cache_seqlens[b],
/// with `causal` those j < cache_seqlens[b] - Q + 1 + i. Of e4m3 queries and caches the scale is softmax_scale * descale_q * descale_k, and
/// out has the factor descale_k. Source: sgl-kernel `flash_mla_with_kvcache` (FlashMLA's dense kernels, SM90); its sparse one is
/// flash_mla_sparse_decode.
struct FlashMlaWithKvcache {
  Tensor q, k_cache, block_table, cache_seqlens, tile_scheduler_metadata, num_splits, descale_q, descale_k, out, softmax_lse;
  std::int64_t head_dim_v = 512;
  double softmax_scale = 0;
  bool causal = false, is_fp8_kvcache = false;

  static constexpr OpInfo info{"flash_mla_with_kvcache", Category::attention, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature(
        "q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata, num_splits, softmax_scale, causal, descale_q, "
        "descale_k, is_fp8_kvcache");
    op.in("q", q, {bf16, f16, f8_e4m3}, "B Q N 576").doc("[absorbed query | rotated part] of the last Q tokens");
    op.in("k_cache", k_cache, same_as("q"), "pages 64 1 576")
        .layout(Layout::contiguous)
        .doc("pages of 64 tokens; a token's row is its latent (512), then its rotated key part (64)");
    op.in("block_table", block_table, {i32}, "B W")
        .role(Role::page_table, "pages")
        .layout(Layout::contiguous)
        .doc("pages of each request in order; entries beyond its last page may be anything");
    op.in("cache_seqlens", cache_seqlens, {i32}, "B")
        .role(Role::positions, "W*64+1")
        .layout(Layout::contiguous)
        .doc("tokens of each request, the Q new ones included; 0 is allowed");
    op.attr("head_dim_v", head_dim_v, between(512, 512)).doc("width of the latent part: 512");
    op.in("tile_scheduler_metadata", tile_scheduler_metadata, {i32}, "parts 8")
        .kin("as get_mla_metadata makes it")
        .layout(Layout::contiguous)
        .doc("how the work is cut, see get_mla_metadata: part of the H200's bits");
    op.in("num_splits", num_splits, {i32}, "B+1")
        .kin("as get_mla_metadata makes it")
        .layout(Layout::contiguous)
        .doc("running sums of the requests' splits");
    op.attr("softmax_scale", softmax_scale, at_least(0.0)).doc("scale of the scores; 0: 576^-0.5");
    op.attr("causal", causal).doc("masks the tokens behind each query");
    op.in("descale_q", descale_q, {f32}, "1")
        .on_request()
        .role(Role::scale)
        .doc("of e4m3: what its numbers are multiplied with; 1 where not given");
    op.in("descale_k", descale_k, {f32}, "1").on_request().role(Role::scale).doc("likewise of k_cache");
    op.attr("is_fp8_kvcache", is_fp8_kvcache)
        .doc("true says nothing of e4m3 queries; with others it needs a list of slots, see flash_mla_sparse_decode");
    op.out("out", out, {bf16, f16}, "B Q N 512").doc("rounded once, to the type of q, of e4m3 to bf16");
    op.out("softmax_lse", softmax_lse, {f32}, "B N Q")
        .role(Role::lse_base_e)
        .layout(Layout::contiguous)
        .doc("natural logarithm of the sum of exp(softmax_scale * score); inf where a query sees no key");
    op.symbol("B", {.minimum = 1});
    op.symbol("Q", {.minimum = 1, .maximum = 1024});
    op.symbol("N", {.maximum = 1024});
    op.symbol("W", {.minimum = 1});
    op.symbol("parts", {.minimum = 1});
  }
};

}  // namespace dodona::ops
