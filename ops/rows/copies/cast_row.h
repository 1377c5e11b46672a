// Rows that change their type on the way, as Triton kernels load and store them.
#pragma once

#include "dodona/exec.h"
#include "ops/base/golden_output.h"

namespace dodona::ops {

/// n elements: their bits where the types agree, else one rounding to nearest even, which saturates for fp8 (infinities too, NaN stays). In
/// a GPU's mode with the patterns of sm_90: a NaN of f16 or fp8 becomes 7fffffff in f32, and infinities and NaN of e5m2 become numbers in
/// bf16.
void cast_row(DType from_type, const std::byte* from, DType to_type, std::byte* to, std::int64_t n, const Exec& exec);

/// The same for one element of a golden run; of elements of one type nothing is recorded here, see record_exact.
void cast_element(const Tensor& from, std::int64_t from_linear, const Tensor& to, const GoldenOutput& out, std::int64_t to_linear);

/// Which NaN a cast gives is open: of an output that is judged by its bits, any will do for those that come from a NaN of another type.
/// After the elements were recorded.
void open_cast_nans(const Tensor& from, std::int64_t from_linear, const Tensor& to, Reference* reference, std::string_view name,
                    std::int64_t to_linear, std::int64_t n);

/// What Triton makes of an e5m2 code in bf16 on sm_90, where the exponent of infinities and NaN is one like the others.
std::uint16_t e5m2_to_bf16_of_sm_90(std::uint8_t code);

}  // namespace dodona::ops
