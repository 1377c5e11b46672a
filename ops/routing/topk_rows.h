// Routers without groups in fast mode: rows of one call.
#pragma once

#include <cstdint>

#include "dodona/dtype.h"
#include "simd/tier.h"

namespace dodona::ops {

enum class RouterScore : std::uint8_t { softmax, sigmoid };
/// What the weight of a chosen expert is made of.
enum class RouterWeight : std::uint8_t {
  score,
  key_less_bias,  ///< (score + bias) - bias
};
enum class RouterScale : std::uint8_t {
  none,
  reciprocal,  ///< times the reciprocal of the sum
  quotient,    ///< over the sum, unless that is zero
};

/// The best experts by score (of softmax over logits that a bias was added to; of sigmoid before the bias is added to it), in order of
/// choice; ties to the lower index.
struct TopkRows {
  const void* input;
  const float* bias;  ///< nullptr for none
  float* weights;
  std::int32_t* ids;
  std::int64_t rows;
  std::int64_t input_stride, weights_stride, ids_stride;  ///< from row to row; bytes for the input, elements for the outputs
  DType type;
  int experts, chosen;  ///< experts: at most most_router_experts
  RouterScore score;
  RouterWeight weight;
  RouterScale scale;
  float softcap;  ///< 0 for none
  float factor;   ///< of scaled weights
};
inline constexpr int most_router_experts = 1024;

struct TopkRowsKernel {
  template <class Tier>
  static void run(const TopkRows& call);
};

}  // namespace dodona::ops
