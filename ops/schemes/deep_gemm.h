// What DeepGEMM's fp8 products share: scales of 128 along K, in fp32 or as exponents packed in words, the sums of either, and one dense
// product or several of groups in golden, fast and the GPUs' modes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/define.h"
#include "ops/base/golden_output.h"
#include "ops/sums/operand.h"
#include "ops/tiles/panel/panel.h"

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

/// One product, or the rows of one group: d = a b^T, plus c. a [M, K] and b [N, K] of e4m3 with their scales as the call has them, d [M,
/// N].
struct DeepGemmProduct {
  Tensor a, sfa, b, sfb, d;
  std::int64_t gran_n = 128;  ///< rows of b that share a scale
  std::int64_t first = 0;     ///< element of the op's output with which d begins
  Tensor c = {};
  const std::byte* packed_b = nullptr;  ///< from panel_pack: fast mode then reads nothing of b
};

/// How wrong kernels read the scales of a's rows.
enum class DeepGemmScaling { right, of_first_block };

/// `out` has been made open, and elements outside of every product are the caller's.
void deep_gemm_golden(std::span<const DeepGemmProduct> products, const GoldenOutput& out, bool judged, DeepGemmScaling scaling,
                      const Exec& exec);
void deep_gemm_fast(std::span<const DeepGemmProduct> products, const Exec& exec);
/// Writes to the op's output `d`, as the GPU of the Exec's mode does: an H100, or a B200, where it has such scales.
void deep_gemm_on_gpu(std::span<const DeepGemmProduct> products, const Tensor& d, const Exec& exec);
/// Why a B200 has no kernel for these scales; nothing where it has.
std::optional<Refusal> deep_gemm_on_b200(std::span<const DeepGemmProduct> products);
/// Why an H100 has no grouped kernel for such scales; nothing where it has.
std::optional<Refusal> grouped_deep_gemm_on_h100(bool scale_ue8m0, std::int64_t gran_n);
double deep_gemm_flops(std::span<const DeepGemmProduct> products);
/// Throws unless gran_n is 1 or 128, 1 with exponents, and scales of dtype `scales` are what scale_ue8m0 says.
void require_deep_gemm_scales(std::int64_t gran_n, bool scale_ue8m0, DType scales);
/// Matrix `g` of a stack.
Tensor matrix_of(const Tensor& stack, std::int64_t g);

/// The contract's words on sums and scales.
extern const std::string_view deep_gemm_contract;

/// Schema of the scales: of the rows of a, of those of b, and what they are.
inline void describe_scales_of_a(auto& op, Tensor& sfa, const char* lines) {
  op.in("sfa", sfa, {DType::f32, DType::i32}, std::string(lines) + " ceil(K/(128*(1+3*scale_ue8m0)))")
      .layout(Layout::any)
      .role(Role::scale)
      .scales("a", 1, 128)
      .doc(
          "what 128 codes of a row of a are multiplied with; f32, or with scale_ue8m0 i32: exponents of four groups, the first in the "
          "low byte");
}
inline void describe_scales_of_b(auto& op, Tensor& sfb, const char* lines) {
  op.in("sfb", sfb, same_as("sfa"), std::string(lines) + " ceil(K/(128*(1+3*scale_ue8m0)))")
      .layout(Layout::any)
      .role(Role::scale)
      .scales("b", 128, 128)
      .doc("likewise, of gran_n rows of b");
}
template <class Op>
void describe_deep_gemm_recipe(auto& op, Op& fields) {
  op.attr("gran_n", fields.gran_n, between(1, 128)).doc("rows of b that share a scale, 128 or 1: the second number of upstream's recipe");
  op.attr("scale_ue8m0", fields.scale_ue8m0).doc("scales are exponents, four in a word, and gran_n is 1");
}

}  // namespace dodona::ops
