// DeepEP's normal mode: which tokens of which rank a rank receives. A token is sent to every rank that has one of its experts, once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dodona/tensor.h"

namespace dodona::ops {

/// topk_idx [R, T, topk] of E experts, of which rank d has those from d * E/R on.
struct RankTokens {
  std::int64_t ranks, tokens, local_experts;
  std::vector<std::uint8_t> goes;  ///< [R, T, R]: whether a rank's token goes to a rank

  bool to(std::int64_t token, std::int64_t rank) const { return goes[static_cast<std::size_t>(token * ranks + rank)] != 0; }
  /// What a rank receives: tokens, counted over all ranks, by the rank that sends them and in their order there.
  std::vector<std::int64_t> received_by(std::int64_t rank) const;
  /// Tokens that each rank receives from ranks 0 to r: [R, R], by r.
  std::vector<std::int32_t> prefixes() const;
};

RankTokens rank_tokens(const Tensor& topk_idx, std::int64_t num_experts);

/// Throws unless experts are as many on each rank, and ids -1 or one of them.
void require_rank_experts(const Tensor& topk_idx, std::int64_t num_experts);

}  // namespace dodona::ops
