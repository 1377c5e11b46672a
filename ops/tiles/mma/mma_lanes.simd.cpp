#include "ops/tiles/mma/mma_lanes.h"

#include "ops/tiles/unpack/fp8.h"
#include "ops/tiles/unpack/half.h"
#include "quant/tensor_core/decode.h"
#include "simd/exact_sums.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::mma_lanes;
using ops::mma_room;
using ops::MmaDecode;
using ops::MmaSums;

using quant::tensor_core::absent;
using quant::tensor_core::absent_below;
using quant::tensor_core::special;

// ---- decoding

DODONA_INLINE i32x16 magnitude_bits(f32x16 x) {
  return as_i32(x) & i32x16::splat(0x7FFFFFFF);
}

/// As the unit sees them, with fp32's bias, and with the stand-ins for zeros, and for infinities and NaN.
DODONA_INLINE i32x16 exponents_of(const MmaDecode& d, f32x16 first, f32x16 second) {
  constexpr int bias = 127;
  return exponent_fields<7>(upper_halves(first, second), static_cast<std::int16_t>(d.lowest_exponent + bias), 0, 0x7F80, absent, special);
}

/// Numbers [mma_room][width] to their places.
void deal(const std::uint8_t* places, std::int64_t width, float* values) {
  float dealt[mma_room * mma_lanes];
  for (std::int64_t i = 0; i < mma_room; ++i)
    __builtin_memcpy(dealt + places[i] * width, values + i * width, static_cast<std::size_t>(width) * sizeof(float));
  __builtin_memcpy(values, dealt, static_cast<std::size_t>(mma_room * width) * sizeof(float));
}

template <class Unpack>
void decode_rows(const MmaDecode& d) {
  for (std::int64_t line = 0; line < d.lines; ++line) {
    float* const values = d.values + line * d.room;
    unpack_row<Unpack>(d.codes + line * d.stride, d.k, 1.0f, values);
    for (std::int64_t i = d.k; i < d.room; ++i) values[i] = 0.0f;
    for (std::int64_t i = 0; i < d.room; i += mma_room) {
      if (d.places != nullptr) deal(d.places, 1, values + i);
      const f32x16_pair halves = deinterleave(f32x16::load(values + i), f32x16::load(values + i + 16));
      store_pairs(exponents_of(d, halves.first, halves.second), d.exponents + line * d.room + i);
    }
  }
}

// Sixteen whole lines in the order of K, as many numbers of each as fill a vector: values and exponents from the codes themselves. What is
// left goes by values.

/// Lanes of four bytes of sixteen lines, from number `begin` on: body(w, words), where lane j of `words` holds four bytes of line j.
template <int code_bytes, class Body>
DODONA_INLINE void each_word(const MmaDecode& d, std::int64_t begin, const Body& body) {
  const std::byte* const from = d.codes + begin * code_bytes;
  for (int j = 0; j < 16; ++j) __builtin_prefetch(from + j * d.stride + d.k * code_bytes);  // who decodes some of K goes on where this ends
  each_word_of_columns(from, d.stride, body);
}

struct Bf16Pairs {
  static constexpr int mantissa_bits = 7;
  static constexpr std::int16_t bias = 0, infinity = 0x7F80;
  static DODONA_INLINE f32x16_pair values(i32x16 pairs) { return {as_f32(shl<16>(pairs)), as_f32(pairs & i32x16::splat(-0x10000))}; }
};
struct F16Pairs {
  static constexpr int mantissa_bits = 10;
  static constexpr std::int16_t bias = 127 - 15, infinity = 0x7C00;
  static DODONA_INLINE f32x16_pair values(i32x16 pairs) { return widen_f16_pairs(pairs); }
};

/// Returns how many numbers of each line are done.
template <class Pairs>
std::int64_t decode_pairs(const MmaDecode& d) {
  std::int64_t done = 0;
  for (; done + 32 <= d.k; done += 32)
    each_word<2>(
        d, done, [&](int w, i32x16 pairs) __attribute__((always_inline)) {
          const std::int64_t at = (done + 2 * w) * mma_lanes;
          const f32x16_pair values = Pairs::values(pairs);
          values.first.store(d.values + at);
          values.second.store(d.values + at + mma_lanes);
          store_pairs(exponent_fields<Pairs::mantissa_bits>(pairs, 1, Pairs::bias, Pairs::infinity, absent, special), d.exponents + at);
        });
  return done;
}

