#pragma once

#include "ops/rows/quantize/group_quant.h"

namespace dodona::ops {

/// Groups of each row to int8 with a scale for each: sgl_per_token_group_quant_8bit under a name of old.
/// Source: sgl-kernel `sgl_per_token_group_quant_int8`.
struct SglPerTokenGroupQuantInt8 {
  Tensor input, output_q, output_s;
  std::int64_t group_size = 128;
  double eps = 1e-10, fp8_min = -128.0, fp8_max = 127.0;
  bool scale_ue8m0 = false, fuse_silu_and_mul = false, enable_v2 = false;
  std::string divide = "rcp";

  static constexpr OpInfo info{"sgl_per_token_group_quant_int8", Category::quantization, Source::sgl_kernel};
  void describe(auto& op) { describe_group_quant(op, *this, {i8}); }
};

}  // namespace dodona::ops
