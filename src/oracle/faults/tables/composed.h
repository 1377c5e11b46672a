// More faults that are composed for an explanation, see faults.h: where, and how, of operands that no mistake with a name of its own
// strikes.
#pragma once

#include <span>

#include "oracle/faults/faults.h"

namespace dodona::oracle {

/// Of inputs: how far apart indices of a dimension lie.
std::span<const Fault> stride_faults();
/// Of inputs: entries of lists of numbers.
std::span<const Fault> list_faults();
/// Of inputs: where a rotation looks for its angles.
std::span<const Fault> angle_faults();
/// Of the call as a whole: heads of keys that are not the query's, of one operand alone or of tokens behind.
std::span<const Fault> shared_head_faults();
/// Of the call as a whole: inside of attention, keys that a query does not see and that count all the same.
std::span<const Fault> hidden_faults();
/// Of the call as a whole: outputs whose dimensions are stored in another order.
std::span<const Fault> order_faults();
/// Of the call as a whole: operands that are read on beyond their rows' ends.
std::span<const Fault> read_on_faults();
/// Of the call as a whole: the same mistake made with two inputs; optional inputs that are not handed on.
std::span<const Fault> alike_faults();
/// Of inputs: what one function of a number makes of all of them.
std::span<const Fault> function_faults();
/// Of the call as a whole: several scales at once.
std::span<const Fault> scales_together_faults();

}  // namespace dodona::oracle
