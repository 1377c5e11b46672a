// What a pass of a model takes on the nodes of a cluster, from sizes and given limits: a simulation, nothing is run.
#pragma once

#include <string>
#include <vector>

#include "model/ranks/grid.h"
#include "model/run.h"

namespace dodona::model {

/// What a node can do at most; one rank on each.
struct NodeLimits {
  double read = 200;    ///< R: GB/s from memory
  double fma = 2000;    ///< F: GFLOP/s of fp32 multiply-adds
  double dot8 = 8000;   ///< V: GOP/s of 8-bit products
  double link = 25;     ///< L: GB/s into a node
  double latency = 10;  ///< M: microseconds that a collective takes however little it moves
};

/// A kind of work that a pass does `times` times on one rank: a model op of all its layers of a kind, or a collective.
struct ClusterStep {
  std::string name;
  std::int64_t times = 0;
  Work work = {};             ///< of all times
  double gathered_bytes = 0;  ///< of all ranks of the group, this one's among them
  double received_bytes = 0;  ///< from the others
  double seconds = 0;
  char binding = 'R';  ///< the limit that takes longest: R, F, V, L or M
};

/// One rank of a stage; its stage's others have the same, but for which experts are visited.
struct RankPlan {
  std::int64_t rank = 0;
  std::vector<ClusterStep> steps;
  double weight_bytes = 0;  ///< that it holds: of all its layers, with all experts of its share; embedding and head at the ends
  double cache_bytes = 0;
  double read_bytes = 0;  ///< of weights, by a pass
  std::int64_t collectives = 0;
  double gathered_bytes = 0, received_bytes = 0, seconds = 0;
};

struct ClusterPlan {
  std::vector<RankPlan> stages;  ///< the first rank of each
  double seconds = 0;            ///< of a pass through all stages
  double slowest = 0;            ///< of a stage: how often a pass ends where each stage is at work on a batch of its own
  std::int64_t tokens = 0;       ///< of a pass, of all ranks together
};

/// `request` is that of one layer, whose number does not count, of the requests of all ranks; with `grid.data` each rank has an equal part
/// of them (bad_option naming --dp-attention where they cannot be parted so). Routed experts are visited evenly and by as many rows as
/// there are. A step takes as long as the slowest of what it needs: memory, arithmetic, the link. `outer`: with embedding, norm and head,
/// as `dodona generate` has them, else the one layer alone.
ClusterPlan plan_cluster(const LayerRequest& request, const Grid& grid, const NodeLimits& limits, bool outer);

/// The split that is taken where none is said: experts over all nodes, and requests too where there are as many. Throws Error (bad_option)
/// naming the options that would say one; of a layer, which is not `outer`, there are no stages.
Grid grid_of_nodes(const ModelConfig& config, std::int64_t nodes, std::int64_t requests, bool outer);

}  // namespace dodona::model
