#include "ops/schemes/qserve.h"

#include "core/threads.h"
#include "quant/qserve.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t group = 128;

}  // namespace

Tensor qserve_weights(const Tensor& kernel, const Tensor* scales, const Tensor* zeros, QserveReading reading, const Exec& exec) {
  const std::int64_t n = kernel.size(0), k = 2 * kernel.size(1);
  const auto* const packed = kernel.as<std::uint8_t>();
  const Tensor weights = Tensor::uninitialized(i8, {n, k});
  parallel_for(exec.threads, n, static_cast<double>(k), [&](std::int64_t j) {
    auto* const row = weights.as<std::int8_t>() + j * k;
    const std::int64_t place = reading == QserveReading::scales_in_order ? j : quant::qserve_scale_position(j);
    for (std::int64_t i = 0; i < k; ++i) {
      const auto code = reading == QserveReading::nibbles_in_order ? static_cast<std::uint8_t>(packed[(j * k + i) / 2] >> (i % 2 * 4) & 0xF)
                                                                   : quant::qserve_weight(packed, j, i, k);
      const std::int64_t at = i / group * n + place;
      if (reading == QserveReading::saturating && scales != nullptr) {
        row[i] = static_cast<std::int8_t>(std::clamp(code * scales->as<std::int8_t>()[at] + zeros->as<std::int8_t>()[at], -128, 127));
        continue;
      }
      row[i] = scales == nullptr ? static_cast<std::int8_t>(code)
                                 : quant::qserve_group_weight(code, scales->as<std::int8_t>()[at], zeros->as<std::int8_t>()[at]);
    }
  });
  return weights;
}

Product qserve_product(const Tensor& in_feats, const Tensor& weights) {
  return batched_products(batch_of_one(in_feats), batch_of_one(weights.transpose(0, 1))).front();
}

void qserve_multiply(I8Format format, const Tensor& in_feats, const I8Weights& weights, TileEpilogue epilogue, const Tensor& out,
                     const Exec& exec) {
  epilogue.out_type = f16;
  epilogue.out = out.as<std::byte>();
  epilogue.out_stride = out.size(1);
  const I8Group all{0, in_feats.size(0), 0, weights, epilogue};
  i8_multiply({.format = format, .groups = {&all, 1}, .rows = all.rows, .k = weights.k, .codes = in_feats.as<std::uint8_t>()}, exec);
}

std::optional<Refusal> qserve_unsupported(const Tensor& in_feats, const Tensor& kernel, Mode mode) {
  if (mode != Mode::hopper || in_feats.size(0) <= 256 || kernel.size(0) % 128 == 0) return {};
  return Refusal{"kernel",
                 "has " + std::to_string(kernel.size(0)) +
                     " rows: for more than 256 tokens the H200's kernel leaves columns unwritten unless they are a multiple of 128"};
}

}  // namespace dodona::ops
