#include "model/ranks/grid.h"

#include "dodona/error.h"

namespace dodona::model {

Shard Grid::shard(std::int64_t rank) const {
  const Share columns{tensor_of(rank), tensor};
  return {.heads = columns, .experts = {experts_of(rank), experts}, .intermediate = columns, .vocabulary = columns};
}

void check_grid(const ModelConfig& config, const Grid& grid) {
  const auto fail = [](const char* option, std::int64_t value, const char* expected) {
    throw Error(ErrorCode::bad_option, "", option, "is " + std::to_string(value) + ", expected " + expected);
  };
  if (grid.tensor != 1 && grid.tensor != 2 && grid.tensor != 4 && grid.tensor != 6 && grid.tensor != 8)
    fail("--tp", grid.tensor, "1, 2, 4, 6 or 8, the groups that the custom all-reduce has");
  if (grid.experts < 1 || grid.experts > config.n_routed_experts)
    fail("--ep", grid.experts, ("1 to " + std::to_string(config.n_routed_experts) + ", the routed experts").c_str());
  sharded(config, grid.shard(grid.ranks() - 1));
}

}  // namespace dodona::model
