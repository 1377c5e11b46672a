// DeepEP's low-latency mode: a row for each token and each expert that it chose, in room of the expert's own. Whatever is sent, this says
// where it lies; the order is left to atomics, and so is that of the ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "dodona/op.h"

namespace dodona::ops {

/// One dispatch, whatever is sent.
struct LowLatency {
  const Tensor &topk_idx, &count, &src_info, &layout_range;
  std::int64_t num_experts, tokens_of_rank;  ///< tokens_of_rank: room

  std::int64_t ranks() const { return topk_idx.size(0); }
  std::int64_t tokens() const { return topk_idx.size(1); }
  std::int64_t room() const { return ranks() * tokens_of_rank; }
};

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
