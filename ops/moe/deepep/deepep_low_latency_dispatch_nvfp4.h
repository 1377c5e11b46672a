#pragma once

#include "core/define.h"
#include "ops/schemes/low_latency.h"

namespace dodona::ops {

using enum DType;

/// deepep_low_latency_dispatch with rows quantized to e2m1 in blocks of 16, their e4m3 scales in the tiles that FP4 products read.
/// Source: DeepEP `Buffer.low_latency_dispatch(use_nvfp4=True)`, of the pull request that sglang's dispatcher is written for.
struct DeepepLowLatencyDispatchNvfp4 {
  Tensor x, x_global_scale, topk_idx, packed_recv_x, packed_recv_x_scales, packed_recv_count, packed_recv_src_info,
      packed_recv_layout_range;
  std::int64_t num_max_dispatch_tokens_per_rank = 0, num_experts = 0, spare_rows = 0;

  static constexpr OpInfo info{"deepep_low_latency_dispatch_nvfp4", Category::moe, Source::torch};
  void describe(auto& op) {
    op.in("x", x, {bf16}, "R T H").layout(Layout::contiguous).doc("tokens of each rank");
    describe_chosen_experts(op, *this);
    op.in("x_global_scale", x_global_scale, {f32}, "1 | ")
        .role(Role::scale)
        .scales("x", 0, 0)
        .doc("encode scale of all tokens, 448*6 / largest magnitude");
    describe_room(op, *this);
    op.out("packed_recv_x", packed_recv_x, {u8}, "num_experts R*num_max_dispatch_tokens_per_rank-spare_rows H/2")
        .layout(Layout::contiguous)
        .judged(Judge::code)
        .padded()
        .codes(f4_e2m1)
        .doc(
            "codes of each expert's rows, unspecified behind its count; upstream returns them as a view [rows, H/2, experts]. Here by rank "
            "and token: upstream leaves the order to atomics");
    op.out("packed_recv_x_scales", packed_recv_x_scales, {f8_e4m3},
           "num_experts align(R*num_max_dispatch_tokens_per_rank-spare_rows,128) align(H/16,4)")
        .layout(Layout::contiguous)
        .judged(Judge::code)
        .padded()
        .scales("packed_recv_x", 1, 16, ScaleOrder::swizzled_128x4)
        .by_expert()
        .doc("block scales, each expert in tiles of its own; upstream returns them as a view [32, 4, rows/128, 4, H/64, experts]");
    describe_sources(op, *this);
    op.symbol("H", {.multiple_of = 16});
    op.symbol("R", {.minimum = 1});
  }
};

}  // namespace dodona::ops
