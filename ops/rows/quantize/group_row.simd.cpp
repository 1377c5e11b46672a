#include "ops/rows/quantize/group_row.h"

#include "ops/rows/quantize/code_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

RowToCodes to_codes(const ops::GroupRow& row, const float* factors, std::uint8_t* codes) {
  return {row.input, row.groups, row.size, factors, row.next != nullptr ? row.next : row.input, codes, row.writing};
}

/// At least sixteen groups of bf16, as many at a time: the last of the comparisons are those of sixteen lanes.
void largest_of_sixteens(const ops::GroupRow& row, float* maxima) {
  const i32x16 magnitude = i32x16::splat(0x7FFF7FFF);
  for (std::int64_t done = 0; done < row.groups; done += 16) {
    // Those that are left are the last sixteen, some of them once more.
    const std::int64_t g = done + 16 <= row.groups ? done : row.groups - 16;
    const auto larger = [](i32x16 a, i32x16 b) __attribute__((always_inline)) {
      return max_16(a, b);
    };
    const auto largest_of_one = [&](int j) __attribute__((always_inline)) {
      const auto* const pairs = static_cast<const std::int32_t*>(at<Bf16Lanes>(row.input, (g + j) * row.size));
      i32x16 largest = i32x16::load(pairs) & magnitude;
      for (std::int64_t i = 16; i < row.size / 2; i += 16) largest = max_16(i32x16::load(pairs + i) & magnitude, largest);
      return largest;
    };
    const i32x16 both = largest_of_blocks<16>(largest_of_one, larger);
    const i32x16 bits = max(shl<16>(both), both & i32x16::splat(-0x10000));
    as_f32(bits).store(maxima + g);
    if (!any(bits > i32x16::splat(0x7F800000))) continue;
    for (std::int64_t j = g; j < g + 16; ++j) maxima[j] = largest_number<Bf16Lanes>(at<Bf16Lanes>(row.input, j * row.size), row.size);
  }
}

/// One group, given what its numbers are divided by or multiplied with.
template <bool divides, bool fp4>
DODONA_INLINE void scaled_codes(const ops::ScaledCodes& row, std::int64_t g) {
  const f32x16 by = f32x16::splat(row.by[g]), scale = f32x16::splat(row.values != nullptr ? row.scales[g] : 0.0f);
  const mask16 zeros = by == f32x16::zero();
  const float* const x = row.x + g * row.size;
  std::uint8_t* const codes = row.codes + g * row.size / (fp4 ? 2 : 1);
  for (std::int64_t i = 0; i < row.size; i += 16) {
    const std::int64_t left = row.size - i;
    const f32x16 number = f32x16::load_partial(x + i, left);
    const f32x16 v = divides ? select(zeros, f32x16::zero(), number / by) : number * by;
    if (fp4) {
      store_e2m1_partial(v, codes + i / 2, left);
    } else {
      store_e4m3_partial(v, codes + i, left);
      if (row.values != nullptr) (load_e4m3_partial(codes + i, left) * scale).store_partial(row.values + g * row.size + i, left);
    }
  }
}
template <bool divides, bool fp4>
void scaled_codes_of_row(const ops::ScaledCodes& row) {
  for (std::int64_t g = 0; g < row.groups; ++g) scaled_codes<divides, fp4>(row, g);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void GroupMaximaKernel::run(const GroupRow& row, float* maxima) {
  using namespace DODONA_TIER;
  with_lanes(row.type, [&](auto lanes_of) {
    using Lanes = decltype(lanes_of);
    if (row.type == DType::bf16 && row.groups >= 16 && row.size > 0 && row.size % 32 == 0) return largest_of_sixteens(row, maxima);
    const Fetch fetch{row.next != nullptr ? static_cast<const char*>(row.next) - static_cast<const char*>(row.input) : 0, 512};
    for (std::int64_t g = 0; g < row.groups; ++g) maxima[g] = largest_magnitude<Lanes>(at<Lanes>(row.input, g * row.size), row.size, fetch);
  });
}
template void GroupMaximaKernel::run<tier::DODONA_TIER>(const GroupRow&, float*);

template <class Tier>
void GroupCodesKernel::run(const GroupRow& row, const float* factors, GroupCode code, std::uint8_t* codes) {
  using namespace DODONA_TIER;
  with_lanes(row.type, [&](auto lanes_of) {
    const RowToCodes all = to_codes(row, factors, codes);
    switch (code) {
      case GroupCode::e4m3: return quantize_row<E4m3Codes<0xFE>>(lanes_of, all);
      case GroupCode::i8_cut: return quantize_row<CutI8Codes>(lanes_of, all);
      case GroupCode::i8_half_away: return quantize_row<HalfAwayI8Codes>(lanes_of, all);
    }
  });
}
template void GroupCodesKernel::run<tier::DODONA_TIER>(const GroupRow&, const float*, GroupCode, std::uint8_t*);

template <class Tier>
void ScaledCodesKernel::run(const ScaledCodes& row) {
  using namespace DODONA_TIER;
  if (row.fp4) return row.divides ? scaled_codes_of_row<true, true>(row) : scaled_codes_of_row<false, true>(row);
  return row.divides ? scaled_codes_of_row<true, false>(row) : scaled_codes_of_row<false, false>(row);
}
template void ScaledCodesKernel::run<tier::DODONA_TIER>(const ScaledCodes&);

}  // namespace dodona::ops