template <bool e5m2>
std::int64_t decode_bytes(const MmaDecode& d) {
  using Unpack = Fp8Unpack<e5m2>;
  // Halves of the same fields: e4m3's are its values / 256.
  constexpr std::int16_t bias = e5m2 ? 127 - 15 : 127 - 7, infinity = e5m2 ? 0x7C00 : 0x3F80;
  std::int64_t done = 0;
  for (; done + 64 <= d.k; done += 64) {
    typename Unpack::Nans nans;
    float* const block = d.values + done * mma_lanes;
    each_word<1>(
        d, done, [&](int w, i32x16 codes) __attribute__((always_inline)) {
          nans.look_at(codes);
          const auto [even, odd] = Unpack::halves(codes);
          const f32x16_pair first = widen_f16_pairs(even), second = widen_f16_pairs(odd);
          const f32x16 four[4] = {first.first, second.first, first.second, second.second};
          for (int i = 0; i < 4; ++i) (four[i] * f32x16::splat(Unpack::left_out)).store(block + (4 * w + i) * mma_lanes);
          const i32x16 evens = exponent_fields<10>(even, 1, bias, infinity, absent, special);
          const i32x16 odds = exponent_fields<10>(odd, 1, bias, infinity, absent, special);
          std::int16_t* const exponents = d.exponents + (done + 4 * w) * mma_lanes;
          store_pairs((evens & i32x16::splat(0xFFFF)) | shl<16>(odds), exponents);
          store_pairs(shr<16>(evens) | (odds & i32x16::splat(-0x10000)), exponents + 2 * mma_lanes);
        });
    if (nans.any())  // they came out as 480
      for (std::int64_t i = 0; i < 64 * mma_lanes; i += mma_lanes) {
        const f32x16 x = f32x16::load(block + i);
        select(abs(x) > f32x16::splat(448.0f), as_f32(i32x16::splat(0x7FC00000)), x).store(block + i);
      }
  }
  return done;
}

template <class Unpack>
void decode_panel(const MmaDecode& d, std::int64_t (*whole_lines)(const MmaDecode&)) {
  const std::int64_t done = d.lines == mma_lanes && d.places == nullptr ? whole_lines(d) : 0;
  Unpack::columns({d.codes + done * Unpack::bits / 8, d.stride, d.lines}, d.k - done, d.values + done * mma_lanes, mma_lanes);
  for (std::int64_t i = d.k; i < d.room; ++i) f32x16::zero().store(d.values + i * mma_lanes);
  for (std::int64_t i = done; i < d.room; i += 2) {
    float* const values = d.values + i * mma_lanes;
    if (d.places != nullptr && i % mma_room == 0) deal(d.places, mma_lanes, values);
    f32x16 pair[2] = {f32x16::load(values), f32x16::load(values + mma_lanes)};
    if (Unpack::left_out != 1.0f)
      for (int j = 0; j < 2; ++j) {
        pair[j] = pair[j] * f32x16::splat(Unpack::left_out);
        pair[j].store(values + j * mma_lanes);
      }
    store_pairs(exponents_of(d, pair[0], pair[1]), d.exponents + i * mma_lanes);
  }
}

struct Decoders {
  void (*rows)(const MmaDecode&);
  void (*panel)(const MmaDecode&, std::int64_t (*whole_lines)(const MmaDecode&));
  std::int64_t (*whole_lines)(const MmaDecode&);
};
template <class Unpack>
constexpr Decoders decoders_of(std::int64_t (*whole_lines)(const MmaDecode&)) {
  return {decode_rows<Unpack>, decode_panel<Unpack>, whole_lines};
}
Decoders decoders(DType type) {
  switch (type) {
    case DType::f8_e4m3: return decoders_of<Fp8Unpack<false>>(decode_bytes<false>);
    case DType::f8_e5m2: return decoders_of<Fp8Unpack<true>>(decode_bytes<true>);
    case DType::f16: return decoders_of<F16Unpack>(decode_pairs<F16Pairs>);
    default: return decoders_of<Bf16Unpack>(decode_pairs<Bf16Pairs>);
  }
}

// ---- steps

/// Rows times panels, each unit sixteen sums: chains that run side by side, with what they share loaded once.
template <int rows, int panels, bool scaled>
struct Block {
  static constexpr int units = rows * panels;
  const MmaSums& s;
  const std::int64_t row, panel;
  const float* const a = s.a + row * s.a_room;
  const std::int16_t* const a_exponents = s.a_exponents + row * s.a_room;
  const float* const b = s.b + panel * s.b_room * mma_lanes;
  const std::int16_t* const b_exponents = s.b_exponents + panel * s.b_room * mma_lanes;

