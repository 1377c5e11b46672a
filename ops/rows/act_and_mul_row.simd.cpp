#include "ops/rows/act_and_mul_row.h"

#include "ops/base/row_lanes.h"
#include "simd/math.h"
#include "simd/registers.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::ActAndMulRow;

template <int count, class Body>
DODONA_INLINE void each(const Body& body) {
#pragma GCC unroll 4
  for (int k = 0; k < count; ++k) body(k);
}

/// g / (1 + e^-g) with e^-g = 2^(-g log2 e), as fast-math builds have it: the rounding of the product makes an error of 0.7 |g| ulp,
/// against the 1.17 that the contract allows. The power carries half of 2^n, so that it exists up to where the divisor, as it should,
/// becomes infinite; below e^-30 the divisor is 1.
struct Silu {
  /// Vectors that are worked on side by side, step by step: the instructions of one chain would fill the processor's window while they wait
  /// for each other. Sixteen registers do not hold more than one chain.
  static constexpr int side_by_side = many_sums_fit ? 4 : 1;

  template <int count>
  static DODONA_INLINE void of(f32x16* g) {
    const auto c = [](float x) { return f32x16::splat(x); };
    const f32x16 anchor = c(0x1.8p23f);
    f32x16 y[count], anchored[count], r[count], p[count];
    each<count>([&](int k) { y[k] = max(c(-88.9f), g[k]); });
    each<count>([&](int k) { y[k] = min(c(30.0f), y[k]); });
    each<count>([&](int k) { y[k] = y[k] * c(-0x1.715476p0f); });
    each<count>([&](int k) { anchored[k] = y[k] + anchor; });  // n in the low bits
    each<count>([&](int k) { r[k] = anchored[k] - anchor; });
    each<count>([&](int k) { r[k] = y[k] - r[k]; });
    each<count>([&](int k) { p[k] = fma(c(0x1.5bfd58p-11f), r[k], c(0x1.3ceaf8p-8f)); });
    each<count>([&](int k) { p[k] = fma(p[k], r[k], c(0x1.c6b69ap-6f)); });
    each<count>([&](int k) { p[k] = fma(p[k], r[k], c(0x1.ebf9bap-4f)); });
    each<count>([&](int k) { p[k] = fma(p[k], r[k], c(0x1.62e42ap-2f)); });
    each<count>([&](int k) { p[k] = fma(p[k], r[k], c(0.5f)); });
    each<count>([&](int k) { p[k] = as_f32(as_i32(p[k]) + shl<23>(as_i32(anchored[k]))); });
    each<count>([&](int k) { p[k] = fma(p[k], c(2.0f), c(1.0f)); });
    each<count>([&](int k) { g[k] = g[k] / p[k]; });
  }
};
struct Gelu {
  static constexpr int side_by_side = 1;
  template <int count>
  static DODONA_INLINE void of(f32x16* g) {
    *g = *g * (f32x16::splat(0.5f) * (f32x16::splat(1.0f) + erf(*g * f32x16::splat(0.70710678f))));
  }
};
struct GeluTanh {
  static constexpr int side_by_side = 1;
  template <int count>
  static DODONA_INLINE void of(f32x16* g) {
    const f32x16 inner = fma(f32x16::splat(0.044715f) * *g * *g, *g, *g);
    *g = *g * (f32x16::splat(0.5f) * (f32x16::splat(1.0f) + tanh(f32x16::splat(0.7978845608028654f) * inner)));
  }
};

template <class Function, class Lanes, bool round_activation, int count>
DODONA_INLINE void activate(f32x16 (&x)[count]) {
#pragma GCC unroll 4
  for (int k = 0; k < count; k += Function::side_by_side) Function::template of<Function::side_by_side>(x + k);
  if (round_activation) each<count>([&](int k) { x[k] = Lanes::round(x[k]); });
}

/// Where products go: numbers of the input's type.
template <class Lanes>
struct SameType {
  const ActAndMulRow& row;
  bool stream = row.writing != ops::Writing::cached && can_stream(row.out);

