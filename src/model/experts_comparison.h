// Two backends of one layer's routed experts: how far their contracts let them be from each other, and how far they are.
#pragma once

#include <cstdint>
#include <string>

#include "io/json.h"
#include "model/run.h"

namespace dodona::model {

/// Of the MLP's output [T, H], the shared expert's part included. `allowed` is, element by element, the distance of what the two contracts
/// call exact and both their budgets.
struct ExpertsComparison {
  std::string a, b;
  std::int64_t elements = 0;
  std::int64_t differing = 0;  ///< in bits
  std::int64_t beyond = 0;     ///< farther apart than allowed
  double rms = 0;              ///< of a's output
  double allowed = 0;          ///< the largest
  double difference = 0;       ///< the largest
  double share = 0;            ///< the largest share of what is allowed that a difference takes
};

/// Whether both can be compared, before anything is run. Throws Error (bad_option) for layers without routed experts and for weights that
/// only one backend multiplies as they are stored, those with a scale for each row and w4a8's; else as plan_layer does. What is wrong with
/// `other` is told of `option`.
void check_experts(const LayerRequest& request, const std::string& other, const char* option);
/// Runs the layer once with request.setting's backend and once with `other`. Throws Error as check_experts and LayerRun do.
ExpertsComparison compare_experts(const LayerRequest& request, const std::string& other);

io::Json to_json(const ExpertsComparison& comparison);

}  // namespace dodona::model