  DODONA_INLINE float* sums_of(int unit) const { return s.c + (row + unit / panels) * s.c_stride + (panel + unit % panels) * mma_lanes; }
  DODONA_INLINE std::int64_t columns_of(int unit) const { return s.columns - (panel + unit % panels) * mma_lanes; }

  /// The largest exponents of a step's products.
  DODONA_INLINE void largest_exponents(std::int64_t k, i32x16 (&largest)[units]) const {
    i32x16 pairs[units];
    DODONA_UNROLL(8)
    for (int u = 0; u < units; ++u) pairs[u] = i32x16::splat(static_cast<std::int32_t>(static_cast<std::uint32_t>(2 * absent) * 0x10001u));
    for (std::int64_t i = k; i < k + s.products; i += 2) {
      i32x16 right[panels];
      DODONA_UNROLL(8)
      for (int p = 0; p < panels; ++p) right[p] = load_pairs(b_exponents + (p * s.b_room + i) * mma_lanes);
      DODONA_UNROLL(8)
      for (int r = 0; r < rows; ++r) {
        const i32x16 left = splat_pair(a_exponents + r * s.a_room + i);
        DODONA_UNROLL(8)
        for (int p = 0; p < panels; ++p) raise_pairs(pairs[r * panels + p], left, right[p]);
      }
    }
    DODONA_UNROLL(8)
    for (int u = 0; u < units; ++u) largest[u] = larger_of_pair(pairs[u]);
  }

  /// The exponents of a step's scales, both together.
  DODONA_INLINE void scales_of(std::int64_t k, i32x16 (&scales)[units]) const {
    const std::int64_t step = k / s.products, a_steps = s.a_room / s.products, b_steps = s.b_room / s.products;
    DODONA_UNROLL(8)
    for (int u = 0; u < units; ++u)
      scales[u] = i32x16::splat(s.a_scales[(row + u / panels) * a_steps + step]) +
                  i32x16::load(s.b_scales + ((panel + u % panels) * b_steps + step) * mma_lanes);
  }

  /// part = sums of the products [begin, end) of K, scaled so that the last bit of the window is 1: as integers they are cut toward zero.
  DODONA_INLINE void add_products(std::int64_t begin, std::int64_t end, const f32x16 (&scale)[units], i32x16 (&part)[units]) const {
    DODONA_UNROLL(8)
    for (int u = 0; u < units; ++u) part[u] = i32x16::zero();
    for (std::int64_t i = begin; i < end; ++i) {
      f32x16 right[panels];
      DODONA_UNROLL(8)
      for (int p = 0; p < panels; ++p) right[p] = f32x16::load(b + (p * s.b_room + i) * mma_lanes);
      DODONA_UNROLL(8)
      for (int r = 0; r < rows; ++r) {
        const f32x16 left = f32x16::splat(a[r * s.a_room + i]);
        DODONA_UNROLL(8)
        for (int p = 0; p < panels; ++p) add_cut(part[r * panels + p], right[p], left, scale[r * panels + p]);
      }
    }
  }

