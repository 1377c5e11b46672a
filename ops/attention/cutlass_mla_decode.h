#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Absorbed MLA decode, one query token per request, over a paged latent cache: with L = seq_lens[b] and c[j] | kpe[j] the row
/// kv_c_and_k_pe_cache[page_table[b, j / P], j mod P], out[b,h] = sum over j < L of p[j] * c[j],
/// p = softmax(sm_scale * (q_nope[b,h] . c[j] + q_pe[b,h] . kpe[j])).
/// Source: sgl-kernel `cutlass_mla_decode` (SM100).
struct CutlassMlaDecode {
  Tensor q_nope, q_pe, kv_c_and_k_pe_cache, seq_lens, page_table, workspace, out;
  double sm_scale = 1;
  std::int64_t num_kv_splits = 1;

  static constexpr OpInfo info{"cutlass_mla_decode", Category::attention, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("q_nope, q_pe, kv_c_and_k_pe_cache, seq_lens, page_table, workspace, sm_scale, num_kv_splits");
    op.in("q_nope", q_nope, {bf16, f16, f32}, "B N Dv").doc("absorbed queries; tokens and heads may be strided. f32 is this library's own");
    op.in("q_pe", q_pe, same_as("q_nope"), "B N Dr").doc("rotated queries; tokens and heads may be strided");
    op.in("kv_c_and_k_pe_cache", kv_c_and_k_pe_cache, same_as("q_nope"), "pages P Dv+Dr")
        .layout(Layout::contiguous)
        .doc("a token's row is its latent (512), then its rotated key part (64)");
    op.in("seq_lens", seq_lens, {i32}, "B").role(Role::lengths, "W*P+1").layout(Layout::contiguous).doc("tokens of each request");
    op.in("page_table", page_table, {i32}, "B W")
        .role(Role::page_table, "pages")
        .layout(Layout::contiguous)
        .doc("pages of each request in order; entries beyond its last page may be anything. W is a multiple of 128/P");
    op.in("workspace", workspace, {u8}, "workspace_bytes").optional().doc("upstream's scratch memory; neither needed nor touched here");
    op.attr("sm_scale", sm_scale).required().doc("positive; 0.1352337788608801 in DeepSeek-R1 (192^-0.5 times the YaRN correction)");
    op.attr("num_kv_splits", num_kv_splits, between(-2147483648.0, 256))
        .ignored()
        .doc("upstream's splits of a sequence; 0 or less: automatic");
    op.out("out", out, same_as("q_nope"), "B N Dv").doc("rounded once");
    op.symbol("B", {.minimum = 1, .maximum = 65536});
    op.symbol("N", {.maximum = 128});
    op.symbol("Dv", {.choices = {512}});
    op.symbol("Dr", {.choices = {64}});
    op.symbol("P", {.choices = {1, 2, 4, 8, 16, 32, 64, 128}});
    op.symbol("W", {.minimum = 1});
    op.rows_independent("B");
  }
};

}  // namespace dodona::ops
