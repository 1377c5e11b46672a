// exp, exp2, log, log2, sigmoid, tanh, erf, rsqrt on sixteen lanes. Included by *.simd.cpp only.
//
// Every function is a fixed sequence of + - * / fma sqrt select and integer operations, so its bits are the same on every tier.
// Each result is at most 1 unit in the last place from the correctly rounded one, for all 2^32 inputs; tests/simd/math_test.cpp keeps a
// sweep of that. The largest errors, measured over all inputs against double precision, in units of the last place:
//   exp 0.89  exp2 0.88  log 1.02  log2 1.14  sigmoid 1.13  tanh 1.46  erf 1.29  rsqrt 1.49 Denormals are neither flushed on the way in nor
//   on the way out, overflow gives infinity, NaN gives NaN
// (whose bits are not specified: canonical_nan before they are stored).
//
// The polynomials are minimax fits over fp32 coefficients. Where x^2 is at hand anyway, even and odd terms are summed apart: as many
// operations as Horner's scheme, and half the waiting.
#pragma once

#include <cstdint>

#include "simd/f32x16.h"

namespace dodona::DODONA_TIER {

namespace math {

DODONA_INLINE f32x16 c(float x) {
  return f32x16::splat(x);
}

/// c0 + c1 x + c2 x^2 + ...
DODONA_INLINE f32x16 poly(f32x16 /*x*/, float c0) {
  return c(c0);
}
template <class... Coefficients>
DODONA_INLINE f32x16 poly(f32x16 x, float c0, Coefficients... rest) {
  return fma(poly(x, rest...), x, c(c0));
}

/// An integer n is taken from a float by adding `anchor`, which rounds it and leaves n + 254 in the low bits of the sum, `anchored`.
/// The 254 is twice the exponent bias: see `scale_at_once`.
constexpr float anchor = 0x1.8p23f + 254.0f;
DODONA_INLINE f32x16 number_of(f32x16 anchored) {
  return anchored - c(anchor);
}
/// Of the integer nearest to a * b, |a * b| < 2^21.
DODONA_INLINE f32x16 anchored_product(f32x16 a, f32x16 b) {
  return fma(a, b, c(anchor));
}

/// 2^n for n from -126 to 127.
DODONA_INLINE f32x16 power_of_two(i32x16 anchored) {
  return as_f32(shl<23>(anchored) - i32x16::splat(0x3F800000));
}
/// p * 2^n rounded once, for p near 1 and n from -252 to 254. Without an instruction for it n is split in two powers that both exist;
/// the first product is exact.
DODONA_INLINE f32x16 scale_at_once(f32x16 p, f32x16 anchored) {
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
  return {lanes::scale_by_power(p.v, number_of(anchored).v)};
#else
  const i32x16 biased = as_i32(anchored);
  const i32x16 half = shl<22>(biased) & i32x16::splat(-0x00800000);  // exponent field floor(n / 2) + 127
  const i32x16 rest = shl<23>(biased) - half;
  return (p * as_f32(half)) * as_f32(rest);
#endif
}
/// The same where some n is below -125: there denormals are made as integers. An instruction with a denormal result waits for the
/// processor's slow path, for more than all the rest of an exponential.
inline f32x16 scale_with_denormals(f32x16 p, f32x16 anchored) {
  // w = p * 2^(n + 126) is exact and at least 1 for all n above -126. Where it is less, 1 + w is rounded where the denormal is.
  const i32x16 bounded = as_i32(min(anchored, c(anchor - 120.0f)));
  const f32x16 w = p * power_of_two(bounded + i32x16::splat(126));
  const mask16 denormal = w < c(1.0f);
  const f32x16 made = as_f32(as_i32(c(1.0f) + w) - as_i32(c(1.0f)));
  return select(denormal, made, scale_at_once(p, select(denormal, c(anchor), anchored)));
}
DODONA_INLINE f32x16 scale(f32x16 p, f32x16 anchored) {
  if (any(anchored < c(anchor - 125.0f))) [[unlikely]]
    return scale_with_denormals(p, anchored);
  return scale_at_once(p, anchored);
}

constexpr float log2_e = 0x1.715476p0f;
constexpr float ln2_high = 0x1.62e43p-1f;  // subtracted n times by one fma: exact
constexpr float ln2_low = -0x1.05c61p-29f;

}  // namespace math

/// e^x = 2^n * e^r, |r| <= ln(2)/2.
DODONA_INLINE f32x16 exp(f32x16 x) {
  using namespace math;
  x = min(c(89.0f), max(c(-104.0f), x));  // the constants first, for a NaN to stay
  const f32x16 anchored = anchored_product(x, c(log2_e)), n = number_of(anchored);
  f32x16 r = fnma(n, c(ln2_high), x);
  r = fnma(n, c(ln2_low), r);
  return scale(poly(r, 1.0f, 1.0f, 0x1.fffffap-2f, 0x1.555492p-3f, 0x1.555a26p-5f, 0x1.12397cp-7f, 0x1.694c8p-10f), anchored);
}

/// 2^x; exact for integers.
DODONA_INLINE f32x16 exp2(f32x16 x) {
  using namespace math;
  x = min(c(129.0f), max(c(-151.0f), x));
  const f32x16 anchored = x + c(anchor), r = x - number_of(anchored);
  return scale(poly(r, 1.0f, 0x1.62e43p-1f, 0x1.ebfbd8p-3f, 0x1.c6af76p-5f, 0x1.3b30ap-7f, 0x1.5f0b82p-10f, 0x1.3fa206p-13f), anchored);
}

namespace math {

/// x = 2^e * (1 + f) with 1 + f in [2/3, 4/3).
struct Split {
  f32x16 e, f;
};
DODONA_INLINE Split split(f32x16 x) {
  const mask16 denormal = x < c(0x1p-126f);
  const i32x16 bits = as_i32(select(denormal, x * c(0x1p23f), x));
  const i32x16 offset = bits - i32x16::splat(0x3F2AAAAB);
  const f32x16 e = to_f32(sra<23>(offset) - select(denormal, i32x16::splat(23), i32x16::zero()));
  const f32x16 m = as_f32((offset & i32x16::splat(0x007FFFFF)) + i32x16::splat(0x3F2AAAAB));
  return {e, m - c(1.0f)};
}

/// y, but for x infinite, NaN, zero or negative what a logarithm is there.
DODONA_INLINE f32x16 with_log_specials(f32x16 y, f32x16 x) {
  const f32x16 infinity = c(__builtin_inff());
  y = select(x < infinity, y, x);
  y = select(x == c(0.0f), -infinity, y);
  return select(x < c(0.0f), c(__builtin_nanf("")), y);
}

}  // namespace math

/// Natural logarithm; -infinity at zeros, NaN below.
DODONA_INLINE f32x16 log(f32x16 x) {
  using namespace math;
  const auto [e, f] = split(x);
  const f32x16 f2 = f * f;
  const f32x16 even = poly(f2, -0.5f, -0x1.ffff14p-3f, -0x1.559804p-3f, -0x1.f3a788p-4f, -0x1.06cedcp-3f);
  const f32x16 odd = poly(f2, 0x1.555502p-2f, 0x1.99d1c6p-3f, 0x1.1ec0dp-3f, 0x1.1ec6ep-3f);
  const f32x16 tail = fma(e, c(ln2_low), fma(odd, f, even) * f2);
  return with_log_specials(fma(e, c(ln2_high), f + tail), x);
}

/// Logarithm to base 2; exact at powers of two, -infinity at zeros, NaN below.
DODONA_INLINE f32x16 log2(f32x16 x) {
  using namespace math;
  const auto [e, f] = split(x);
  const f32x16 f2 = f * f;
  const f32x16 even = poly(f2, -0x1.715476p-1f, -0x1.715404p-2f, -0x1.ecc50ap-3f, -0x1.68ea1p-3f, -0x1.795a28p-3f);
  const f32x16 odd = poly(f2, 0x1.ec7024p-2f, 0x1.279f9p-2f, 0x1.9dab04p-3f, 0x1.9ddbc2p-3f);
  const f32x16 tail = fma(f, c(0x1.4ae0cp-26f), fma(odd, f, even) * f2);  // log2(e) less its fp32 value
  // For e = 1 the two parts all but cancel, hence the sum in two pieces.
  const f32x16 high = fma(f, c(log2_e), e);
  const f32x16 low = fma(f, c(log2_e), e - high);
  return with_log_specials(high + (low + tail), x);
}

/// 1 / (1 + e^-x), also where that is denormal.
///
/// With e^-|x| = 2^n / (1 + u), the value at -|x| is 2^n / (1 + u + 2^n), and at |x| it is 1 less that.
DODONA_INLINE f32x16 sigmoid(f32x16 x) {
  using namespace math;
  const f32x16 a = max(c(-104.0f), bit_or(x, c(-0.0f)));
  const f32x16 anchored = anchored_product(a, c(log2_e)), n = number_of(anchored);
  f32x16 r = fms(n, c(ln2_high), a);  // 1 + u = e^r
  r = fma(n, c(ln2_low), r);
  const f32x16 r2 = r * r;
  const f32x16 tail = fma(poly(r2, 0x1.555492p-3f, 0x1.12397cp-7f), r, poly(r2, 0x1.fffffap-2f, 0x1.555a26p-5f, 0x1.694c8p-10f));
  const f32x16 u = fma(tail, r2, r);
  // In the denominator 2^-64 is as good as anything smaller.
  const f32x16 s = power_of_two(max(as_i32(anchored), as_i32(c(anchor - 64.0f))));
  const f32x16 y = c(1.0f) / (c(1.0f) + (u + s));
  const f32x16 error = fnma(y, u, fnma(y, s, c(1.0f) - y));  // 1 - y * (1 + s + u), free of the rounding of that sum
  const f32x16 low = scale(fma(y, error, y), anchored);
  return select(x < c(0.0f), low, c(1.0f) - low);
}

/// With h = -|x|, e^2h = 2^n * (1 + 2u) and w = (e^2h - 1) / 2 the value at |x| is -w / (1 + w).
DODONA_INLINE f32x16 tanh(f32x16 x) {
  using namespace math;
  const f32x16 a = max(c(-9.1f), bit_or(x, c(-0.0f)));
  const f32x16 anchored = anchored_product(a, c(2.0f * log2_e)), n = number_of(anchored);
  f32x16 h = fnma(n, c(0.5f * ln2_high), a);
  h = fnma(n, c(0.5f * ln2_low), h);
  const f32x16 h2 = h * h;
  const f32x16 tail = fma(poly(h2, 0x1.555554p-1f, 0x1.111306p-3f, 0x1.9e0be4p-7f), h, poly(h2, 1.0f, 0x1.5554fp-2f, 0x1.6d4366p-5f));
  const f32x16 u = fma(tail, h2, h);
  const f32x16 s = power_of_two(as_i32(anchored));
  const f32x16 k = fma(s, c(0.5f), c(-0.5f)), su = s * u;  // w = k + su
  const f32x16 w = k + su;
  const f32x16 y = c(1.0f) / (c(1.0f) + w);
  const f32x16 q = w * y;
  const f32x16 rest = fnma(su, q, fnma(q, k, k - q) + su);  // w - q * (1 + w), free of the rounding of w
  return copysign(fma(rest, y, q), x);
}

/// The error function.
///
/// With b near 2 / sqrt(pi) and 1 - erf(|x|) = e^(-b * q), q is |x| plus a smooth remainder: one polynomial serves from 0 to where the
/// value rounds to 1. Among such b this one makes ln(2) / b all but an fp32 number.
DODONA_INLINE f32x16 erf(f32x16 x) {
  using namespace math;
  const f32x16 a = min(c(3.92f), abs(x));
  const f32x16 a2 = a * a;
  const f32x16 even = poly(a2, -0x1.b17d36p-19f, -0x1.751056p-4f, 0x1.f40f6ep-13f, 0x1.6a8ad2p-11f, 0x1.b73688p-16f, 0x1.974dd8p-24f);
  const f32x16 odd = poly(a2, -0x1.20ddacp-1f, 0x1.159218p-6f, -0x1.aa725ap-10f, -0x1.63d244p-13f, -0x1.3c9e54p-19f);
  const f32x16 remainder = fma(odd, a, even);
  const f32x16 q = fma(remainder, a, -a);                            // -q
  const f32x16 q_low = fma(remainder, a, -a - q);                    // what its rounding lost
  const f32x16 anchored = anchored_product(q, c(0x1.a0be2cp0f));     // b / ln(2)
  const f32x16 r = fnma(number_of(anchored), c(0x1.3a83eap-1f), q);  // ln(2) / b
  const f32x16 r2 = r * r;
  const f32x16 even_r = poly(r2, 0x1.45f27ep-1f, 0x1.14aa86p-4f, 0x1.79cbfep-9f);
  const f32x16 odd_r = poly(r2, 0x1.ea634cp-3f, 0x1.f3792cp-7f, 0x1.ec3454p-12f);
  const f32x16 b = c(0x1.20dd38p0f);
  const f32x16 u = fma(r, b, fma(q_low, b, fma(odd_r, r, even_r) * r2));  // e^(b * r) - 1
  const f32x16 s = power_of_two(as_i32(anchored));
  return copysign(fma(s, u, s - c(1.0f)), x);
}

/// 1 / sqrt(x); infinity at zeros with their sign, NaN below.
DODONA_INLINE f32x16 rsqrt(f32x16 x) {
  return f32x16::splat(1.0f) / sqrt(x);
}

}  // namespace dodona::DODONA_TIER
