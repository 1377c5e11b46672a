// Sums of NVFP4 products for golden mode, and how far the sums of honest matrix units may be from them.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/base/golden_output.h"

namespace dodona::ops {

/// A row of an NVFP4 matrix, decoded for golden mode.
struct Fp4Vector {
  std::vector<std::int8_t> doubled;  ///< twice the values of the codes, k of them
  std::vector<double> scales;        ///< one for each block of sixteen
};
/// `scales` holds the row's scales, four every 512 bytes as tiles of 128 x 4 have them.
Fp4Vector decode_fp4(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t k);

struct Fp4Sum {
  double exact;  ///< sum over blocks, k ascending, of the product of scales and the exact integer block product
  double slack;  ///< of an fp32 accumulator before alpha and rounding; 0 when the sum is not finite
};
Fp4Sum fp4_sum(const Fp4Vector& a, const Fp4Vector& b);

/// Writes alpha times the sum. `out` has been made open.
void put_fp4(const GoldenOutput& out, std::int64_t linear, const Fp4Sum& sum, float alpha);

}  // namespace dodona::ops
