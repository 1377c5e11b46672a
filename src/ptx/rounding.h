// Roundings other than to nearest, by what a rounding in double leaves over.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "quant/hopper/special.h"

namespace dodona::ptx {

enum class Rounding { nearest, zero, down, up };

inline float canonical(float x) {
  return x != x ? quant::hopper::canonical_nan() : x;
}

/// a + b = sum + rest, exactly.
struct TwoSum {
  double sum, rest;
};
inline TwoSum two_sum(double a, double b) {
  const double sum = a + b, part = sum - a;
  return {sum, (a - (sum - part)) + (b - part)};
}

/// The number that is not farther than half a last place, made odd where it is not exact: rounding it again is rounding once.
inline double to_odd(const TwoSum& s) {
  if (s.rest == 0 || !std::isfinite(s.sum)) return s.sum;
  const auto bits = std::bit_cast<std::uint64_t>(s.sum);
  if ((bits & 1) != 0) return s.sum;
  const bool outward = (s.rest > 0) == (s.sum > 0);
  return std::bit_cast<double>(outward ? bits + 1 : bits - 1);
}

/// sum + rest, rounded to fp32.
template <Rounding rounding>
float rounded(const TwoSum& s) {
  const auto nearest = static_cast<float>(to_odd(s));
  if (rounding == Rounding::nearest || !std::isfinite(s.sum)) return canonical(nearest);
  double above = static_cast<double>(nearest) - s.sum;  // what the rounding has added
  if (above == 0) above = -s.rest;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  if (above == 0 || (nearest == 0 && rounding == Rounding::zero)) return nearest;
  if (rounding == Rounding::zero && (above > 0) == (nearest > 0)) return std::nextafter(nearest, 0.0f);
  if (rounding == Rounding::down && above > 0) return std::nextafter(nearest, -infinity);
  if (rounding == Rounding::up && above < 0) return std::nextafter(nearest, infinity);
  return nearest;
}

}  // namespace dodona::ptx
