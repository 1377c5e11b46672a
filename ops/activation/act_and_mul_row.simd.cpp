#include "ops/activation/act_and_mul_row.h"

#include "ops/row_lanes.h"
#include "simd/math.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::ActAndMulRow;

template <class Body>
DODONA_INLINE void each(const Body& body) {
  body(0);
  body(1);
  body(2);
  body(3);
}

/// g / (1 + e^-g) with e^-g = 2^(-g log2 e), as fast-math builds have it: the rounding of the product makes an error of 0.7 |g| ulp, against the 1.17
/// that the contract allows. The power carries half of 2^n, so that it exists up to where the divisor, as it should, becomes infinite; below
/// e^-30 the divisor is 1.
struct Silu {
  static DODONA_INLINE void of(f32x16 (&g)[4]) {
    const auto c = [](float x) { return f32x16::splat(x); };
    const f32x16 anchor = c(0x1.8p23f);
    f32x16 y[4], anchored[4], r[4], p[4];
    each([&](int k) { y[k] = max(c(-88.9f), g[k]); });
    each([&](int k) { y[k] = min(c(30.0f), y[k]); });
    each([&](int k) { y[k] = y[k] * c(-0x1.715476p0f); });
    each([&](int k) { anchored[k] = y[k] + anchor; });  // n in the low bits
    each([&](int k) { r[k] = anchored[k] - anchor; });
    each([&](int k) { r[k] = y[k] - r[k]; });
    each([&](int k) { p[k] = fma(c(0x1.5bfd58p-11f), r[k], c(0x1.3ceaf8p-8f)); });
    each([&](int k) { p[k] = fma(p[k], r[k], c(0x1.c6b69ap-6f)); });
    each([&](int k) { p[k] = fma(p[k], r[k], c(0x1.ebf9bap-4f)); });
    each([&](int k) { p[k] = fma(p[k], r[k], c(0x1.62e42ap-2f)); });
    each([&](int k) { p[k] = fma(p[k], r[k], c(0.5f)); });
    each([&](int k) { p[k] = as_f32(as_i32(p[k]) + shl<23>(as_i32(anchored[k]))); });
    each([&](int k) { p[k] = fma(p[k], c(2.0f), c(1.0f)); });
    each([&](int k) { g[k] = g[k] / p[k]; });
  }
};
struct Gelu {
  static DODONA_INLINE f32x16 of_one(f32x16 g) {
    return g * (f32x16::splat(0.5f) * (f32x16::splat(1.0f) + erf(g * f32x16::splat(0.70710678f))));
  }
  static DODONA_INLINE void of(f32x16 (&g)[4]) {
    each([&](int k) { g[k] = of_one(g[k]); });
  }
};
struct GeluTanh {
  static DODONA_INLINE f32x16 of_one(f32x16 g) {
    const f32x16 inner = fma(f32x16::splat(0.044715f) * g * g, g, g);
    return g * (f32x16::splat(0.5f) * (f32x16::splat(1.0f) + tanh(f32x16::splat(0.7978845608028654f) * inner)));
  }
  static DODONA_INLINE void of(f32x16 (&g)[4]) {
    each([&](int k) { g[k] = of_one(g[k]); });
  }
};

template <class Function, class Lanes, bool round_activation>
void act_and_mul_row(const ActAndMulRow row) {
  std::int64_t i = 0;
  for (; i + 64 <= row.n; i += 64) {
    const Two gate = Lanes::load_two(at<Lanes>(row.gate, i)), gate2 = Lanes::load_two(at<Lanes>(row.gate, i + 32));
    f32x16 x[4] = {gate.a, gate.b, gate2.a, gate2.b};
    Function::of(x);
    if (round_activation) each([&](int k) { x[k] = Lanes::round(x[k]); });
    const Two up = Lanes::load_two(at<Lanes>(row.up, i)), up2 = Lanes::load_two(at<Lanes>(row.up, i + 32));
    Lanes::store_two({x[0] * up.a, x[1] * up.b}, at<Lanes>(row.out, i));
    Lanes::store_two({x[2] * up2.a, x[3] * up2.b}, at<Lanes>(row.out, i + 32));
  }
  if (i == row.n) return;
  f32x16 x[4];
  each([&](int k) { x[k] = Lanes::load_partial(at<Lanes>(row.gate, i + 16 * k), row.n - i - 16 * k); });
  Function::of(x);
  if (round_activation) each([&](int k) { x[k] = Lanes::round(x[k]); });
  each([&](int k) {
    const std::int64_t left = row.n - i - 16 * k;
    Lanes::store_partial(x[k] * Lanes::load_partial(at<Lanes>(row.up, i + 16 * k), left), at<Lanes>(row.out, i + 16 * k), left);
  });
}

template <class Function>
DODONA_INLINE void act_and_mul_row_of(const ActAndMulRow& row) {
  with_lanes(row.type, [&](auto lanes) {
    if (row.round_activation) {
      act_and_mul_row<Function, decltype(lanes), true>(row);
    } else {
      act_and_mul_row<Function, decltype(lanes), false>(row);
    }
  });
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void ActAndMulRowKernel::run(const ActAndMulRow& row) {
  using namespace DODONA_TIER;
  switch (row.kind) {
    case ActivationKind::silu: return act_and_mul_row_of<Silu>(row);
    case ActivationKind::gelu: return act_and_mul_row_of<Gelu>(row);
    case ActivationKind::gelu_tanh: return act_and_mul_row_of<GeluTanh>(row);
  }
}
template void ActAndMulRowKernel::run<tier::DODONA_TIER>(const ActAndMulRow&);

}  // namespace dodona::ops
