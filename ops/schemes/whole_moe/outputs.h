// What a whole mixture of experts tells beside its numbers.
#pragma once

#include "ops/schemes/whole_moe.h"

namespace dodona::ops::whole_moe {

/// Whether it is open where some token goes: nobody knows then where the results of others lie.
bool has_open_routes(const WholeMoe& moe);
/// Where the result of each pair lies, and their weights, where they are asked for. `reference`: golden mode's, or nullptr.
void put_permutation(const WholeMoe& moe, Reference* reference);
void put_weights(const WholeMoe& moe, Reference* reference);

}  // namespace dodona::ops::whole_moe
