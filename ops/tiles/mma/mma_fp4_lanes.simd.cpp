#include "ops/tiles/mma/mma_fp4_lanes.h"

#include "ops/tiles/unpack/nvfp4.h"
#include "simd/exact_sums.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::fp4_group;
using ops::fp4_groups;
using ops::fp4_nan_exponent;
using ops::fp4_products;
using ops::Fp4Decode;
using ops::Fp4Sums;
using ops::mma_lanes;

static_assert(Nvfp4Unpack::offset == ops::fp4_offset);

// ---- decoding

constexpr std::int32_t bit_of_rows = 4, bit_of_columns = 8;

/// Of eight codes in each lane, a bit in each nibble whose number is not zero. Two words make a group: the second one's lie beside the
/// first one's, and two bits stay free.
DODONA_INLINE i32x16 not_zero(i32x16 codes) {
  return (codes | shr<1>(codes) | shr<2>(codes)) & i32x16::splat(0x11111111);
}

/// Scales as the unit takes them.
struct Scales {
  i32x16 exponent, eighths;
  mask16 nan, zero;
};
DODONA_INLINE Scales scales_of(i32x16 codes, bool e8m0) {
  if (e8m0) return {codes - i32x16::splat(127), i32x16::splat(8), codes == i32x16::splat(0xFF), mask16::from_bits(0)};
  const i32x16 magnitude = codes & i32x16::splat(0x7F), field = shr<3>(magnitude), one = i32x16::splat(1);
  const i32x16 eighths = (magnitude & i32x16::splat(7)) + shl<3>(min(field, one));
  return {max(field, one) - i32x16::splat(7), eighths, magnitude == i32x16::splat(0x7F), eighths == i32x16::zero()};
}

/// What is kept of sixteen groups with these scales; of their products by `own` all have a bit, the others where the scale is NaN.
DODONA_INLINE void store_groups(const Scales& scales, i32x16 not_zero, std::int32_t own, std::int32_t others, float per_eighth,
                                std::int32_t* counting, std::int32_t* exponents, float* significands) {
  const i32x16 some = select(scales.zero, i32x16::zero(), not_zero) | i32x16::splat(own);
  (some | select(scales.nan, i32x16::splat(others), i32x16::zero())).store(counting);
  select(scales.nan, i32x16::splat(fp4_nan_exponent), scales.exponent).store(exponents);
  (to_f32(scales.eighths) * f32x16::splat(per_eighth)).store(significands);
}

/// Sixteen bytes, or as many as are left, a lane each.
DODONA_INLINE i32x16 load_scales(const std::uint8_t* codes, std::int64_t left) {
  std::int32_t lanes[16] = {};
  for (int i = 0; i < lanes_left(left); ++i) lanes[i] = codes[i];
  return i32x16::load(lanes);
}

void decode_row(const Fp4Decode& d, std::int64_t line) {
  const std::uint8_t* const codes = d.codes + line * d.stride;
  const std::int64_t groups = d.steps * fp4_groups, first = line * groups;
  const i32x16 ones = i32x16::splat(0x01010101);
  for (std::int64_t at = 0; at < groups; at += 16) {  // four steps
    std::int32_t corrections[16], counting[16];
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t begin = (at + 8 * half) * fp4_group;
      if (begin >= groups * fp4_group) break;
      const f32x16_pair pair = Nvfp4Unpack::row(codes, begin, d.k);
      std::int32_t sums[32], words[16];
      const i32x16 numbers[2] = {as_i32(pair.first), as_i32(pair.second)};
      for (int i = 0; i < 2; ++i) {
        dpbusd_small(i32x16::zero(), ones, numbers[i]).store(sums + 16 * i);
        if (begin + fp4_products * i < groups * fp4_group)
          numbers[i].store(reinterpret_cast<std::int32_t*>(d.numbers + first * fp4_group + begin + fp4_products * i));
      }
      not_zero(i32x16::load_partial(reinterpret_cast<const std::int32_t*>(codes + begin / 2), (d.k - begin) / 8)).store(words);
      for (std::int64_t g = 0; g < 8; ++g) {
        corrections[8 * half + g] = -ops::fp4_offset * (sums[4 * g] + sums[4 * g + 1] + sums[4 * g + 2] + sums[4 * g + 3]);
        counting[8 * half + g] = words[2 * g] | words[2 * g + 1] << 1;
      }
    }
    const std::int64_t left = groups - at;
    std::int32_t exponents[16];
    float significands[16];
    // A row's numbers and a column's are doubled, and both significands are eighths.
    store_groups(scales_of(load_scales(d.scales + first + at, left), d.e8m0), i32x16::load(counting), bit_of_rows, bit_of_columns,
                 1.0f / (4 * 64), counting, exponents, significands);
    i32x16::load(corrections).store_partial(d.corrections + first + at, left);
    i32x16::load(counting).store_partial(d.counting + first + at, left);
    i32x16::load(exponents).store_partial(d.exponents + first + at, left);
    f32x16::load(significands).store_partial(d.significands + first + at, left);
  }
}

