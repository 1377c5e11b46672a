// How far the experts' sums of one backend may lie from another's: what each contract leaves open, carried through both products.
#pragma once

#include <vector>

#include "model/layer/experts/experts.h"
#include "ops/base/bounded.h"

namespace dodona::model {

/// Whether bounded_experts knows what the backend makes of weights that are stored so.
bool has_budget(const ExpertsBackend& backend, const LinearMethod& stored);

/// The sums [T, H] that a backend gives for tokens x [T, H] in bf16, and how far an honest implementation may be from each:
/// the budgets of its products, of quantizers, where it has such, whose codes may fall either way, of the activation and of every rounding,
/// each times what it is multiplied with afterwards. The experts that have rows have been touched.
std::vector<ops::Bounded> bounded_experts(const LayerWeights& weights, const Tensor& x, const Routing& routing, const Exec& exec);

}  // namespace dodona::model
