// How a layer is dealt out to ranks.
#pragma once

#include <cstdint>
#include <string>

#include "model/config/config.h"
#include "model/weights/shard.h"

namespace dodona::model {

/// tensor * experts ranks: rank r has part r mod `tensor` of heads, intermediate columns and vocabulary, and part r / `tensor` of the
/// routed experts. What has one part is on every rank.
struct Grid {
  std::int64_t tensor = 1, experts = 1;

  std::int64_t ranks() const { return tensor * experts; }
  std::int64_t tensor_of(std::int64_t rank) const { return rank % tensor; }
  std::int64_t experts_of(std::int64_t rank) const { return rank / tensor; }
  Shard shard(std::int64_t rank) const;
};

/// Throws Error (bad_option) naming --tp or --ep for counts that the ops do not take, and bad_value for what does not divide.
void check_grid(const ModelConfig& config, const Grid& grid);

}  // namespace dodona::model
