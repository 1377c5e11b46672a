// Weights as blocks of fp8, as they are stored or made of whatever is.
#include <algorithm>
#include <cmath>

#include "core/define.h"
#include "core/threads.h"
#include "model/layer/linear/method.h"
#include "ops/gemm/fp8_blockwise_scaled_mm.h"
#include "ops/gemm/fp8_gemm_nt.h"
#include "ops/moe/grouped/fp8_blockwise_scaled_grouped_mm.h"
#include "ops/moe/grouped/fused_moe_kernel.h"
#include "ops/moe/grouped/m_grouped_fp8_gemm_nt_masked.h"
#include "ops/quantization/sgl_per_token_group_quant_fp8.h"
#include "quant/amax.h"
#include "quant/e4m3.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

constexpr std::int64_t block = 128;

/// Codes [N, K] and f32 scales [ceil(N/128), ceil(K/128)]: s = max(amax, 1e-4) / 448, code = e4m3(w / s).
/// Source: DeepSeek's `per_block_cast_to_fp8`.
void prepare(Projection& p, const Exec& exec) {
  if (p.block_scales.defined()) return;
  if (p.weight.form == WeightForm::fp8_block) {
    p.block_scales = p.weight.weight_scale;
    p.weight.weight_scale = Tensor();
    return;
  }
  const Tensor dense = dequantize(p.weight, exec.threads);
  const std::int64_t rows = p.rows(), columns = p.columns(), across = (columns + block - 1) / block;
  const Tensor codes = Tensor::uninitialized(DType::f8_e4m3, {rows, columns}), scales(DType::f32, {(rows + block - 1) / block, across});
  parallel_for(exec.threads, scales.size(0), static_cast<double>(block * columns), [&](std::int64_t strip) {
    const std::int64_t begin = strip * block, end = std::min(begin + block, rows);
    std::vector<float> x(static_cast<std::size_t>((end - begin) * columns));
    quant::to_f32(DType::bf16, dense.as<std::byte>() + begin * columns * 2, x.data(), static_cast<std::int64_t>(x.size()));
    for (std::int64_t b = 0; b < across; ++b) {
      const std::int64_t first = b * block, last = std::min(first + block, columns);
      float amax = 1e-4f;
      for (std::int64_t i = 0; i < end - begin; ++i)
        for (std::int64_t k = first; k < last; ++k) amax = std::max(amax, std::fabs(x[static_cast<std::size_t>(i * columns + k)]));
      const float scale = amax / quant::e4m3_max;
      scales.as<float>()[strip * across + b] = scale;
      for (std::int64_t i = 0; i < end - begin; ++i)
        for (std::int64_t k = first; k < last; ++k)
          codes.as<std::uint8_t>()[(begin + i) * columns + k] =
              quant::to_e4m3_satfinite(static_cast<double>(x[static_cast<std::size_t>(i * columns + k)] / scale));
    }
  });
  p.weight.weight = codes;
  p.weight.weight_scale = Tensor();
  p.block_scales = scales;
}

/// Fast mode reads what `pack` makes of codes [1, N, K]; other modes those themselves.
template <Prepared (*pack)(const Tensor& codes, const Exec& exec)>
void prepare_packed(Projection& p, const Exec& exec) {
  if (p.prepared.defined()) return;
  prepare(p, exec);
  if (exec.mode != Mode::fast) return;
  p.prepared = pack(p.weight.weight.reshape({1, p.rows(), p.columns()}), exec);
  p.weight.weight = Tensor();
}

Prepared pack_grouped(const Tensor& codes, const Exec& exec) {
  return ops::prepare(ops::Fp8BlockwiseScaledGroupedMm{.b = codes.transpose(1, 2)}, exec);
}
Prepared pack_fused(const Tensor& codes, const Exec& exec) {
  return ops::prepare(ops::FusedMoeKernel{.B = codes}, exec);
}
Prepared pack_masked(const Tensor& codes, const Exec& exec) {
  return ops::prepare(ops::MGroupedFp8GemmNtMasked{.b = codes}, exec);
}

ops::SglPerTokenGroupQuantFp8 quantized(const Tensor& x, const Exec& exec) {
  // Scales M-major, as the kernels take them.
  const Tensor scales = Tensor(DType::f32, {x.size(1) / block, x.size(0)}).transpose(0, 1);
  return ops::run(ops::SglPerTokenGroupQuantFp8{.input = x, .output_s = scales}, exec);
}

template <class Op>
void pack_stored(Projection& p, const Op& op, const Exec& exec) {
  p.prepared = ops::prepare(op, exec);
  p.weight.weight = Tensor();
}

void prepare_deep_gemm(Projection& p, const Exec& exec) {
  if (exec.mode == Mode::fast && !p.prepared.defined()) pack_stored(p, ops::Fp8GemmNt{.b = p.weight.weight}, exec);
}
void prepare_stored(Projection& p, const Exec& exec) {
  if (exec.mode == Mode::fast && !p.prepared.defined())
    pack_stored(p, ops::Fp8BlockwiseScaledMm{.mat_b = p.weight.weight.transpose(0, 1)}, exec);
}

Tensor apply_deep_gemm(const Projection& p, const Tensor& x, DType out, const Exec& exec) {
  const auto a = quantized(x, exec);
  return ops::run(ops::Fp8GemmNt{.a = a.output_q,
                                 .sfa = a.output_s,
                                 .b = p.prepared.defined() ? Tensor() : p.weight.weight,
                                 .sfb = p.weight.weight_scale,
                                 .out_dtype = out},
                  exec, p.prepared)
      .d;
}

Tensor apply_stored(const Projection& p, const Tensor& x, DType out, const Exec& exec) {
  const auto a = quantized(x, exec);
  return ops::run(ops::Fp8BlockwiseScaledMm{.mat_a = a.output_q,
                                            .mat_b = p.prepared.defined() ? Tensor() : p.weight.weight.transpose(0, 1),
                                            .scales_a = a.output_s,
                                            .scales_b = p.weight.weight_scale.transpose(0, 1),
                                            .out_dtype = out},
                  exec, p.prepared)
      .out;
}

}  // namespace

const LinearMethod fp8_block_method{
    .name = "fp8-block", .kernel = "fp8_blockwise_scaled_mm", .prepare = prepare_stored, .apply = apply_stored, .gives_f32 = false};
const LinearMethod deep_gemm_method{
    .name = "fp8-block, DeepGEMM", .kernel = "fp8_gemm_nt", .prepare = prepare_deep_gemm, .apply = apply_deep_gemm};
const LinearMethod fp8_blocks_method{.name = "blocks of fp8", .kernel = "cutlass_fused_moe", .prepare = prepare};
const LinearMethod fp8_fused_method{.name = "blocks of fp8, fused", .kernel = "fused_moe_kernel", .prepare = prepare_packed<pack_fused>};
const LinearMethod fp8_grouped_method{
    .name = "blocks of fp8, grouped", .kernel = "fp8_blockwise_scaled_grouped_mm", .prepare = prepare_packed<pack_grouped>};
const LinearMethod fp8_masked_method{
    .name = "blocks of fp8, masked", .kernel = "m_grouped_fp8_gemm_nt_masked", .prepare = prepare_packed<pack_masked>};

}  // namespace dodona::model
