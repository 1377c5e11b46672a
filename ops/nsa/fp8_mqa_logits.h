#pragma once

#include "ops/schemes/mqa_logits.h"

namespace dodona::ops {

/// logits[m, n] = kv_sf[n] * sum_h weights[m, h] * max(0, q[m, h] . kv[n]) for cu_seq_len_k_start[m] <= n < cu_seq_len_k_end[m]: the
/// indexer's scores of a prefill's tokens. Ends beyond the keys count as their number. Source: DeepGEMM `fp8_mqa_logits`, where kv and
/// kv_sf are a pair.
struct Fp8MqaLogits {
  Tensor q, kv, kv_sf, weights, cu_seq_len_k_start, cu_seq_len_k_end, logits;
  bool clean_logits = true;

  static constexpr OpInfo info{"fp8_mqa_logits", Category::nsa, Source::deep_gemm};
  void describe(auto& op) {
    op.in("q", q, {f8_e4m3}, "M H D").layout(Layout::contiguous).doc("queries of the indexer; their scales are part of the weights");
    op.in("kv", kv, {f8_e4m3}, "N D").layout(Layout::contiguous).doc("keys, the same for all heads");
    op.in("kv_sf", kv_sf, {f32}, "N").layout(Layout::contiguous).role(Role::scale).doc("scale of each key");
    op.in("weights", weights, {f32}, "M H").doc("of each query's heads; rows may be strided");
    op.in("cu_seq_len_k_start", cu_seq_len_k_start, {i32}, "M")
        .layout(Layout::contiguous)
        .role(Role::positions, "N")
        .may_stray()
        .doc("first key of each query");
    op.in("cu_seq_len_k_end", cu_seq_len_k_end, {i32}, "M")
        .layout(Layout::contiguous)
        .role(Role::positions, "N+1")
        .may_stray()
        .kin("the start, plus 1 and a choice of the keys behind it")
        .doc("behind the last key of each query");
    op.attr("clean_logits", clean_logits).doc("-inf in the columns that are not a query's, of which else nothing is said");
    op.out("logits", logits, {f32}, "M N").padded().doc("scores; rows may be strided");
    op.symbol("D", {.choices = {32, 64, 128}});
    op.symbol("H", {.multiple_of = 8, .minimum = 8});
    op.rows_independent("M");
  }
  MqaLogits call() const;
};

}  // namespace dodona::ops
