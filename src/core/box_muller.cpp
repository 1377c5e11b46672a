#include "core/box_muller.h"

#include <bit>
#include <cmath>

#include "core/fixed_math.h"

namespace dodona {
namespace {

/// log(u), relative error below 2^-49, for u in [2^-33, 1): u = m 2^e with m from sqrt(1/2) to sqrt(2), s = (m-1)/(m+1),
/// log m = 2 (s + s^3/3 + ... + s^17/17); |s| < 0.1716, so what is left out is below 2^-51 of the sum.
double quick_log(double u) {
  constexpr double ln2 = 0x1.62e42fefa39efp-1;
  const auto above = static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(u) - 0x3fe6a09e667f3bcd);  // from sqrt(1/2) on
  const std::int64_t e = above >> 52;
  const auto m = std::bit_cast<double>(std::bit_cast<std::uint64_t>(u) - (static_cast<std::uint64_t>(e) << 52));
  const double s = (m - 1) / (m + 1), z = s * s;
  double p = 1.0 / 17;
  for (const double coefficient : {1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3}) p = coefficient + z * p;
  return static_cast<double>(e) * ln2 + 2 * (s + s * z * p);
}

struct CosSin {
  double cos, sin;
};

/// Of word * pi / 2^31, absolute error below 2^-51: the nearest quarter turn is taken off as an integer, which leaves |r| <= pi/4 for the
/// Taylor series up to r^17.
CosSin quick_cos_sin(std::uint32_t word) {
  const std::uint32_t quarter = (word + 0x20000000u) >> 30;
  const double r = static_cast<double>(static_cast<std::int32_t>(word - (quarter << 30))) * 0x1.921fb54442d18p-30, z = r * r;
  double s = 1.0 / 355687428096000, c = 1.0 / 20922789888000;
  for (const double coefficient : {-1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6})
    s = coefficient + z * s;
  for (const double coefficient : {-1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -1.0 / 2})
    c = coefficient + z * c;
  // No branches: the quarter is random.
  const std::array<double, 2> both{1 + z * c, r + r * z * s};
  const auto sign = [](std::uint32_t bit) { return 1 - static_cast<int>(bit & 2); };
  return {sign(quarter + 1) * both[quarter & 1], sign(quarter) * both[~quarter & 1]};
}

}  // namespace

std::array<float, 2> box_muller_exact(std::uint32_t radius_word, std::uint32_t angle_word) {
  const double radius = std::sqrt(-2 * fixed::log((radius_word + 0.5) * 0x1p-32));
  const fixed::SinCos direction = fixed::sincos(angle_word * 0x1.921fb54442d18p-30);
  return {static_cast<float>(radius * direction.cos), static_cast<float>(radius * direction.sin)};
}

std::array<float, 2> box_muller(std::uint32_t radius_word, std::uint32_t angle_word) {
  const double radius = std::sqrt(-2 * quick_log((radius_word + 0.5) * 0x1p-32));
  const CosSin direction = quick_cos_sin(angle_word);
  const double x = radius * direction.cos, y = radius * direction.sin;
  // The definition's own angle, below 7, is rounded twice: 2^-50 beside the 2^-51 above; 2^-48 of the radius also holds the errors of
  // radius and products, which are relative to at most as much.
  const double margin = radius * 0x1p-48;
  const std::array<float, 2> low{static_cast<float>(x - margin), static_cast<float>(y - margin)};
  const std::array<float, 2> high{static_cast<float>(x + margin), static_cast<float>(y + margin)};
  return low == high ? low : box_muller_exact(radius_word, angle_word);
}

}  // namespace dodona