  void run() const {
    constexpr std::int32_t bias = 127;
    constexpr std::int32_t lowest = ops::lowest_quick + 2 * bias,
                           highest = ops::highest_quick + 2 * bias;  // as exponents of products are held
    constexpr std::int32_t least = -0x7FFFFFFF - 1, from_least = static_cast<std::int32_t>(0x80000000u - static_cast<unsigned>(lowest));
    f32x16 sum[units];
    DODONA_UNROLL(8)
    for (int u = 0; u < units; ++u) sum[u] = f32x16::load_partial(sums_of(u), columns_of(u));

    for (std::int64_t k = 0; k < s.k; k += s.products) {
      i32x16 largest[units], top[units], scales[units];
      largest_exponents(k, largest);
      if constexpr (scaled) {
        scales_of(k, scales);
        DODONA_UNROLL(8)
        for (int u = 0; u < units; ++u) largest[u] = largest[u] + scales[u];
      }
      mask16 outside = mask16::from_bits(0);
      DODONA_UNROLL(8)
      for (int u = 0; u < units; ++u) {
        top[u] = max(largest[u], shr<23>(magnitude_bits(sum[u])) + i32x16::splat(bias));
        // One comparison for both ends: what is below wraps.
        outside = outside | (top[u] + i32x16::splat(from_least) > i32x16::splat(least + highest - lowest));
      }
      bool strange = false;
      if (any(outside)) {
        DODONA_UNROLL(8)
        for (int u = 0; u < units; ++u) {
          const mask16 nothing = (magnitude_bits(sum[u]) == i32x16::zero()) & (largest[u] < i32x16::splat(absent_below));
          const mask16 within = ~(top[u] < i32x16::splat(lowest)) & ~(top[u] > i32x16::splat(highest));
          strange = strange || !all(nothing | within);
          top[u] = min(max(top[u], i32x16::splat(lowest)), i32x16::splat(highest));
        }
      }

      f32x16 scale[units];
      i32x16 total[units], part[units], over = i32x16::zero();
      DODONA_UNROLL(8)
      for (int u = 0; u < units; ++u) {
        scale[u] = as_f32(shl<23>(i32x16::splat(bias + s.addend_bits + 2 * bias) - top[u]));
        total[u] = to_i32_trunc(sum[u] * scale[u]);
      }
      f32x16 product_scale[units];
      DODONA_UNROLL(8)
      for (int u = 0; u < units; ++u) {
        product_scale[u] = scale[u];
        if constexpr (scaled) {  // bounds without effect on products that count
          const i32x16 field = i32x16::splat(bias + s.addend_bits + 2 * bias) - top[u] + scales[u];
          product_scale[u] = as_f32(shl<23>(min(max(field, i32x16::splat(1)), i32x16::splat(254))));
        }
      }
      for (std::int64_t begin = 0; begin < s.products; begin += s.run) {
        add_products(k + begin, k + (begin + s.run < s.products ? begin + s.run : s.products), product_scale, part);
        DODONA_UNROLL(8)
        for (int u = 0; u < units; ++u) {
          const i32x16 next = total[u] + part[u];
          over = over | ((total[u] ^ next) & (part[u] ^ next));
          total[u] = next;
        }
      }
      const bool overflow = any(over < i32x16::zero());
      DODONA_UNROLL(8)
      for (int u = 0; u < units; ++u) {
        const f32x16 cut = as_f32(as_i32(to_f32_cut(total[u])) & i32x16::splat(s.kept));
        const f32x16 next = cut * as_f32(i32x16::splat(254 << 23) - as_i32(scale[u]));
        if (strange || overflow) {
          float before[mma_lanes], after[mma_lanes];
          sum[u].store(before);
          next.store(after);
          s.mend(s, row + u / panels, panel + u % panels, k, before, after, overflow);
          sum[u] = f32x16::load(after);
        } else {
          sum[u] = next;
        }
      }
    }
    DODONA_UNROLL(8)
    for (int u = 0; u < units; ++u) sum[u].store_partial(sums_of(u), columns_of(u));
  }
};

/// Rows that share what is loaded of a panel.
constexpr int rows_together = many_sums_fit ? 4 : registers.of_f32x16 <= 2 ? 2 : 1;

template <bool scaled>
void add_steps(const MmaSums& s) {
  const std::int64_t panels = (s.columns + mma_lanes - 1) / mma_lanes, left = s.rows % rows_together, whole = s.rows - left;
  for (std::int64_t panel = 0; panel < panels; ++panel)
    for (std::int64_t row = 0; row < whole; row += rows_together) Block<rows_together, 1, scaled>{s, row, panel}.run();
  // A single row goes over several panels at once.
  for (std::int64_t row = whole; row < s.rows; ++row) {
    std::int64_t panel = 0;
    for (; panel + rows_together <= panels; panel += rows_together) Block<1, rows_together, scaled>{s, row, panel}.run();
    for (; panel < panels; ++panel) Block<1, 1, scaled>{s, row, panel}.run();
  }
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void MmaRowsKernel::run(const MmaDecode& rows) {
  DODONA_TIER::decoders(rows.type).rows(rows);
}
template void MmaRowsKernel::run<tier::DODONA_TIER>(const MmaDecode&);

template <class Tier>
void MmaPanelKernel::run(const MmaDecode& panel) {
  const auto decoders = DODONA_TIER::decoders(panel.type);
  decoders.panel(panel, decoders.whole_lines);
}
template void MmaPanelKernel::run<tier::DODONA_TIER>(const MmaDecode&);

template <class Tier>
void MmaSumsKernel::run(const MmaSums& sums) {
  return sums.a_scales != nullptr ? DODONA_TIER::add_steps<true>(sums) : DODONA_TIER::add_steps<false>(sums);
}
template void MmaSumsKernel::run<tier::DODONA_TIER>(const MmaSums&);

}  // namespace dodona::ops
