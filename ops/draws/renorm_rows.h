// Rows of top_k_renorm_prob and top_p_renorm_prob in the four modes, and what is accepted of them.
#pragma once

#include <vector>

#include "dodona/op.h"
#include "ops/draws/renorm.h"

namespace dodona::ops {

struct RenormRows {
  const Tensor &probs, &renormed;
  std::vector<Cut> cuts;  ///< of rows
};

/// Mistakes of such kernels.
enum class RenormMistake { none, ties_are_cut, crossing_dropped, not_divided };

/// All throw, with nothing written, where a row holds infinity and is searched for a threshold.
void golden_renorm_rows(const RenormRows& rows, const Exec& exec, Reference* reference, RenormMistake mistake);
void condition_renorm_rows(const RenormRows& actual, const Exec& exec, Reference& reference);
void fast_renorm_rows(const RenormRows& rows, const Exec& exec);
void hopper_renorm_rows(const RenormRows& rows, const Exec& exec);
/// Row b is searched for a threshold and holds a NaN, behind which upstream's maximum may be lost: the threshold is too low then, but what
/// is kept are the largest elements, divided by their sum, or undivided.
bool hides_maximum(const RenormRows& actual, std::int64_t b);

}  // namespace dodona::ops
