#include "quant/ue8m0.h"

#include <bit>

namespace dodona::quant {

int ceil_exponent_by_log2(float x) {
  // Exact in double: x = 2^n * (1 + delta).
  const std::uint64_t u = std::bit_cast<std::uint64_t>(static_cast<double>(x));
  const int n = static_cast<int>(u >> 52) - 1023;
  const std::uint64_t fraction = u & 0xFFFFFFFFFFFFFu;
  if (fraction == 0) return n;
  if (n == 0) return 1;
  // log2 x = n + log2(1 + delta) rounds to n while log2(1 + delta) is below half the fp32 spacing next to n on the side away from -inf.
  // With |n| in [2^k, 2^(k+1)) that spacing is 2^(k-23), and half of it again when n = -2^k. It is never hit exactly (irrational).
  // log2(1 + delta) < h  <=>  delta < 2^h - 1 = h ln2 + (h ln2)^2 / 2 + ...; h <= 2^-17 and delta is a multiple of 2^-23 (coarser for
  // denormals), so the dropped terms (relative 1e-11) cannot matter: h ln2 / 2^-23 is at least 0.09 away from an integer for every k.
  const unsigned magnitude = static_cast<unsigned>(n < 0 ? -n : n);
  const int k = std::bit_width(magnitude) - 1;
  const bool narrow = n < 0 && std::has_single_bit(magnitude);
  const double h = exp2_int(k - 24 - (narrow ? 1 : 0));
  constexpr double ln2 = 0.693147180559945309417;
  const double threshold = h * ln2 * (1.0 + 0.5 * h * ln2);
  const double delta = static_cast<double>(fraction) * 0x1p-52;
  return delta < threshold ? n : n + 1;
}

std::uint8_t ue8m0_ceil_log2(float x) {
  const float floored = x > 1e-10f ? x : 1e-10f;
  if (std::bit_cast<std::uint32_t>(floored) == 0x7F800000u) return 255;
  return static_cast<std::uint8_t>(ceil_exponent_by_log2(floored) + 127);
}

}  // namespace dodona::quant
