#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Tokens grouped by expert, each group padded to whole blocks. An id e stands in slot e + 1, and -1, an expert of another rank, in slot 0:
/// num_experts counts slots, one more than the experts. With c[s] ids in slot s, begin[s] = sum of align(c, block_size) below s, and
/// total = begin[num_experts]:
///   sorted_token_ids[begin[s] .. begin[s] + c[s]) = the flat indices of its ids, in any order
///   the rest, with pad_sorted_token_ids: the number of ids (to the buffer's end); without it: left as it was
///   experts_ids[b] = s - 1 for the blocks b of slot s; behind total / block_size left as it was
/// Source: sgl-kernel `moe_align_block_size`.
struct MoeAlignBlockSize {
  Tensor topk_ids, sorted_token_ids, experts_ids, num_tokens_post_pad, cumsum_buffer;
  std::int64_t num_experts = 0, block_size = 0;
  bool pad_sorted_token_ids = false;

  static constexpr OpInfo info{"moe_align_block_size", Category::moe, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature(
        "topk_ids, num_experts, block_size, sorted_token_ids, experts_ids, num_tokens_post_pad, cumsum_buffer, pad_sorted_token_ids");
    op.in("topk_ids", topk_ids, {i32, i64, i8, u8}, "M topk")
        .layout(Layout::contiguous)
        .role(Role::expert_ids, "num_experts-1")
        .may_stray()
        .doc("experts chosen by each token, from -1 to num_experts - 2");
    op.attr("num_experts", num_experts, between(1, 8192)).required().doc("slots: one more than the experts, for slot 0 is that of id -1");
    op.attr("block_size", block_size, between(1, 1 << 16)).required().doc("rows of a block of the grouped product");
    op.attr("pad_sorted_token_ids", pad_sorted_token_ids).doc("whether what is no id becomes the number of ids");
    op.inout("sorted_token_ids", sorted_token_ids, {i32}, "S")
        .layout(Layout::contiguous)
        .judged(Judge::grouping)
        .padded()
        .doc("flat indices slot by slot; room for the total, M*topk + num_experts*(block_size-1) at most");
    op.inout("experts_ids", experts_ids, {i32}, "B").layout(Layout::contiguous).judged(Judge::exact).doc("expert of each block");
    op.out("num_tokens_post_pad", num_tokens_post_pad, {i32}, "1").layout(Layout::contiguous).doc("the total");
    op.inout("cumsum_buffer", cumsum_buffer, {i32}, "num_experts+1")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("where each slot's ids end, and the total; left as it is for less than 1024 ids of at most 64 slots");
  }

  /// Upstream's kernel of one block, whose order is not left to atomics.
  bool is_small() const { return topk_ids.elements() < 1024 && num_experts <= 64; }
};

}  // namespace dodona::ops