  static DODONA_INLINE Two load(const void* p) { return Lanes::load_two(p); }
  DODONA_INLINE void put(const Two& y, std::int64_t i) const {
    if (stream) {
      Lanes::stream_two(y, at<Lanes>(row.out, i));
    } else {
      Lanes::store_two(y, at<Lanes>(row.out, i));
    }
  }
  DODONA_INLINE void put_last(f32x16 y, std::int64_t i) const { Lanes::store_partial(y, at<Lanes>(row.out, i), row.n - i); }
};

/// Where products go: codes under a static scale.
template <class Lanes>
struct Codes {
  const ActAndMulRow& row;

  static DODONA_INLINE Two load(const void* p) { return {Lanes::load(p), Lanes::load(at<Lanes>(p, 16))}; }
  DODONA_INLINE std::uint8_t* codes(std::int64_t i) const { return static_cast<std::uint8_t*>(row.out) + i; }
  DODONA_INLINE void put(const Two& y, std::int64_t i) const {
    const f32x16 factor = f32x16::splat(row.factor);
    store_e4m3(y.a * factor, codes(i));
    store_e4m3(y.b * factor, codes(i + 16));
  }
  DODONA_INLINE void put_last(f32x16 y, std::int64_t i) const {
    if (i < row.n) store_e4m3_partial(y * f32x16::splat(row.factor), codes(i), row.n - i < 16 ? row.n - i : 16);
  }
};

template <class Function, class Lanes, class Output, bool round_activation>
void act_and_mul_row(const ActAndMulRow row) {
  constexpr int count = Function::side_by_side > 2 ? Function::side_by_side : 2;
  const Output output{row};
  std::int64_t i = 0;
  for (; i + 16 * count <= row.n; i += 16 * count) {
    f32x16 x[count];
    each<count / 2>([&](int k) {
      const std::int64_t at_k = i + 32 * k;
      fetch_two<Lanes>(row.next_gate, at_k);
      fetch_two<Lanes>(row.next_up, at_k);
      const Two gate = Output::load(at<Lanes>(row.gate, at_k));
      x[2 * k] = gate.a;
      x[2 * k + 1] = gate.b;
    });
    activate<Function, Lanes, round_activation>(x);
    each<count / 2>([&](int k) {
      const std::int64_t at_k = i + 32 * k;
      const Two up = Output::load(at<Lanes>(row.up, at_k));
      output.put({x[2 * k] * up.a, x[2 * k + 1] * up.b}, at_k);
    });
  }
  if (i < row.n) {
    f32x16 x[count];
    each<count>([&](int k) { x[k] = Lanes::load_partial(at<Lanes>(row.gate, i + 16 * k), row.n - i - 16 * k); });
    activate<Function, Lanes, round_activation>(x);
    each<count>([&](int k) {
      const std::int64_t at_k = i + 16 * k;
      output.put_last(x[k] * Lanes::load_partial(at<Lanes>(row.up, at_k), row.n - at_k), at_k);
    });
  }
  if (row.writing == ops::Writing::streamed_last) stream_end();
}

template <class Function, class Lanes, class Output>
DODONA_INLINE void act_and_mul_row_into(const ActAndMulRow& row) {
  if (row.round_activation) {
    act_and_mul_row<Function, Lanes, Output, true>(row);
  } else {
    act_and_mul_row<Function, Lanes, Output, false>(row);
  }
}

template <class Function>
DODONA_INLINE void act_and_mul_row_of(const ActAndMulRow& row) {
  with_lanes(row.type, [&](auto lanes) { act_and_mul_row_into<Function, decltype(lanes), SameType<decltype(lanes)>>(row); });
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
    case ActivationKind::silu_to_e4m3:
      return with_lanes(row.type, [&](auto lanes) { act_and_mul_row_into<Silu, decltype(lanes), Codes<decltype(lanes)>>(row); });
  }
}
template void ActAndMulRowKernel::run<tier::DODONA_TIER>(const ActAndMulRow&);

}  // namespace dodona::ops
