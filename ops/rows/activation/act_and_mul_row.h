// Fast mode of silu_and_mul, gelu_and_mul and gelu_tanh_and_mul, and of silu_and_mul behind which rows become codes: one row.
#pragma once

#include <cstdint>

#include "dodona/dtype.h"
#include "ops/base/writing.h"
#include "simd/tier.h"

namespace dodona::ops {

enum class ActivationKind { silu, gelu, gelu_tanh, silu_to_e4m3 };

/// n elements of bf16, f16 or f32 each, inner stride 1.
struct ActAndMulRow {
  const void* gate;
  const void* up;
  void* out;
  const void* next_gate;  ///< the halves of the row after this one, fetched meanwhile; any readable row will do
  const void* next_up;
  std::int64_t n;
  DType type;
  ActivationKind kind;
  Writing writing;
  bool round_activation;
  float factor = 1;  ///< silu_to_e4m3: what products are multiplied with before they are codes, one byte each
};

struct ActAndMulRowKernel {
  template <class Tier>
  static void run(const ActAndMulRow& row);
};

}  // namespace dodona::ops
