#include "ops/rows/quantize/quantize_row.h"

#include "ops/rows/quantize/code_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::QuantizeRow;

DODONA_INLINE void store_codes(const QuantizeRow& row, f32x16 x, std::int64_t i, std::int64_t n) {
  const f32x16 scaled = x * f32x16::splat(row.scale);
  if (row.code_type == DType::f8_e4m3) {
    n >= 16 ? store_e4m3(scaled, row.codes + i) : store_e4m3_partial(scaled, row.codes + i, n);
  } else {
    n >= 16 ? store_e5m2(scaled, row.codes + i) : store_e5m2_partial(scaled, row.codes + i, n);
  }
}

template <class Lanes>
DODONA_INLINE f32x16 load(const QuantizeRow& row, std::int64_t i, std::int64_t n) {
  const void* const p = at<Lanes>(static_cast<const void*>(row.input), i);
  return n >= 16 ? Lanes::load(p) : Lanes::load_partial(p, n);
}

/// Sixteen pairs from pair i on, or those that are left.
template <class Lanes>
DODONA_INLINE void rotate_block(const QuantizeRow& row, std::int64_t i) {
  const std::int64_t pairs = row.n / 2, left = pairs - i;
  const f32x16 c = f32x16::load_partial(row.cos_sin + i, left), s = f32x16::load_partial(row.cos_sin + pairs + i, left);
  const std::int64_t first_at = row.neox ? i : 2 * i, second_at = row.neox ? pairs + i : 2 * i + 16;
  const std::int64_t first_left = row.neox ? left : 2 * left, second_left = row.neox ? left : 2 * left - 16;
  f32x16_pair x{load<Lanes>(row, first_at, first_left), second_left > 0 ? load<Lanes>(row, second_at, second_left) : f32x16::zero()};
  if (!row.neox) x = deinterleave(x.first, x.second);
  f32x16_pair y{fms(x.first, c, x.second * s), fma(x.second, c, x.first * s)};
  if (!row.neox) y = interleave(y.first, y.second);
  store_codes(row, y.first, first_at, first_left);
  if (second_left > 0) store_codes(row, y.second, second_at, second_left);
}

template <class Lanes>
void quantize(const QuantizeRow& row) {
  if (row.cos_sin != nullptr) {
    for (std::int64_t i = 0; i < row.n / 2; i += 16) rotate_block<Lanes>(row, i);
  } else if (row.code_type == DType::f8_e4m3) {
    quantize_row<E4m3Codes<0x7F>>(Lanes{}, {row.input, 1, row.n, &row.scale, row.input + row.fetched, row.codes, row.writing});
  } else {
    for (std::int64_t i = 0; i < row.n; i += 16) store_codes(row, load<Lanes>(row, i, row.n - i), i, row.n - i);
  }
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void QuantizeRowKernel::run(const QuantizeRow& row) {
  using namespace DODONA_TIER;
  with_lanes(row.type, [&](auto lanes) { quantize<decltype(lanes)>(row); });
}
template void QuantizeRowKernel::run<tier::DODONA_TIER>(const QuantizeRow&);

}  // namespace dodona::ops
