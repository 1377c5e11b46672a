// One e4m3 scale for a whole tensor, as the absorbed matmuls of quantized checkpoints use it.
#pragma once

#include "dodona/tensor.h"

namespace dodona::model {

struct Fp8Tensor {
  Tensor values;  ///< f8_e4m3, contiguous, the shape of the input
  Tensor scale;   ///< f32 [1]: value = code * scale
};

/// scale = max(max|x|, 1e-12) / 448; code = e4m3(clamp(x * (1 / scale), -448, 448)), reciprocal first. NaN in x is an Error (bad_value).
/// Sources: sglang `input_to_float8` (weights), `per_tensor_quant_mla_fp8` (activations).
Fp8Tensor per_tensor_fp8(const Tensor& x, int threads);

}  // namespace dodona::model
