// `dodona layer` on several ranks.
#pragma once

#include "model/ranks/grid.h"
#include "model/run.h"

namespace dodona::tools {

struct ShardedOptions {
  bool json = false, against_whole = false;
  std::string output;
};

/// Runs the step on the ranks of the grid and shows what each of them has and did. Exit code 1 where --against-whole finds bits that differ
/// although none may.
int run_sharded_layer(const model::LayerRequest& request, const model::Grid& grid, const ShardedOptions& options, const std::string& step);

}  // namespace dodona::tools
