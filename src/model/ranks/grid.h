// How a layer is dealt out to ranks.
#pragma once

#include <cstdint>
#include <string>

#include "model/config/config.h"
#include "model/layer/ranks.h"
#include "model/weights/shard.h"

namespace dodona::model {

/// tensor * experts * pipeline ranks: rank r has part r mod `tensor` of heads, intermediate columns and vocabulary, of the others part
/// r / `tensor` mod `experts` of the routed experts, and stage r / (tensor * experts) of the layers. What has one part is on every rank.
struct Grid {
  std::int64_t tensor = 1, experts = 1, pipeline = 1;
  std::int64_t data = 1;  ///< 1, or `experts`: those ranks have requests of their own

  std::int64_t ranks() const { return tensor * experts * pipeline; }
  std::int64_t tensor_of(std::int64_t rank) const { return rank % tensor; }
  std::int64_t experts_of(std::int64_t rank) const { return rank / tensor % experts; }
  std::int64_t stage_of(std::int64_t rank) const { return rank / (tensor * experts); }
  Shard shard(std::int64_t rank) const;
  Share stage(std::int64_t rank) const { return {stage_of(rank), pipeline}; }
  /// "--tp 2 --ep 4", what has one part left out.
  std::string text() const;

  /// Which ranks are in a group with this one: those with the same number.
  std::int64_t tensor_group(std::int64_t rank) const { return rank / tensor; }
  std::int64_t experts_group(std::int64_t rank) const { return stage_of(rank) * tensor + tensor_of(rank); }
  std::int64_t pipeline_group(std::int64_t rank) const { return rank % (tensor * experts); }
};

/// What a rank is told of its groups: nothing of those that have one rank.
Ranks groups_of(const Grid& grid, std::int64_t rank, RankGroup& tensor, RankGroup& experts, RankGroup& pipeline);

/// Throws Error (bad_option) naming the option for counts that the ops do not take, and bad_value for what does not divide.
void check_grid(const ModelConfig& config, const Grid& grid);

}  // namespace dodona::model
