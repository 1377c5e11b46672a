#pragma once

#include "core/define.h"
#include "ops/schemes/low_latency.h"

namespace dodona::ops {

using enum DType;

/// Tokens of all ranks, sent to the experts that they chose: what every rank receives, rank by rank (expert e lives on rank e / (E / R)). A
/// row for each (token, expert), in room for num_max_dispatch_tokens_per_rank tokens of each rank.
/// Source: DeepEP `Buffer.low_latency_dispatch`.
struct DeepepLowLatencyDispatch {
  Tensor x, topk_idx, packed_recv_x, packed_recv_x_scales, packed_recv_count, packed_recv_src_info, packed_recv_layout_range;
  std::int64_t num_max_dispatch_tokens_per_rank = 0, num_experts = 0, spare_rows = 0;
  bool use_fp8 = true, round_scale = false, use_ue8m0 = false;

  static constexpr OpInfo info{"deepep_low_latency_dispatch", Category::moe, Source::torch};
  void describe(auto& op) {
    op.in("x", x, {bf16}, "R T H").layout(Layout::contiguous).doc("tokens of each rank");
    describe_chosen_experts(op, *this);
    describe_room(op, *this);
    op.attr("use_fp8", use_fp8).doc("rows are quantized to e4m3 in groups of 128, else sent as they are");
    op.attr("round_scale", round_scale).doc("scales are powers of two");
    op.attr("use_ue8m0", use_ue8m0).doc("scales are the exponents of those, four to a word; with round_scale");
    op.out("packed_recv_x", packed_recv_x, {bf16, f8_e4m3}, "num_experts R*num_max_dispatch_tokens_per_rank-spare_rows H")
        .layout(Layout::contiguous)
        .judged(Judge::code)
        .padded()
        .doc("rows of each expert, unspecified behind its count. Here by rank and token: upstream leaves the order to atomics");
    describe_sources(op, *this);
    op.out("packed_recv_x_scales", packed_recv_x_scales, {f32, i32},
           "num_experts R*num_max_dispatch_tokens_per_rank-spare_rows ceil(H/(128*(1+3*use_ue8m0)))")
        .layout(Layout::contiguous)
        .when("use_fp8")
        .padded()
        .codes(f8_e8m0)
        .scales("packed_recv_x", 1, 128)
        .doc("what a code's value is multiplied with, f32; with use_ue8m0 i32 words, the exponents of four groups in each");
    op.symbol("H", {.multiple_of = 128});
    op.symbol("R", {.minimum = 1});
  }

  std::int64_t ranks() const { return x.size(0); }
  std::int64_t tokens() const { return x.size(1); }
  std::int64_t room() const { return ranks() * num_max_dispatch_tokens_per_rank - spare_rows; }
};

}  // namespace dodona::ops
