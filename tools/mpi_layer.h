// `dodona layer` on the ranks of a job.
#pragma once

#include "sharded_layer.h"

namespace dodona::tools {

/// As run_sharded_layer, each rank in its own process; rank 0 shows and writes. Errors on one rank end all with exit code 2.
int run_layer_over_mpi(const model::LayerRequest& request, const model::Grid& grid, const ShardedOptions& options, const std::string& step);

}  // namespace dodona::tools
