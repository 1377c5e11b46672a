// Weights in NVFP4.
#include <algorithm>

#include "core/define.h"
#include "core/threads.h"
#include "model/layer/linear/method.h"
#include "model/layer/values.h"
#include "ops/gemm/cutlass_scaled_fp4_mm.h"
#include "ops/moe/grouped/cutlass_fp4_group_mm.h"
#include "ops/quantization/scaled_fp4_quant.h"
#include "quant/swizzle.h"

namespace dodona::model {
namespace {

/// In tiles of 128 rows, each by itself.
Tensor swizzled(const Tensor& scale, int threads) {
  constexpr auto layout = quant::ScaleLayout::swizzled_128x4;
  constexpr std::int64_t tile = 128;
  const std::int64_t rows = scale.size(0), columns = scale.size(1);
  const auto padded = quant::padded_size(layout, rows, columns);
  Tensor out = Tensor::uninitialized(DType::f8_e4m3, {padded.rows, padded.columns});
  parallel_for(threads, padded.rows / tile, static_cast<double>(tile * columns), [&](std::int64_t t) {
    const std::int64_t first = t * tile, count = std::min(tile, rows - first);
    quant::swizzle_scales(layout, {scale.as<std::uint8_t>() + first * columns, static_cast<std::size_t>(count * columns)}, count, columns,
                          {out.as<std::uint8_t>() + first * padded.columns, static_cast<std::size_t>(tile * padded.columns)});
  });
  return out;
}

/// [..] to [1, ..].
Tensor alone(const Tensor& tensor) {
  return tensor.reshape({1, tensor.size(0), tensor.size(1)});
}

/// Fast mode reads what `pack` makes of codes and swizzled scales; other modes those themselves.
template <class Pack>
void prepare(Projection& p, const Exec& exec, const Pack& pack) {
  if (p.prepared.defined() || p.block_scales.defined()) return;
  const Tensor scales = swizzled(p.weight.weight_scale, exec.threads);
  p.weight.weight_scale = Tensor();
  if (exec.mode != Mode::fast) {
    p.block_scales = scales;
    return;
  }
  p.prepared = pack(p.weight.weight, scales);
  p.weight.weight = Tensor();
}

void prepare_single(Projection& p, const Exec& exec) {
  prepare(p, exec, [&](const Tensor& codes, const Tensor& scales) {
    return ops::prepare(ops::CutlassScaledFp4Mm{.b = codes, .block_scale_b = scales}, exec);
  });
}

void prepare_grouped(Projection& p, const Exec& exec) {
  prepare(p, exec, [&](const Tensor& codes, const Tensor& scales) {
    return ops::prepare(ops::CutlassFp4GroupMm{.b_fp4 = alone(codes), .b_blockscale = alone(scales)}, exec);
  });
}

Tensor apply(const Projection& p, const Tensor& x, DType out, const Exec& exec) {
  const auto a = ops::run(ops::ScaledFp4Quant{.input = x, .input_global_scale = scalar(1.0f / p.weight.input_scale)}, exec);
  return ops::run(ops::CutlassScaledFp4Mm{.a = a.output,
                                          .b = p.prepared.defined() ? Tensor() : p.weight.weight,
                                          .block_scale_a = a.output_scale,
                                          .block_scale_b = p.block_scales,
                                          .alpha = scalar(p.alpha()),
                                          .out_dtype = out},
                  exec, p.prepared)
      .out;
}

}  // namespace

const LinearMethod nvfp4_method{
    .name = "nvfp4", .kernel = "cutlass_scaled_fp4_mm", .narrow = true, .prepare = prepare_single, .apply = apply};
const LinearMethod nvfp4_grouped_method{
    .name = "nvfp4, grouped", .kernel = "cutlass_fp4_group_mm", .narrow = true, .prepare = prepare_grouped};

}  // namespace dodona::model
