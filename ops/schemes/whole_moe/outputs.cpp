#include "ops/schemes/whole_moe/outputs.h"

#include <algorithm>

#include "ops/base/bounded.h"
#include "ops/schemes/whole_moe/rows.h"

namespace dodona::ops::whole_moe {

bool has_open_routes(const WholeMoe& moe) {
  return std::any_of(moe.routes.begin(), moe.routes.end(), [](const TokenExperts& route) { return route.open; });
}

void put_permutation(const WholeMoe& moe, Reference* reference) {
  if (!moe.result_of_pair.defined()) return;
  const GoldenOutput out(moe.result_of_pair, reference, "expanded_idx_to_permuted_idx");
  out.make_open();
  const bool open = has_open_routes(moe);
  for (std::int64_t pair = 0; pair < moe.result_of_pair.elements(); ++pair) out.put(pair, {-1.0, 0.0, open});
  std::int64_t place = 0;
  for (const Group& group : groups_of(moe)) {
    for (std::int64_t i = 0; i < group.rows(); ++i)
      out.put(group.pairs[static_cast<std::size_t>(i)], {static_cast<double>(place + i), 0.0, open});
    place += quant::align(group.rows(), moe.tile);
  }
}

void put_weights(const WholeMoe& moe, Reference* reference) {
  if (!moe.result_weights.defined()) return;
  const GoldenOutput out(moe.result_weights, reference, "expert_weights");
  out.make_open();
  for (std::int64_t pair = 0; pair < moe.result_weights.elements(); ++pair) {
    Bounded weight = weight_of(moe, pair).widened(flush_floor);
    weight.open = weight.open || moe.routes[static_cast<std::size_t>(pair / slots_of(moe))].open;
    out.put(pair, weight);
  }
}

}  // namespace dodona::ops::whole_moe
