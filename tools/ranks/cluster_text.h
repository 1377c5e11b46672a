// --plan over the nodes of a cluster.
#pragma once

#include "model/ranks/cluster_plan.h"
#include "tools/common.h"

namespace dodona::tools {

struct ClusterOptions {
  std::vector<std::int64_t> nodes;
  model::NodeLimits limits;

  /// --nodes, and what one of them can do. `plan`: the option without which they say nothing.
  void add(CLI::App& command, CLI::Option* plan);
  bool given() const { return !nodes.empty(); }
};

/// For one number of nodes, step by step; for several a Markdown table. `grid` is the split that was asked for, if it is for more than one
/// rank: of as many as there are nodes. Throws Error as plan_cluster does, and bad_option for another number.
void show_cluster(const ClusterOptions& options, const model::LayerRequest& request, const model::Grid& grid, bool outer, bool json);

}  // namespace dodona::tools