void decode_panel(const Fp4Decode& d) {
  const i32x16 table = Nvfp4Unpack::table();
  for (std::int64_t s = 0; s < d.steps; s += 2) {
    const std::int64_t begin = s * fp4_products;
    i32x16 words[16];
    for (std::int64_t j = 0; j < 16; ++j) {
      const std::uint8_t* const from = d.codes + (j < d.lines ? j : 0) * d.stride + begin / 2;
      words[j] = j < d.lines ? i32x16::load_partial(reinterpret_cast<const std::int32_t*>(from), (d.k - begin) / 8) : i32x16::zero();
      __builtin_prefetch(from + d.k / 2);  // who decodes some of K goes on where this ends
    }
    transpose(words);
    for (std::int64_t step = s; step < s + 2 && step < d.steps; ++step) {
      std::int32_t scales[16] = {};
      for (std::int64_t j = 0; j < d.lines; ++j) __builtin_memcpy(scales + j, d.scales + (j * d.steps + step) * fp4_groups, 4);
      const i32x16 codes = i32x16::load(scales), byte = i32x16::splat(0xFF);
      const i32x16 of_groups[4] = {codes & byte, shr<8>(codes) & byte, shr<16>(codes) & byte, shr<24>(codes)};
      DODONA_UNROLL(4)
      for (int g = 0; g < 4; ++g) {
        const i32x16* const two = words + 8 * (step - s) + 2 * g;
        auto* const to = reinterpret_cast<std::int32_t*>(d.numbers + (step * 16 + 4 * g) * mma_lanes * 4);
        for (int w = 0; w < 2; ++w) {
          low_nibbles(table, two[w]).store(to + 2 * w * mma_lanes);
          high_nibbles(table, two[w]).store(to + (2 * w + 1) * mma_lanes);
        }
        const std::int64_t at = (step * fp4_groups + g) * mma_lanes;
        store_groups(scales_of(of_groups[g], d.e8m0), not_zero(two[0]) | shl<1>(not_zero(two[1])), bit_of_columns, bit_of_rows, 1.0f,
                     d.counting + at, d.exponents + at, d.significands + at);
      }
    }
  }
}

// ---- steps

/// Rows times panels, each unit sixteen sums: chains that run side by side, with what they share loaded once.
template <int rows, int panels>
struct Block {
  static constexpr int units = rows * panels;
  const Fp4Sums& s;
  const std::int64_t row, panel;

  DODONA_INLINE float* sums_of(int unit) const { return s.c + (row + unit / panels) * s.c_stride + (panel + unit % panels) * mma_lanes; }
  DODONA_INLINE std::int64_t columns_of(int unit) const { return s.columns - (panel + unit % panels) * mma_lanes; }
  /// Groups of a step of a row, and of a panel.
  DODONA_INLINE std::int64_t a_group(int r, std::int64_t step, int g) const { return ((row + r) * s.a_steps + step) * fp4_groups + g; }
  DODONA_INLINE std::int64_t b_group(int p, std::int64_t step, int g) const { return ((panel + p) * s.b_steps + step) * fp4_groups + g; }

  /// The largest exponents of groups that count; `none` without one.
  DODONA_INLINE void largest_exponents(std::int64_t step, i32x16 none, i32x16 (&largest)[units]) const {
    DODONA_UNROLL(8)
    for (int u = 0; u < units; ++u) largest[u] = none;
    DODONA_UNROLL(4)
    for (int g = 0; g < 4; ++g) {
      DODONA_UNROLL(8)
      for (int u = 0; u < units; ++u) {
        const std::int64_t a = a_group(u / panels, step, g), b = b_group(u % panels, step, g) * mma_lanes;
        const mask16 idle = (i32x16::load(s.b_counting + b) & i32x16::splat(s.a_counting[a])) == i32x16::zero();
        const i32x16 exponent = i32x16::load(s.b_exponents + b) + i32x16::splat(s.a_exponents[a]);
        largest[u] = select(idle, largest[u], max(largest[u], exponent));
      }
    }
  }

  /// total += the groups' sums in units of the window's last bit, cut; `base` is what makes a field of fp32 out of a group's exponent.
  DODONA_INLINE void add_groups(std::int64_t step, const i32x16 (&base)[units], whole_sums (&total)[units]) const {
    const i32x16 least = i32x16::splat(127 - 60), most = i32x16::splat(127 + s.addend_bits);  // without effect on groups that count
    DODONA_UNROLL(4)
    for (int g = 0; g < 4; ++g) {
      DODONA_UNROLL(8)
      for (int p = 0; p < panels; ++p) {
        const std::int64_t at = b_group(p, step, g);
        i32x16 numbers[4];
        DODONA_UNROLL(4)
        for (int i = 0; i < 4; ++i) numbers[i] = load_bytes(s.b + (at * 4 + i) * mma_lanes * 4);
        const i32x16 exponents = i32x16::load(s.b_exponents + at * mma_lanes);
        const f32x16 significands = f32x16::load(s.b_significands + at * mma_lanes);
        DODONA_UNROLL(8)
        for (int r = 0; r < rows; ++r) {
          const std::int64_t a = a_group(r, step, g);
          const std::int8_t* const codes = s.a + a * fp4_group;
          const i32x16 four[4] = {splat_bytes(codes), splat_bytes(codes + 4), splat_bytes(codes + 8), splat_bytes(codes + 12)};
          const i32x16 dot = dot16_small(i32x16::splat(s.a_corrections[a]), numbers, four);
          const i32x16 field = max(min(exponents + i32x16::splat(s.a_exponents[a]) + base[r * panels + p], most), least);
          const f32x16 addend = to_f32(dot) * (significands * f32x16::splat(s.a_significands[a])) * as_f32(shl<23>(field));
          add_cut(total[r * panels + p], addend);
        }
      }
    }
  }

