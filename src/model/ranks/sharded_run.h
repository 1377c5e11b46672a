// A layer whose shards are run by the ranks of one process.
#pragma once

#include <memory>
#include <vector>

#include "model/ranks/grid.h"
#include "model/run.h"

namespace dodona::model {

/// Each rank has its shard of the weights, the cache and the batch; its own makes it ready and runs it.
class ShardedRun {
 public:
  /// Throws Error as check_grid and LayerRun do.
  ShardedRun(const LayerRequest& request, const Grid& grid);

  const Grid& grid() const { return grid_; }
  /// Whether they are the bits of the layer on one rank: no sum of the ranks' is rounded on its way.
  bool has_bits_of_whole() const;
  LayerRun& rank(std::int64_t rank) { return *runs_[static_cast<std::size_t>(rank)]; }

  struct Result {
    LayerState output;                         ///< the same on every rank
    std::vector<LayerRun::Result> ranks = {};  ///< what each has run
  };
  /// `observer(rank)` sees that rank's ops; may be empty. Throws std::logic_error when two ranks end with different bits.
  Result run(const std::function<Observer(std::int64_t rank)>& observer = {});

 private:
  Grid grid_;
  std::vector<std::unique_ptr<LayerRun>> runs_;
};

/// The request of one rank of the grid.
LayerRequest request_of_rank(LayerRequest request, const Grid& grid, std::int64_t rank);

}  // namespace dodona::model
