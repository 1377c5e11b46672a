#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Received tokens and their scales, a row for each expert of this rank that a token chose, those of an expert next to each other in whole
/// blocks of 128 rows: what permutes tokens for DeepGEMM's contiguous products.
/// Source: sglang `ep_moe/kernels.py`, `ep_scatter` (Triton).
struct EpScatter {
  Tensor recv_x, recv_x_scale, recv_topk, num_recv_tokens_per_expert, expert_start_loc, output_tensor, output_tensor_scale, m_indices,
      output_index;

  static constexpr OpInfo info{"ep_scatter", Category::moe, Source::triton};
  void describe(auto& op) {
    op.signature(
        "recv_x, recv_x_scale, recv_topk, num_recv_tokens_per_expert, expert_start_loc, output_tensor, output_tensor_scale, m_indices, "
        "output_index, scale_ue8m0=");
    op.in("recv_x", recv_x, {f8_e4m3, bf16}, "T H").layout(Layout::contiguous).doc("received tokens");
    op.in("recv_x_scale", recv_x_scale, {f32, i32}, "T Hs")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .doc("their scales, or words of exponents");
    op.in("recv_topk", recv_topk, {i64, i32}, "T topk")
        .layout(Layout::contiguous)
        .kin("a choice below E + 1, less 1; -1 where the token has it already or M has no block of 128 rows left for it")
        .doc("experts of this rank that each token chose; negative: of another");
    op.in("num_recv_tokens_per_expert", num_recv_tokens_per_expert, {i32}, "E")
        .layout(Layout::contiguous)
        .kin("rows of each expert, up to a multiple of 128")
        .doc("room of each expert: its rows, padded to a multiple of 128");
    op.out("expert_start_loc", expert_start_loc, {i32}, "E")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("where each expert's rows end: begins of experts, counted up row by row");
    op.out("output_tensor", output_tensor, same_as("recv_x"), "M H")
        .layout(Layout::contiguous)
        .padded()
        .given()
        .doc("rows sorted by expert; those of no token are unspecified. Here by token: upstream leaves the order to atomics");
    op.out("output_tensor_scale", output_tensor_scale, same_as("recv_x_scale"), "M Hs").layout(Layout::contiguous).padded().doc("theirs");
    op.out("m_indices", m_indices, {i32}, "M").layout(Layout::contiguous).padded().doc("expert of each row, padding included");
    op.out("output_index", output_index, same_as("recv_topk"), "T topk")
        .judged(Judge::top_k)
        .layout(Layout::contiguous)
        .padded()
        .doc("row of each slot; of slots of no expert here unspecified");
    op.symbol("E", {.minimum = 1});
    op.symbol("M", {.multiple_of = 128});
  }
};

}  // namespace dodona::ops