  void run() const {
    constexpr std::int32_t lowest = ops::fp4_lowest_quick, highest = ops::fp4_highest_quick;
    constexpr std::int32_t least = -0x7FFFFFFF - 1, from_least = static_cast<std::int32_t>(0x80000000u - static_cast<unsigned>(lowest));
    const i32x16 none = i32x16::splat(-fp4_nan_exponent);
    f32x16 sum[units];
    DODONA_UNROLL(8)
    for (int u = 0; u < units; ++u) sum[u] = f32x16::load_partial(sums_of(u), columns_of(u));

    for (std::int64_t step = 0; step < s.steps; ++step) {
      i32x16 largest[units], top[units], base[units];
      largest_exponents(step, none, largest);
      mask16 outside = mask16::from_bits(0);
      DODONA_UNROLL(8)
      for (int u = 0; u < units; ++u) {
        top[u] = max(largest[u], shr<23>(as_i32(abs(sum[u]))) - i32x16::splat(127));
        // One comparison for both ends: what is below wraps.
        outside = outside | (top[u] + i32x16::splat(from_least) > i32x16::splat(least + highest - lowest));
      }
      unsigned strange[units] = {};
      bool some = false;
      if (any(outside)) {
        DODONA_UNROLL(8)
        for (int u = 0; u < units; ++u) {
          const mask16 nothing = (sum[u] == f32x16::zero()) & (largest[u] == none);
          const mask16 beyond = (top[u] < i32x16::splat(lowest)) | (top[u] > i32x16::splat(highest));
          strange[u] = (beyond & ~nothing).bits();
          some = some || strange[u] != 0;
          top[u] = min(max(top[u], i32x16::splat(lowest)), i32x16::splat(highest));
        }
      }

      f32x16 scale[units];
      whole_sums total[units];
      DODONA_UNROLL(8)
      for (int u = 0; u < units; ++u) {
        base[u] = i32x16::splat(127 + s.addend_bits) - top[u];
        scale[u] = as_f32(shl<23>(base[u]));
        total[u] = whole_sums::zero();
        add_cut(total[u], sum[u] * scale[u]);
      }
      add_groups(step, base, total);
      DODONA_UNROLL(8)
      for (int u = 0; u < units; ++u) {
        const f32x16 cut = as_f32(as_i32(to_f32_cut(total[u])) & i32x16::splat(s.kept));
        const f32x16 next = cut * as_f32(i32x16::splat(254 << 23) - as_i32(scale[u]));
        if (some && strange[u] != 0) {
          float before[mma_lanes], after[mma_lanes];
          sum[u].store(before);
          next.store(after);
          s.mend(s, row + u / panels, panel + u % panels, step, strange[u], before, after);
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
constexpr int rows_together = many_sums_fit ? 4 : 2;

void add_steps(const Fp4Sums& s) {
  const std::int64_t panels = (s.columns + mma_lanes - 1) / mma_lanes, left = s.rows % rows_together, whole = s.rows - left;
  for (std::int64_t panel = 0; panel < panels; ++panel)
    for (std::int64_t row = 0; row < whole; row += rows_together) Block<rows_together, 1>{s, row, panel}.run();
  // A single row goes over several panels at once.
  for (std::int64_t row = whole; row < s.rows; ++row) {
    std::int64_t panel = 0;
    for (; panel + 2 <= panels; panel += 2) Block<1, 2>{s, row, panel}.run();
    for (; panel < panels; ++panel) Block<1, 1>{s, row, panel}.run();
  }
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void Fp4RowsKernel::run(const Fp4Decode& rows) {
  for (std::int64_t line = 0; line < rows.lines; ++line) DODONA_TIER::decode_row(rows, line);
}
template void Fp4RowsKernel::run<tier::DODONA_TIER>(const Fp4Decode&);

template <class Tier>
void Fp4PanelKernel::run(const Fp4Decode& panel) {
  DODONA_TIER::decode_panel(panel);
}
template void Fp4PanelKernel::run<tier::DODONA_TIER>(const Fp4Decode&);

template <class Tier>
void Fp4SumsKernel::run(const Fp4Sums& sums) {
  DODONA_TIER::add_steps(sums);
}
template void Fp4SumsKernel::run<tier::DODONA_TIER>(const Fp4Sums&);

}  // namespace dodona::ops
