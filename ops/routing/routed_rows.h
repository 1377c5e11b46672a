// Routers in golden mode: the experts of each row with their weights, and the judging of other choices that the contract leaves open.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/routing/order.h"

namespace dodona::ops {

/// One row in golden mode.
struct RoutedRow {
  std::vector<std::int64_t> experts;  ///< in order of choice
  std::vector<std::int64_t> ids;      ///< of all columns: the experts', and what a router appends
  std::vector<Bounded> weights;       ///< of the columns
};

/// Writes one row. `unspecified`: the contract says nothing of it.
inline void put_route(const GoldenOutput& weights, const GoldenOutput& ids, std::int64_t t, const RoutedRow& row, bool unspecified) {
  const auto columns = static_cast<std::int64_t>(row.ids.size());
  for (std::int64_t k = 0; k < columns; ++k) {
    const auto at = static_cast<std::size_t>(k);
    // Some slack: without any, weights with golden mode's bits would pass whatever the ids are.
    Bounded weight = row.weights[at].widened(flush_floor);
    weight.open = weight.open || unspecified;
    weights.put(t * columns + k, weight);
    ids.put(t * columns + k, {static_cast<double>(row.ids[at]), 0.0, unspecified});
  }
}

/// Golden mode of a router, which has rows(), row_cost() and row(t); a row has unspecified(), choose(), allows(experts) and route(experts).
template <class Router>
void golden_routes(const Router& router, const Tensor& topk_weights, const Tensor& topk_ids, const Exec& exec, Reference* reference) {
  const GoldenOutput weights(topk_weights, reference, "topk_weights"), ids(topk_ids, reference, "topk_ids");
  weights.make_open();
  ids.make_open();
  parallel_for(exec.threads, router.rows(), router.row_cost(), [&](std::int64_t t) {
    const auto row = router.row(t);
    put_route(weights, ids, t, row.route(row.choose()), row.unspecified());
  });
}

/// Where the actual ids are another choice that the row allows, the reference becomes that choice with its weights.
template <class Router>
void condition_routes(const Router& router, const Tensor& topk_weights, const Tensor& topk_ids, const Exec& exec, Reference& reference) {
  // Records are rewritten, the actual outputs are not.
  const Tensor weights_scratch = topk_weights.clone(), ids_scratch = topk_ids.clone();
  const GoldenOutput weights(weights_scratch, &reference, "topk_weights"), ids(ids_scratch, &reference, "topk_ids");
  const ReferenceOutput& expected = *reference.find("topk_ids");
  const std::int64_t columns = topk_ids.size(1);
  parallel_for(exec.threads, router.rows(), router.row_cost(), [&](std::int64_t t) {
    const auto chosen = other_choice(topk_ids, expected, t * columns, router.chosen());
    if (!chosen) return;
    const auto row = router.row(t);
    if (row.unspecified() || !row.allows(*chosen)) return;
    put_route(weights, ids, t, row.route(*chosen), false);
  });
}

}  // namespace dodona::ops
