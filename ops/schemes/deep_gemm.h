// What DeepGEMM's fp8 products share: scales of 128 along K, in fp32 or as exponents packed in words, and the sums of either.
#pragma once

#include <optional>
#include <string_view>

#include "core/define.h"
#include "ops/sums/operand.h"
#include "ops/tiles/panel.h"

namespace dodona::ops {

/// Elements of K that share a scale.
inline constexpr std::int64_t deep_gemm_block = 128;

/// The scales of one operand. `together` lines share one.
struct DeepGemmScales {
  Tensor numbers;  ///< f32, or f8_e8m0 without gaps: [scales of lines, scales along K]
  std::int64_t together = 1;

  /// As golden mode and the GPUs' modes take them.
  BlockScales blocks() const { return linear_scales(numbers, together, deep_gemm_block); }
};

/// `sf` [lines, ceil(k/128)] of f32 as it is; i32 words [lines, ceil(k/512)] of four exponents, the first in the low byte, unpacked.
DeepGemmScales deep_gemm_scales(const Tensor& sf, std::int64_t together, std::int64_t k);
/// In fp32, for fast mode.
DeepGemmScales in_f32(const DeepGemmScales& scales);
PanelScales panel_scales(const DeepGemmScales& f32);
/// As exponents, which a B200's kernels take; nothing where some scale is no power of two.
std::optional<DeepGemmScales> as_exponents(const DeepGemmScales& scales);

/// The contract's words on sums and scales.
extern const std::string_view deep_gemm_contract;

}  // namespace dodona::ops
