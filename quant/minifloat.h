// One rounding from double to any small binary float format, in integers.
//
// Small functions of this room are always inlined: vector code is compiled once per instruction set, and a copy of theirs that was compiled
// for one of them must not become the one symbol that everybody calls.
#pragma once

#include <bit>
#include <cstdint>

namespace dodona::quant {

/// Shape of a binary float format without its sign: `mantissa_bits` stored bits, smallest normal 2^(1 - bias).
struct MinifloatShape {
  int mantissa_bits;
  int bias;
};

inline constexpr MinifloatShape f32_shape{23, 127};
inline constexpr MinifloatShape bf16_shape{7, 127};
inline constexpr MinifloatShape f16_shape{10, 15};
inline constexpr MinifloatShape e4m3_shape{3, 7};
inline constexpr MinifloatShape e5m2_shape{2, 15};
inline constexpr MinifloatShape e2m1_shape{1, 1};

/// Exactly 2^e for e in [-1022, 1023].
[[gnu::always_inline]] constexpr double exp2_int(int e) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52);
}

/// |x| rounded to nearest, ties to even, as the code (exponent and mantissa fields) of the format. Codes of one format are ordered like
/// their values, so the caller finds overflow by comparing with its largest code: there is no upper limit to the exponent here.
/// `x` is neither infinite nor NaN.
[[gnu::always_inline]] constexpr std::uint64_t round_magnitude(double x, MinifloatShape shape) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x) & 0x7FFFFFFFFFFFFFFFu;
  const std::uint64_t significand = (bits & 0xFFFFFFFFFFFFFu) | 0x10000000000000u;
  // How far the exponent lies above that of the smallest normal. Zero and double denormals get a leading one they do not have, which does
  // not matter: everything this far down is shifted out.
  const int above = static_cast<int>(bits >> 52) - 1023 - (1 - shape.bias);
  const int wanted = 52 - shape.mantissa_bits - (above < 0 ? above : 0);
  const int dropped = wanted < 54 ? wanted : 54;
  // The leading one of a normal significand carries into the exponent field by itself, hence no +1 here.
  const std::uint64_t base = static_cast<std::uint64_t>(above < 0 ? 0 : above) << shape.mantissa_bits;
  // Adding half of what is dropped, less one unless the kept part is odd, carries exactly when rounding goes up. Without branches, because
  // which way it goes is random.
  const std::uint64_t odd = (significand >> dropped) & 1;
  return base + ((significand + (std::uint64_t{1} << (dropped - 1)) - 1 + odd) >> dropped);
}

/// The value of a magnitude code (no sign, no specials): exact.
[[gnu::always_inline]] constexpr double magnitude_value(std::uint64_t code, MinifloatShape shape) {
  const std::uint64_t mantissa = code & ((std::uint64_t{1} << shape.mantissa_bits) - 1);
  const int field = static_cast<int>(code >> shape.mantissa_bits);
  if (field == 0) return static_cast<double>(mantissa) * exp2_int(1 - shape.bias - shape.mantissa_bits);
  const std::uint64_t fraction = mantissa << (52 - shape.mantissa_bits);
  return std::bit_cast<double>((static_cast<std::uint64_t>(field - shape.bias + 1023) << 52) | fraction);
}

[[gnu::always_inline]] constexpr bool sign_of(double x) {
  return (std::bit_cast<std::uint64_t>(x) >> 63) != 0;
}

[[gnu::always_inline]] constexpr bool is_nan(double x) {
  return (std::bit_cast<std::uint64_t>(x) & 0x7FFFFFFFFFFFFFFFu) > 0x7FF0000000000000u;
}

[[gnu::always_inline]] constexpr bool is_infinite(double x) {
  return (std::bit_cast<std::uint64_t>(x) & 0x7FFFFFFFFFFFFFFFu) == 0x7FF0000000000000u;
}

}  // namespace dodona::quant
