#include "ops/rows/activation/act_and_mul_row.h"

#include <cstdint>
#include <type_traits>

#include "ops/rows/number_lanes.h"
#include "simd/by_code.h"
#include "simd/math.h"
#include "simd/registers.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::ActAndMulRow;

template <int count, class Body>
DODONA_INLINE void each(const Body& body) {
  DODONA_UNROLL(8)
  for (int k = 0; k < count; ++k) body(k);
}

/// g / (1 + e^-g) with e^-g = 2^(-g log2 e), as fast-math builds have it: the rounding of the product makes an error of 0.7 |g| ulp,
/// against the 1.17 that the contract allows. The power carries half of 2^n, so that it exists up to where the divisor, as it should,
/// becomes infinite; below e^-30 the divisor is 1.
struct Silu {
  /// Vectors that are worked on side by side, step by step: the instructions of one chain would fill the processor's window while they wait
  /// for each other, the more so the longer a chain is. Sixteen registers do not hold more than one.
  static constexpr int side_by_side(bool long_chains) { return !many_sums_fit ? 1 : long_chains ? 8 : 4; }
  /// bf16 of the largest gate, either sign, that needs no clamp: 80.
  static constexpr std::int32_t most_gate = 0x42A0;

  template <int count, bool numbers>
  static DODONA_INLINE void of(f32x16* g) {
    const auto c = [](float x) { return f32x16::splat(x); };
    const f32x16 anchor = c(0x1.8p23f);
    f32x16 y[count], anchored[count], r[count], p[count];
    each<count>([&](int k) { y[k] = numbers ? g[k] : min(c(30.0f), max(c(-88.9f), g[k])); });
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
  static constexpr int side_by_side(bool) { return 1; }
  template <int count, bool>
  static DODONA_INLINE void of(f32x16* g) {
    *g = *g * (f32x16::splat(0.5f) * (f32x16::splat(1.0f) + erf(*g * f32x16::splat(0.70710678f))));
  }
};
struct GeluTanh {
  static constexpr int side_by_side(bool) { return 1; }
  template <int count, bool>
  static DODONA_INLINE void of(f32x16* g) {
    const f32x16 inner = fma(f32x16::splat(0.044715f) * *g * *g, *g, *g);
    *g = *g * (f32x16::splat(0.5f) * (f32x16::splat(1.0f) + tanh(f32x16::splat(0.7978845608028654f) * inner)));
  }
};

template <class Function, class Lanes, int together, bool round_activation, bool numbers, int count>
DODONA_INLINE void activate(f32x16 (&x)[count]) {
  DODONA_UNROLL(2)
  for (int k = 0; k < count; k += together) Function::template of<together, numbers>(x + k);
  if constexpr (round_activation && numbers) {
    each<count>([&](int k) { x[k] = round_number_to_bf16(x[k]); });
  } else if constexpr (round_activation) {
    each<count>([&](int k) { x[k] = Lanes::round(x[k]); });
  }
}

/// Silu of every bf16 there is, in fp32 or rounded to bf16, made once: two loads for an element, where eight of them take some fifteen
/// operations that wait for each other, and a division. Whoever has 32 registers of sixteen lanes computes as fast. NaN keep to the upper
/// half, so that products of them are rounded to NaN.
template <bool round_activation>
struct SiluByCode {
  alignas(64) float numbers[codes_of_16_bits];

  SiluByCode() {
    for (std::int32_t code = 0; code < codes_of_16_bits; code += 16) {
      f32x16 x = as_f32(shl<16>(lane_index() + i32x16::splat(code)));
      Silu::of<1, false>(&x);
      if (round_activation) x = round_to_bf16(x);
      select(x == x, x, as_f32(i32x16::splat(0x7FFF0000))).store(numbers + code);
    }
  }
};
template <bool round_activation>
const float* silu_by_code() {
  static const SiluByCode<round_activation> table;
  return table.numbers;
}

/// Where products go: numbers of the input's type.
template <class Lanes>
struct SameType {
  static constexpr bool to_codes = false;
  const ActAndMulRow& row;
  bool stream = row.writing != ops::Writing::cached && can_stream(row.out);

