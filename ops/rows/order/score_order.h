// The order in which scores of the indexer are chosen, as integers. Not for *.simd.cpp files.
#pragma once

#include <bit>
#include <cstdint>

namespace dodona::ops {

/// Rises with the score: -inf, ..., -0, +0, ..., +inf, then NaNs of negative sign, then those of positive sign, each by their bits. NaNs of
/// either sign are above all numbers because upstream's first pass looks at scores rounded to fp16, where a NaN has no sign.
inline std::int32_t score_order(float score) {
  constexpr std::int32_t nans_of_a_sign = 0x7FFFFF;
  const auto bits = std::bit_cast<std::int32_t>(score);
  // As integers, numbers rise with these; below -inf stand the NaNs of negative sign, which the difference wraps to the top.
  const std::int32_t rising = bits ^ ((bits >> 31) & 0x7FFFFFFF);
  const auto order = static_cast<std::int32_t>(static_cast<std::uint32_t>(rising) - static_cast<std::uint32_t>(nans_of_a_sign));
  if (score == score) return order;
  return bits < 0 ? order - nans_of_a_sign : order + nans_of_a_sign;
}

/// That of the first NaN.
inline constexpr std::int32_t first_nan_in_order = 0x7F000002;

}  // namespace dodona::ops
