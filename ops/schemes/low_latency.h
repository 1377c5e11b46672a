// DeepEP's low-latency mode: a row for each token and each expert that it chose, in room of the expert's own. Whatever is sent, this says
// where it lies; the order is left to atomics, and so is that of the ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "core/define.h"

namespace dodona::ops {

/// One dispatch, whatever is sent.
struct LowLatency {
  const Tensor &topk_idx, &count, &src_info, &layout_range;
  std::int64_t num_experts, tokens_of_rank, spare_rows;

  std::int64_t ranks() const { return topk_idx.size(0); }
  std::int64_t tokens() const { return topk_idx.size(1); }
  std::int64_t room() const { return ranks() * tokens_of_rank - spare_rows; }
};

/// That of an op's fields.
template <class Op>
LowLatency low_latency_of(const Op& op) {
  return {op.topk_idx,
          op.packed_recv_count,
          op.packed_recv_src_info,
          op.packed_recv_layout_range,
          op.num_experts,
          op.num_max_dispatch_tokens_per_rank,
          op.spare_rows};
}

/// The arguments that say who goes where.
template <class Op>
void describe_chosen_experts(auto& op, Op& fields) {
  op.in("topk_idx", fields.topk_idx, {DType::i64}, "R T topk")
      .layout(Layout::contiguous)
      .role(Role::expert_ids, "num_experts")
      .may_stray()
      .doc("experts chosen by each token, -1 for none; an expert that is named twice receives two rows");
}
template <class Op>
void describe_room(auto& op, Op& fields) {
  op.attr("num_max_dispatch_tokens_per_rank", fields.num_max_dispatch_tokens_per_rank, between(1, 1024)).required().doc("room: at least T");
  op.attr("spare_rows", fields.spare_rows, between(0, 1 << 20))
      .doc("rows of each expert's room that callers do without: no expert may need them");
  op.attr("num_experts", fields.num_experts, between(1, 4096)).required().doc("experts E of all ranks, a multiple of R");
}
/// The outputs that say where each row came from.
template <class Op>
void describe_sources(auto& op, Op& fields) {
  op.out("packed_recv_count", fields.packed_recv_count, {DType::i32}, "num_experts")
      .layout(Layout::contiguous)
      .judged(Judge::exact)
      .doc("rows of each expert");
  op.out("packed_recv_src_info", fields.packed_recv_src_info, {DType::i32}, "num_experts R*num_max_dispatch_tokens_per_rank-spare_rows")
      .judged(Judge::top_k)
      .layout(Layout::contiguous)
      .padded()
      .doc("token of each row on the rank that it came from");
  op.out("packed_recv_layout_range", fields.packed_recv_layout_range, {DType::i64}, "num_experts R")
      .judged(Judge::top_k)
      .layout(Layout::contiguous)
      .doc("rows of each expert from each rank: their number in the low 32 bits, where they begin above");
}

/// Which token (counted over all ranks) each row of each expert holds, -1 for none, and the ranges of the ranks' rows.
struct DealtRows {
  std::vector<std::int64_t> token;
  std::vector<std::int64_t> begin, count;  ///< by expert and rank
};

/// By rank, and of a rank by token.
DealtRows dealt_rows(const LowLatency& call);
/// The rows that actual outputs name, if they are the right ones in an order of their own.
bool rows_as_dealt(const LowLatency& actual, DealtRows& rows);

/// Writes the counts, the ranges and the rows' tokens.
void place_sources(const LowLatency& call, const DealtRows& rows);
/// What is known of these.
void record_sources(const LowLatency& call, const DealtRows& rows, Reference& reference);

/// Throws unless experts are as many on each rank, and tokens have room.
void require_ranks(const LowLatency& call);
/// Throws unless ids are -1 or an expert's that has room for them.
void require_room(const LowLatency& call);

}  // namespace dodona::ops
