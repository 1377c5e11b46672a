// What the tests hold the room `quant` against: number formats by definition, and rounding by search.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace dodona::quant::test {

inline constexpr float f32_infinity = std::numeric_limits<float>::infinity();
inline constexpr double f64_infinity = std::numeric_limits<double>::infinity();
inline constexpr float f32_nan = std::numeric_limits<float>::quiet_NaN();

inline std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
inline std::uint64_t bits_of(double x) {
  return std::bit_cast<std::uint64_t>(x);
}
inline float up(float x) {
  return std::nextafterf(x, f32_infinity);
}
inline float down(float x) {
  return std::nextafterf(x, -f32_infinity);
}
inline double up(double x) {
  return std::nextafter(x, f64_infinity);
}
inline double down(double x) {
  return std::nextafter(x, -f64_infinity);
}

/// A float format as the list of its non-negative finite values, indexed by code, plus one value that would follow.
struct ReferenceFormat {
  ReferenceFormat(int exponent_bits, int mantissa_bits, unsigned largest_code) : largest(largest_code) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    for (unsigned code = 0; code <= largest + 1; ++code) {
      const int field = static_cast<int>(code >> mantissa_bits);
      const double mantissa = static_cast<double>(code & ((1u << mantissa_bits) - 1)) / (1 << mantissa_bits);
      values.push_back(field == 0 ? std::ldexp(mantissa, 1 - bias) : std::ldexp(1 + mantissa, field - bias));
    }
  }

  /// Code of the nearest value to a magnitude, of two equally near the even one; largest + 1 on overflow.
  unsigned nearest(double magnitude) const {
    if (magnitude >= values.back()) return largest + 1;
    const auto above = std::upper_bound(values.begin(), values.end(), magnitude);
    const auto b = static_cast<unsigned>(above - values.begin()), a = b - 1;
    const double middle = (values[a] + values[b]) / 2;  // exact: neighbours differ in their last bit
    if (magnitude != middle) return magnitude < middle ? a : b;
    return a % 2 == 0 ? a : b;
  }

  unsigned largest;
  std::vector<double> values;
};

/// Calls check(x) for every value, every boundary between neighbours and both fp32 and double neighbours of these, with both signs, up to
/// twice the largest value.
template <class Check>
void for_each_interesting(const ReferenceFormat& format, Check check) {
  const auto both_signs = [&](double x) {
    check(x);
    check(-x);
  };
  for (std::size_t code = 0; code < format.values.size(); ++code) {
    const double value = format.values[code];
    const double next = code + 1 < format.values.size() ? format.values[code + 1] : 2 * value;
    for (const double x : {value, (value + next) / 2}) {
      both_signs(x);
      both_signs(up(x));
      if (x != 0) both_signs(down(x));
      const float as_float = static_cast<float>(x);
      both_signs(up(as_float));
      if (as_float != 0) both_signs(down(as_float));
    }
  }
  for (const double tiny : {1e-40, 1e-45, 1e-300, 5e-324}) both_signs(tiny);
}

}  // namespace dodona::quant::test
