// Heads that are two copied heads, one behind the other.
#pragma once

#include "dodona/exec.h"
#include "dodona/tensor.h"

namespace dodona::ops {

/// out[i,j] = [left[i,j] | right[i,j]], bit for bit (NaN payloads too). out [I,J,L+R], left [I,J,L], right [I,J,R] or, for every j the
/// same, [I,1,R]; one type of whole bytes, inner strides 1. The first function is the definition, element by element; the second copies
/// heads.
void concat_elements(const Tensor& left, const Tensor& right, const Tensor& out, const Exec& exec);
void concat_heads(const Tensor& left, const Tensor& right, const Tensor& out, const Exec& exec);

}  // namespace dodona::ops
