#pragma once

#include "ops/rows/quantize/group_quant.h"

namespace dodona::ops {

/// Groups of each row to e4m3 or int8 with a scale for each: output_s = max |group| / fp8_max, output_q = input / output_s.
/// Source: sgl-kernel `sgl_per_token_group_quant_8bit`.
struct SglPerTokenGroupQuant8bit {
  Tensor input, masked_m, output_q, output_s;
  std::int64_t group_size = 128;
  double eps = 1e-10, fp8_min = -448.0, fp8_max = 448.0;
  bool scale_ue8m0 = false, fuse_silu_and_mul = false, enable_v2 = false;
  std::string divide = "rcp";

  static constexpr OpInfo info{"sgl_per_token_group_quant_8bit", Category::quantization, Source::sgl_kernel};
  void describe(auto& op) { describe_group_quant(op, *this, {f8_e4m3, i8}); }
};

}  // namespace dodona::ops
