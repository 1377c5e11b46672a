// `dodona layer` on the ranks of a job.
#pragma once

#include <functional>

#include "sharded_layer.h"

namespace dodona::tools {

struct LayerOnRanks {
  model::LayerRequest request;
  model::Grid grid;
  ShardedOptions options;
  std::string step;
};

/// As run_sharded_layer, each rank in its own process; `ready` gives what is asked for, and rank 0 shows and writes. Errors on one rank end
/// all with exit code 2.
int run_layer_over_mpi(const std::function<LayerOnRanks()>& ready);

}  // namespace dodona::tools
