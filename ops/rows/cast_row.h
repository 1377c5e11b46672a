// Rows that change their type on the way, as Triton kernels load and store them.
#pragma once

#include "dodona/exec.h"
#include "ops/base/golden_output.h"

namespace dodona::ops {

/// n elements: their bits where the types agree, else one rounding to nearest even, which saturates for fp8 (infinities too, NaN stays).
void cast_row(DType from_type, const std::byte* from, DType to_type, std::byte* to, std::int64_t n, Isa isa);

/// The same for one element of a golden run; of elements of one type nothing is recorded here, see record_exact.
void cast_element(const Tensor& from, std::int64_t from_linear, const Tensor& to, const GoldenOutput& out, std::int64_t to_linear);

}  // namespace dodona::ops
