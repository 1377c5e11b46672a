// What FlashInfer's planners for its fa2 kernels choose on an H200 or H100 of 132 multiprocessors: tiles and splits, and so the bits.
//
// Source: include/flashinfer/attention/scheduler.cuh (PrefillSplitQOKVIndptr, MLAPlan), utils.cuh (FA2DetermineCtaTileQ), and the choice of
// NUM_MMA_KV in attention/prefill.cuh.
#pragma once

#include <cstdint>
#include <vector>

namespace dodona::ops {

constexpr std::int64_t fa2_multiprocessors = 132;

/// Lengths of one request; queries times `heads` rows that share keys.
struct Fa2Request {
  std::int64_t queries, keys;
  std::int64_t window = -1;  ///< of prefill: keys before its position that a query sees, less than 0 for all
};

/// Of ragged prefill.
struct Fa2Prefill {
  std::int64_t tile_rows;      ///< rows of a block, heads of a query that share their keys one after the other
  std::int64_t key_warps;      ///< warps of a block that go through keys of their own, 1 or 4
  std::int64_t keys_of_warp;   ///< of a tile
  std::int64_t keys_of_split;  ///< longer ones are split; see `splits`
  bool splits;                 ///< whether any request is

  std::int64_t tile_keys() const { return key_warps * keys_of_warp; }
};
/// `group`: query heads of a key head; `fixed_split`: keys of a split, 0 for the planner's own choice.
Fa2Prefill fa2_prefill(const std::vector<Fa2Request>& requests, std::int64_t key_heads, std::int64_t group, std::int64_t key_width,
                       std::int64_t value_width, std::int64_t fixed_split);
/// Keys that a tile of so many rows needs, at most.
std::int64_t fa2_prefill_keys(std::int64_t tile_rows, const Fa2Request& request);

/// Of paged MLA.
struct Fa2Mla {
  std::int64_t tile_rows;      ///< 64 times the blocks that work on the same keys
  std::int64_t keys_of_split;  ///< longer ones are split
};
Fa2Mla fa2_mla(const std::vector<Fa2Request>& requests, std::int64_t heads, bool causal);

/// Keys that the rows of a tile of MLA need.
std::int64_t fa2_mla_keys(const Fa2Mla& plan, const Fa2Request& request, std::int64_t heads, std::int64_t tile, bool causal);

}  // namespace dodona::ops
