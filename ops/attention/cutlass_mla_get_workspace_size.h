#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Bytes of the workspace of cutlass_mla_decode: out = (4*512 + 4) * 128 * S * B, B = num_batches: an fp32 partial output and a
/// log-sum-exp for 128 heads in each of S splits. S = num_kv_splits if that is positive; else, with C multiprocessors,
/// S = ceil(tiles / ceil(tiles / min(tiles, max(1, floor(C / B))))), tiles = ceil(max_seq_len / 128).
/// Source: sgl-kernel `cutlass_mla_get_workspace_size` (CUTLASS `Sm100FmhaMlaKernelTmaWarpspecialized`).
struct CutlassMlaGetWorkspaceSize {
  std::int64_t max_seq_len = 0, num_batches = 0, sm_count = 0, num_kv_splits = 1;
  Tensor out;

  static constexpr OpInfo info{"cutlass_mla_get_workspace_size", Category::attention, Source::sgl_kernel};
  void describe(auto& op) {
    op.attr("max_seq_len", max_seq_len, between(1, 2147483520))
        .required()
        .doc("the longest sequence, in tokens; upstream counts in 32 bits");
    op.attr("num_batches", num_batches, between(1, 2147483647)).required().doc("requests");
    op.attr("sm_count", sm_count, between(-2147483648.0, 2147483647)).doc("multiprocessors; 0 or less: the 148 of a B200");
    op.attr("num_kv_splits", num_kv_splits, between(-2147483648.0, 2147483647))
        .doc("splits of a sequence; 0 or less: chosen by the formula");
    op.out("out", out, {i64}, "").doc("bytes");
  }
};

}  // namespace dodona::ops
