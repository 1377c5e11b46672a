#include "ops/sums/fp4_sum.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/nvfp4.h"

namespace dodona::ops {

Fp4Vector decode_fp4(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t k) {
  Fp4Vector row{std::vector<std::int8_t>(static_cast<std::size_t>(k)),
                std::vector<double>(static_cast<std::size_t>(k / quant::nvfp4_block))};
  for (std::size_t i = 0; i < row.doubled.size(); ++i) row.doubled[i] = quant::e2m1_doubled[codes[i / 2] >> (i % 2 * 4) & 0xFu];
  for (std::size_t j = 0; j < row.scales.size(); ++j) row.scales[j] = static_cast<double>(quant::e4m3_to_f32(scales[j / 4 * 512 + j % 4]));
  return row;
}

// How far an fp32 accumulation may be off. A block's sum of sixteen is an integer times one scale, at most 12 bits wide, and the product
// of two scales is exact in fp32. So an accumulator that adds blocks, in any order or in any tree, rounds or cuts at each of K/16
// additions by at most one unit of 2^-23 of a partial sum, and no partial sum exceeds the sum of all positive blocks, or of all negative
// ones. A matrix unit may align the single products of an instruction instead: each then loses what lies 25 bits below the largest addend
// (what the H200's 16-bit units keep), a product itself or a partial sum. A product has few bits, so most lose nothing; a coarser grid
// takes no less than a finer one, so it is taken for the largest addend that there may be.
namespace {

double lost_by_alignment(const Fp4Vector& a, const Fp4Vector& b, double largest_addend) {
  if (largest_addend == 0) return 0.0;
  const double grid = std::ldexp(1.0, std::ilogb(largest_addend) - 25);
  double lost = 0;
  for (std::size_t j = 0; j < a.scales.size(); ++j) {
    const double units = std::fabs(a.scales[j] * b.scales[j] / 4) / grid;
    if (units == std::floor(units)) continue;  // every product lies on the grid
    for (std::size_t i = j * quant::nvfp4_block; i < (j + 1) * quant::nvfp4_block; ++i) {
      const double product = units * std::abs(a.doubled[i] * b.doubled[i]);
      lost += product - std::floor(product);
    }
  }
  return lost * grid;
}

}  // namespace

Fp4Sum fp4_sum(const Fp4Vector& a, const Fp4Vector& b) {
  double sum = 0, positive = 0, negative = 0, largest = 0;
  for (std::size_t j = 0; j < a.scales.size(); ++j) {
    int dot = 0, peak = 0;
    for (std::size_t i = j * quant::nvfp4_block; i < (j + 1) * quant::nvfp4_block; ++i) {
      const int product = a.doubled[i] * b.doubled[i];
      dot += product;
      peak = std::max(peak, std::abs(product));
    }
    const double scale = a.scales[j] * b.scales[j] / 4;
    sum += scale * dot;
    (scale * dot > 0 ? positive : negative) += std::fabs(scale * dot);
    largest = std::max(largest, std::fabs(scale) * peak);
  }
  if (!std::isfinite(sum)) return {sum, 0.0};
  const auto k = static_cast<double>(a.doubled.size());
  const double farthest = std::max(positive, negative);
  return {sum, k / quant::nvfp4_block * 0x1p-23 * farthest + lost_by_alignment(a, b, farthest + largest)};
}

void put_fp4(const GoldenOutput& out, std::int64_t linear, const Fp4Sum& sum, float alpha) {
  const double exact = sum.exact * alpha;
  // Infinity times what another order makes zero, or not zero, is NaN or infinity; zero times it has either sign.
  if ((std::isinf(alpha) || alpha == 0) && sum.slack > 0 && std::fabs(sum.exact) <= sum.slack) return out.put_open(linear, exact);
  if (!std::isfinite(exact)) return out.put(linear, exact, 0.0);
  // The product with alpha is rounded to fp32; a build that flushes denormals may make it zero.
  const double rounding = std::fabs(exact) * (may_flush(alpha) ? 1.0 : f32_eps);
  out.put(linear, exact, sum.slack * std::fabs(static_cast<double>(alpha)) + rounding);
}

}  // namespace dodona::ops
