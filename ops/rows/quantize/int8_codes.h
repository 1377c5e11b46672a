// Quantization to int8 in golden mode: codes that are not rounded to nearest even.
#pragma once

#include "ops/base/golden_output.h"

namespace dodona::ops {

/// Puts the code that `rounded` makes of v, and where the slack reaches another, a number from which either is near: judges round to
/// nearest.
inline void put_int8(const GoldenOutput& codes, std::int64_t linear, const Bounded& v, double (*rounded)(double)) {
  const double code = rounded(v.exact), low = rounded(v.exact - v.slack), high = rounded(v.exact + v.slack);
  const double other = low != code ? low : high;
  if (other == code) return codes.put(linear, {code, 0.0, v.open});
  codes.put(linear, {code + (other < code ? -0.25 : 0.25), 0.3, v.open});
}

}  // namespace dodona::ops
