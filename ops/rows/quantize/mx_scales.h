// Scales of MXFP4 and MXFP8 rows in fast mode.
#pragma once

#include <cstdint>

#include "dodona/exec.h"
#include "ops/rows/quantize/group_row.h"

namespace dodona::ops {

/// Of each group, a block of `row`, the least power of two not below largest magnitude * part, NaN passed over unless there is nothing
/// else: its byte to where the row begins in the matrix of scales (blocks 4i..4i+3 at tile * i), and its inverse, of which PowerScales has
/// the limits, to `factors`.
void fast_mx_scales(const GroupRow& row, float part, std::uint8_t* scales, std::int64_t tile, float* factors, Isa isa);

}  // namespace dodona::ops
