// Other honest implementations of the ops: plain fp32 loops, written from the contracts and sharing no code with golden and fast mode.
// What they compute is right by the contract, so a judge that rejects it raises a false alarm.
#pragma once

#include <string_view>

#include "dodona/op.h"

namespace dodona::oracle {

/// Where the contract leaves a choice open, each way makes another one.
enum class Way {
  reversed,     ///< sums from the end; no fused multiply-adds; divisions
  strided,      ///< sums in interleaved chains, then a tree; fused multiply-adds; reciprocals
  tensor_core,  ///< sums as matrix units add: aligned addends, cut toward zero
};

/// Whether the op leaves anything open that another implementation could do otherwise.
bool has_alternative(std::string_view op);

/// Computes the outputs of a call whose arguments are checked and whose outputs are allocated (Op::prepare). False, with nothing written,
/// where the op has no such implementation for arguments of these types.
bool compute_otherwise(const Op& op, const Arguments& arguments, Way way);

}  // namespace dodona::oracle