  static DODONA_INLINE Two load(const void* p) { return Lanes::load_two(p); }
  /// What a table has for what `load` would give.
  static DODONA_INLINE Two look_up(const float* table, const void* p) { return {by_code<2>(table, p), by_code<2>(table, at<Lanes>(p, 1))}; }
  DODONA_INLINE void put_pairs(i32x16 pairs, std::int64_t i) const {
    void* const p = at<Lanes>(row.out, i);
    stream ? DODONA_TIER::stream(pairs, p) : pairs.store(static_cast<std::int32_t*>(p));
  }
  template <bool numbers>
  DODONA_INLINE void put(const Two& y, std::int64_t i) const {
    if constexpr (numbers) {
      put_pairs(pairs_of_numbers(y), i);
    } else if (stream) {
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
  static constexpr bool to_codes = true;
  const ActAndMulRow& row;

  static DODONA_INLINE Two load(const void* p) { return {Lanes::load(p), Lanes::load(at<Lanes>(p, 16))}; }
  static DODONA_INLINE Two look_up(const float* table, const void* p) {
    return {by_code<1>(table, p), by_code<1>(table, at<Lanes>(p, 16))};
  }
  DODONA_INLINE std::uint8_t* codes(std::int64_t i) const { return static_cast<std::uint8_t*>(row.out) + i; }
  template <bool>
  DODONA_INLINE void put(const Two& y, std::int64_t i) const {
    const f32x16 factor = f32x16::splat(row.factor);
    store_e4m3(y.a * factor, codes(i));
    store_e4m3(y.b * factor, codes(i + 16));
  }
  DODONA_INLINE void put_last(f32x16 y, std::int64_t i) const {
    if (i < row.n) store_e4m3_partial(y * f32x16::splat(row.factor), codes(i), row.n - i < 16 ? row.n - i : 16);
  }
};

/// The elements of a row from the i-th on, one by one.
template <class Function, class Lanes, class Output, bool round_activation, int count>
DODONA_INLINE void act_and_mul_rest(const ActAndMulRow& row, const Output& output, std::int64_t i) {
  if (i >= row.n) return;
  f32x16 x[count];
  each<count>([&](int k) { x[k] = Lanes::load_partial(at<Lanes>(row.gate, i + 16 * k), row.n - i - 16 * k); });
  activate<Function, Lanes, Function::side_by_side(round_activation || Output::to_codes), round_activation, false>(x);
  each<count>([&](int k) {
    const std::int64_t at_k = i + 16 * k;
    output.put_last(x[k] * Lanes::load_partial(at<Lanes>(row.up, at_k), row.n - at_k), at_k);
  });
}

/// `numbers`: bf16 are taken for finite, and gates for such as need no clamp. Returns whether they were.
template <class Function, class Lanes, class Output, bool round_activation, bool numbers>
bool act_and_mul_row(const ActAndMulRow row) {
  constexpr int together = Function::side_by_side(round_activation || Output::to_codes), count = together > 2 ? together : 2;
  const Output output{row};
  PairsSeen gates, ups;
  std::int64_t i = 0;
  for (; i + 16 * count <= row.n; i += 16 * count) {
    f32x16 x[count];
    each<count / 2>([&](int k) {
      const std::int64_t at_k = i + 32 * k;
      fetch_two<Lanes>(row.next_gate, at_k);
      fetch_two<Lanes>(row.next_up, at_k);
      if constexpr (numbers) {
        gates.load(at<Lanes>(row.gate, at_k));
        ups.load(at<Lanes>(row.up, at_k));
      }
      const Two gate = Output::load(at<Lanes>(row.gate, at_k));
      x[2 * k] = gate.a;
      x[2 * k + 1] = gate.b;
    });
    activate<Function, Lanes, together, round_activation, numbers>(x);
    each<count / 2>([&](int k) {
      const std::int64_t at_k = i + 32 * k;
      const Two up = Output::load(at<Lanes>(row.up, at_k));
      output.template put<numbers>({x[2 * k] * up.a, x[2 * k + 1] * up.b}, at_k);
    });
  }
  act_and_mul_rest<Function, Lanes, Output, round_activation, count>(row, output, i);
  const bool taken_rightly = !numbers || (gates.up_to(Silu::most_gate) && ups.up_to(0x7F7F));
  if (row.writing == ops::Writing::streamed_last || !taken_rightly) stream_end();
  return taken_rightly;
}

/// Of bf16, whose products are taken for finite. Returns whether they were.
template <class Output, bool round_activation>
bool silu_and_mul_row_by_code(const ActAndMulRow row) {
  using Lanes = Bf16Lanes;
  const float* const table = silu_by_code<round_activation>();
  const Output output{row};
  PairsSeen products;
  std::int64_t i = 0;
  for (; i + 32 <= row.n; i += 32) {
    fetch_two<Lanes>(row.next_gate, i);
    fetch_two<Lanes>(row.next_up, i);
    const Two gate = Output::look_up(table, at<Lanes>(row.gate, i)), up = Output::load(at<Lanes>(row.up, i));
    const Two y{gate.a * up.a, gate.b * up.b};
    if constexpr (Output::to_codes) {
      output.template put<false>(y, i);
    } else {
      const i32x16 pairs = pairs_of_numbers(y);
      products.see(pairs);
      output.put_pairs(pairs, i);
    }
  }
  act_and_mul_rest<Silu, Lanes, Output, round_activation, 2>(row, output, i);
  const bool finite = products.up_to(0x7F7F);
  if (row.writing == ops::Writing::streamed_last || !finite) stream_end();
  return finite;
}

template <class Function, class Lanes, class Output, bool round_activation>
DODONA_INLINE void act_and_mul_row_of(const ActAndMulRow& row) {
  if constexpr (std::is_same_v<Function, Silu> && std::is_same_v<Lanes, Bf16Lanes>) {
    if constexpr (codes_are_looked_up) {
      if (silu_and_mul_row_by_code<Output, round_activation>(row)) return;
    } else {
      if (act_and_mul_row<Function, Lanes, Output, round_activation, true>(row)) return;
    }
  }
  act_and_mul_row<Function, Lanes, Output, round_activation, false>(row);
}
template <class Function, class Lanes, class Output>
DODONA_INLINE void act_and_mul_row_into(const ActAndMulRow& row) {
  if (row.round_activation) {
    act_and_mul_row_of<Function, Lanes, Output, true>(row);
  } else {
    act_and_mul_row_of<Function, Lanes, Output, false>(row);
  }
}

template <class Function>
DODONA_INLINE void act_and_mul_row_like(const ActAndMulRow& row) {
  with_lanes(row.type, [&](auto lanes) { act_and_mul_row_into<Function, decltype(lanes), SameType<decltype(lanes)>>(row); });
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void ActAndMulRowKernel::run(const ActAndMulRow& row) {
  using namespace DODONA_TIER;
  switch (row.kind) {
    case ActivationKind::silu: return act_and_mul_row_like<Silu>(row);
    case ActivationKind::gelu: return act_and_mul_row_like<Gelu>(row);
    case ActivationKind::gelu_tanh: return act_and_mul_row_like<GeluTanh>(row);
    case ActivationKind::silu_to_e4m3:
      return with_lanes(row.type, [&](auto lanes) { act_and_mul_row_into<Silu, decltype(lanes), Codes<decltype(lanes)>>(row); });
  }
}
template void ActAndMulRowKernel::run<tier::DODONA_TIER>(const ActAndMulRow&);

}  // namespace dodona::ops
