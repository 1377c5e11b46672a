// Pairs of a token and one of its experts, sorted by expert in blocks: what moe_align_block_size makes and the MoE kernels of Triton read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/base/expert_rows.h"

namespace dodona::ops {

/// The arguments that say which pairs belong to which expert: i32, contiguous. Block b, of `block` ids from b * block on, is expert
/// expert_ids[b]'s; ids from `pairs` on are padding. Blocks from post_padded / block on say nothing.
struct SortedPairs {
  Tensor sorted_token_ids, expert_ids, num_tokens_post_padded;
  std::int64_t block = 1, pairs = 0, experts = 0;

  std::int64_t post_padded() const { return ints_of(num_tokens_post_padded)[0]; }
  std::int64_t blocks() const { return (post_padded() + block - 1) / block; }
};

/// Pairs of one expert, -1 for those whose expert is elsewhere.
struct ExpertPairs {
  std::int64_t expert = -1;
  std::vector<std::int64_t> pairs;
};

/// Experts in the order of their first block.
inline std::vector<ExpertPairs> pairs_by_expert(const SortedPairs& sorted) {
  std::vector<ExpertPairs> all;
  std::vector<std::size_t> place(static_cast<std::size_t>(sorted.experts + 1), ~std::size_t{0});
  const auto ids = ints_of(sorted.sorted_token_ids), experts = ints_of(sorted.expert_ids);
  for (std::int64_t b = 0; b < sorted.blocks(); ++b) {
    const std::int64_t expert = experts[static_cast<std::size_t>(b)];
    std::size_t& at = place[static_cast<std::size_t>(expert + 1)];
    for (std::int64_t i = b * sorted.block; i < (b + 1) * sorted.block; ++i) {
      const std::int64_t pair = ids[static_cast<std::size_t>(i)];
      if (pair >= sorted.pairs) continue;
      if (at == ~std::size_t{0}) at = all.size(), all.push_back({expert, {}});
      all[at].pairs.push_back(pair);
    }
  }
  return all;
}

/// Throws unless the blocks are there, name experts (-1 where `absent`) and hold each pair once at most.
inline void require_sorted_pairs(const SortedPairs& sorted, bool absent) {
  const auto ids = ints_of(sorted.sorted_token_ids), experts = ints_of(sorted.expert_ids);
  const std::int64_t post = sorted.post_padded();
  const std::int64_t room =
      std::min(static_cast<std::int64_t>(experts.size()), static_cast<std::int64_t>(ids.size()) / sorted.block) * sorted.block;
  if (post < 0 || post > room)
    bad_offset("num_tokens_post_padded", 0, post,
               "0 to " + std::to_string(room) + ": whole blocks of " + std::to_string(sorted.block) + " among " +
                   std::to_string(ids.size()) + " sorted_token_ids and " + std::to_string(experts.size()) + " expert_ids");
  std::vector<bool> seen(static_cast<std::size_t>(sorted.pairs), false);
  for (std::int64_t b = 0; b < sorted.blocks(); ++b) {
    const std::int64_t expert = experts[static_cast<std::size_t>(b)];
    if (expert < (absent ? -1 : 0) || expert >= sorted.experts)
      bad_offset("expert_ids", static_cast<std::size_t>(b), expert,
                 std::string(absent ? "-1 for experts elsewhere, or an id" : "an id") + " below the experts of B, " +
                     std::to_string(sorted.experts));
    for (std::int64_t i = b * sorted.block; i < (b + 1) * sorted.block; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (ids[at] < 0)
        bad_offset("sorted_token_ids", at, ids[at], "a pair of topk_ids, or a number of at least " + std::to_string(sorted.pairs));
      if (ids[at] >= sorted.pairs) continue;
      if (seen[static_cast<std::size_t>(ids[at])]) bad_offset("sorted_token_ids", at, ids[at], "each pair of topk_ids once");
      seen[static_cast<std::size_t>(ids[at])] = true;
    }
  }
}

/// Sorts pairs by `topk_ids`: experts rising from -1 (ids outside of the experts), pairs rising within each, each expert's padded to whole
/// blocks with the number of pairs, and so is what follows; expert_ids behind the last block are 0. With `absent` the blocks of every
/// expert e of which choice e below 8 is 0 are -1. Blocks for which there is no room are left out.
inline void make_sorted_pairs(const SortedPairs& sorted, std::span<const std::int32_t> topk_ids, bool absent, std::uint64_t seed) {
  const InputDraw elsewhere(seed, "expert_ids");
  const std::int64_t room_ids = sorted.sorted_token_ids.elements(), room_blocks = sorted.expert_ids.elements();
  auto *const ids = sorted.sorted_token_ids.as<std::int32_t>(), *const experts = sorted.expert_ids.as<std::int32_t>();
  std::fill_n(ids, room_ids, static_cast<std::int32_t>(sorted.pairs));
  std::fill_n(experts, room_blocks, 0);
  std::vector<std::vector<std::int32_t>> members(static_cast<std::size_t>(sorted.experts + 1));
  for (std::size_t i = 0; i < topk_ids.size(); ++i) {
    const bool here = topk_ids[i] >= 0 && topk_ids[i] < sorted.experts;
    members[here ? static_cast<std::size_t>(topk_ids[i] + 1) : 0].push_back(static_cast<std::int32_t>(i));
  }
  const std::int64_t room = std::min(room_blocks, room_ids / sorted.block);
  std::int64_t block = 0;
  for (std::size_t e = 0; e < members.size(); ++e) {
    const std::int64_t expert = static_cast<std::int64_t>(e) - 1;
    const bool here = expert < 0 || !absent || elsewhere.below(expert, 8) != 0;
    for (std::size_t first = 0; first < members[e].size() && block < room; first += static_cast<std::size_t>(sorted.block), ++block) {
      const std::size_t end = std::min(members[e].size(), first + static_cast<std::size_t>(sorted.block));
      std::copy(members[e].begin() + static_cast<std::ptrdiff_t>(first), members[e].begin() + static_cast<std::ptrdiff_t>(end),
                ids + block * sorted.block);
      experts[block] = static_cast<std::int32_t>(here ? expert : -1);
    }
  }
  sorted.num_tokens_post_padded.as<std::int32_t>()[0] = static_cast<std::int32_t>(block * sorted.block);
}

}  // namespace dodona::ops
