// Texts continued by the ranks of a grid.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/generate_run.h"
#include "model/ranks/grid.h"

namespace dodona::model {

/// The requests of one rank: all of them, or of `grid.data` runs of them its own; draws are those that they have among all. Throws Error
/// (bad_option) naming --dp-attention for fewer requests than runs.
GenerateRequest request_of_rank(GenerateRequest request, const Grid& grid, std::int64_t rank);

/// What is told of a rank's generation; each may be empty.
struct RankHooks {
  std::function<void(const LayerTiming&)> layer = {};  ///< one is done
  std::function<void()> round = {};                    ///< all ranks are through with one
};
/// Takes a rank's generation to its end; all ranks call it. What every request got, those of other ranks among them, on every rank.
std::vector<std::vector<std::int64_t>> generate_with(Generation& generation, const Ranks& ranks, const RankHooks& hooks = {});

/// What one rank did.
struct RankWork {
  std::int64_t layers = 0;  ///< passes through one
  double arithmetic = 0;    ///< seconds of model ops
  double weight_bytes = 0;  ///< read by them
};
struct ShardedResult {
  std::vector<std::vector<std::int64_t>> texts;
  std::int64_t rounds = 0, accepted = 0;
  std::vector<RankWork> ranks;
};
/// The ranks of one process, one at a time: each opens its shard of the weights, streams its own layers and has their caches. Throws Error
/// as check_grid, Generation and request_of_rank do; std::logic_error when two ranks end with different texts.
ShardedResult generate_on_ranks(const GenerateCall& call, const Grid& grid);

}  // namespace dodona::model
