#include "model/ranks/grid.h"

#include <utility>

#include "dodona/error.h"

namespace dodona::model {

Shard Grid::shard(std::int64_t rank) const {
  const Share columns{tensor_of(rank), tensor};
  return {.heads = columns, .experts = {experts_of(rank), experts}, .intermediate = columns, .vocabulary = columns};
}

std::string Grid::text() const {
  std::string text;
  const std::pair<const char*, std::int64_t> options[] = {
      {"--tp", tensor}, {"--ep", experts}, {"--pp", pipeline}, {"--dp-attention", data}};
  for (const auto& [option, value] : options)
    if (value > 1) text += (text.empty() ? "" : " ") + std::string(option) + " " + std::to_string(value);
  return text.empty() ? "--tp 1" : text;
}

Ranks groups_of(const Grid& grid, std::int64_t rank, RankGroup& tensor, RankGroup& experts, RankGroup& pipeline) {
  return {.tensor = grid.tensor > 1 ? &tensor : nullptr,
          .experts = grid.experts > 1 ? &experts : nullptr,
          .own_tokens = grid.data > 1,
          .pipeline = grid.pipeline > 1 ? &pipeline : nullptr,
          .stage = grid.stage(rank)};
}

void check_grid(const ModelConfig& config, const Grid& grid) {
  const auto fail = [](const char* option, std::int64_t value, const char* expected) {
    throw Error(ErrorCode::bad_option, "", option, "is " + std::to_string(value) + ", expected " + expected);
  };
  if (grid.tensor != 1 && grid.tensor != 2 && grid.tensor != 4 && grid.tensor != 6 && grid.tensor != 8)
    fail("--tp", grid.tensor, "1, 2, 4, 6 or 8, the groups that the custom all-reduce has");
  if (config.n_routed_experts == 0 && grid.experts != 1) fail("--ep", grid.experts, "1: the model has no routed experts");
  if (config.n_routed_experts > 0 && (grid.experts < 1 || grid.experts > config.n_routed_experts))
    fail("--ep", grid.experts, ("1 to " + std::to_string(config.n_routed_experts) + ", the routed experts").c_str());
  if (grid.pipeline < 1 || grid.pipeline > config.num_hidden_layers)
    fail("--pp", grid.pipeline, ("1 to " + std::to_string(config.num_hidden_layers) + ", the layers").c_str());
  if (grid.data != 1 && grid.data != grid.experts)
    fail("--dp-attention", grid.data, ((grid.experts > 1 ? "1 or " : "") + std::to_string(grid.experts) + ", as --ep has it").c_str());
  const auto divides = [&](const char* option, std::int64_t value, const Shard& shard) {
    try {
      sharded(config, shard);
    } catch (const Error& error) {
      throw Error(error.code(), "", option, "is " + std::to_string(value) + ", but " + error.message());
    }
  };
  Shard shard = grid.shard(grid.ranks() - 1);
  const Share experts = std::exchange(shard.experts, {});
  divides("--tp", grid.tensor, shard);
  divides("--ep", grid.experts, {.experts = experts});
}

}  // namespace dodona::model
