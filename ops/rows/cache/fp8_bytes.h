// A group of elements as caches in fp8 hold it: e4m3 codes of x * (1 / s) and the scale s = max(least, max |x|) / 448 in fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dodona::ops {

struct Fp8Bytes {
  float scale = 0;
  std::vector<std::uint8_t> codes;
  std::vector<bool> open;  ///< codes that are not judged; 0 here
};

/// How a scale is made: by the rule, or as mistaken kernels do.
enum class ScaleMade {
  by_rule,
  of_values,  ///< of the largest value, not magnitude
  for_240,    ///< for another largest code
  for_224,
  as_power,         ///< rounded up to a power of two
  stored_as_power,  ///< so rounded where it is stored, behind the codes
};

/// Golden mode's: the scale is divided, NaN passed over. No code is known where the
/// reciprocal of the scale is infinite or NaN, or the scale may be flushed, nor that of NaN.
Fp8Bytes fp8_bytes(std::span<const float> x, float least, ScaleMade made = ScaleMade::by_rule);

/// What kernels may have otherwise, in units of 2^-24: of the value that is rounded to a code 2 for a reciprocal that is approximate, 1 for
/// each of two roundings, and 1 for what multiplies the other way round; of the scale nothing beside either way to divide.
struct Fp8Freedom {
  double code_units = 5, scale_units = 0;
};
/// The same where a scale was stored that may be: with that scale, and with the stored codes that may follow from it.
Fp8Bytes conditioned_fp8_bytes(std::span<const float> x, float least, float stored_scale, std::span<const std::byte> stored_codes,
                               const Fp8Freedom& freedom = {});

}  // namespace dodona::ops
