#include "ops/rows/quantize/mx_scales.h"

#include <vector>

#include "ops/rows/quantize/fp4_row.h"
#include "quant/amax.h"
#include "quant/element.h"

namespace dodona::ops {
namespace {

/// Of zeros, or of nothing but NaN.
float largest_or_nan(const GroupRow& row, std::int64_t g) {
  std::vector<float> x(static_cast<std::size_t>(row.size));
  const auto* const group = static_cast<const std::byte*>(row.input) + g * row.size * bits(row.type) / 8;
  quant::to_f32(row.type, group, x.data(), row.size);
  return quant::amax_or_nan(x);
}

}  // namespace

void fast_mx_scales(const GroupRow& row, float part, std::uint8_t* scales, std::int64_t tile, float* factors, Isa isa) {
  std::vector<float> maxima(static_cast<std::size_t>(row.groups));
  dispatch<GroupMaximaKernel>(isa, row, maxima.data());
  const PowerScales all{maxima.data(), row.groups, part, scales, tile, factors};
  if (!dispatch<PowerScalesKernel>(isa, all)) return;
  for (std::int64_t g = 0; g < row.groups; ++g)
    if (float& x = maxima[static_cast<std::size_t>(g)]; x == 0) x = largest_or_nan(row, g);
  dispatch<PowerScalesKernel>(isa, all);
}

}  // namespace dodona::ops
