#include "model/ranks/sharded_run.h"

#include <stdexcept>
#include <string>

#include "model/layer/ranks.h"
#include "model/ranks/turns.h"

namespace dodona::model {

LayerRequest request_of_rank(LayerRequest request, const Grid& grid, std::int64_t rank) {
  request.shard = grid.shard(rank);
  return request;
}

ShardedRun::ShardedRun(const LayerRequest& request, const Grid& grid) : grid_(grid) {
  check_grid(request.config, grid);
  for (std::int64_t rank = 0; rank < grid.ranks(); ++rank)
    runs_.push_back(std::make_unique<LayerRun>(request_of_rank(request, grid, rank)));
}

bool ShardedRun::has_bits_of_whole() const {
  const LayerWeights& weights = runs_.front()->weights();
  return grid_.tensor == 1 && (grid_.experts == 1 || !weights.is_moe() || !sums_by_rank(weights.backend(), weights.setting()));
}

ShardedRun::Result ShardedRun::run(const std::function<Observer(std::int64_t)>& observer) {
  Result result;
  result.ranks.resize(runs_.size());
  take_turns(grid_, [&](std::int64_t rank, const Ranks& ranks) {
    const auto at = static_cast<std::size_t>(rank);
    result.ranks[at] = runs_[at]->run(observer ? observer(rank) : Observer(), nullptr, ranks);
  });
  result.output = result.ranks.front().output;
  const std::string digest = digest_of(result.output);
  for (std::size_t rank = 1; rank < result.ranks.size(); ++rank)
    if (digest_of(result.ranks[rank].output) != digest)
      throw std::logic_error("ranks 0 and " + std::to_string(rank) + " of a sharded layer end with different bits");
  return result;
}

}  // namespace dodona::model
