#include "ops/schemes/deep_gemm.h"

#include <bit>

#include "quant/element.h"
#include "quant/ue8m0.h"

namespace dodona::ops {

using enum DType;

const std::string_view deep_gemm_contract = R"(
For each 128 of K, ascending: t = sum of the products (exact in fp32), s = fl32(sfa * sfb), acc = fma(t, s, acc) in fp32 from +0.
Exponents packed in words are scales 2^(b - 127), of which 255 is NaN. NaN and infinities follow IEEE. Budget: that of
fp8_blockwise_scaled_mm. Hopper mode: DeepGEMM's kernels for an H100, t by the fp8 tensor core in a chain of four steps from zero, blocks in
one chain for every K; denormals are kept. Blackwell mode: one chain of tcgen05.mma kind::mxf8f6f4 over all of K, from +0, in steps of 32
products with both exponents, without promotion; scales in fp32 must be powers of two there.)";

DeepGemmScales deep_gemm_scales(const Tensor& sf, std::int64_t together, std::int64_t k) {
  if (sf.dtype() == f32) return {sf, together};
  const std::int64_t groups = (k + deep_gemm_block - 1) / deep_gemm_block;
  DeepGemmScales scales{Tensor(f8_e8m0, {sf.size(0), groups}), together};
  auto* to = scales.numbers.as<std::uint8_t>();
  for (std::int64_t line = 0; line < sf.size(0); ++line)
    for (std::int64_t g = 0; g < groups; ++g)
      *to++ = static_cast<std::uint8_t>(quant::get_bits(sf, line * sf.size(1) + g / 4) >> (g % 4 * 8));
  return scales;
}

DeepGemmScales in_f32(const DeepGemmScales& scales) {
  if (scales.numbers.dtype() == f32) return scales;
  DeepGemmScales wide{Tensor(f32, scales.numbers.shape()), scales.together};
  for (std::int64_t i = 0; i < scales.numbers.elements(); ++i)
    wide.numbers.as<float>()[i] = quant::ue8m0_value(scales.numbers.as<std::uint8_t>()[i]);
  return wide;
}

PanelScales panel_scales(const DeepGemmScales& f32) {
  return {f32.numbers.as<float>(), f32.together, f32.numbers.stride(0), f32.numbers.stride(1)};
}

std::optional<DeepGemmScales> as_exponents(const DeepGemmScales& scales) {
  if (scales.numbers.dtype() == f8_e8m0) return scales;
  DeepGemmScales exponents{Tensor(f8_e8m0, scales.numbers.shape()), scales.together};
  for (std::int64_t i = 0; i < scales.numbers.elements(); ++i) {
    const auto code = static_cast<std::uint32_t>(quant::get_bits(scales.numbers, i));
    if (code == 0 || code >= 0x7F800000u || (code & 0x007FFFFFu) != 0) return std::nullopt;
    exponents.numbers.as<std::uint8_t>()[i] = quant::ue8m0_exponent_field(std::bit_cast<float>(code));
  }
  return exponents;
}

}  // namespace dodona::ops
