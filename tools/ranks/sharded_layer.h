// `dodona layer` on several ranks.
#pragma once

#include "model/ranks/grid.h"
#include "model/run.h"

namespace dodona::tools {

struct ShardedOptions {
  bool json = false, against_whole = false;
  std::string output;
  std::int64_t runs = 1;  ///< on the ranks of a job; the fastest is shown
};

/// "heads 0 to 15, experts 64 to 127".
std::string part_text(const model::Grid& grid, const model::ModelConfig& config, std::int64_t rank);

/// Runs the step on the ranks of the grid and shows what each of them has and did. Exit code 1 where --against-whole finds bits that differ
/// although none may.
int run_sharded_layer(const model::LayerRequest& request, const model::Grid& grid, const ShardedOptions& options, const std::string& step);

}  // namespace dodona::tools
