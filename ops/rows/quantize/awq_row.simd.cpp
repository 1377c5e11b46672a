#include "ops/rows/quantize/awq_row.h"

#include "ops/base/row_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

/// Sixteen codes of two words, of one where `words` is 1: column j of a word is nibble 0, 4, 1, 5, 2, 6, 3, 7. A product shifts each lane
/// by its own number of bits.
DODONA_INLINE i32x16 codes_of(const std::int32_t* p, std::int64_t words) {
  constexpr std::int32_t to_top[16] = {1 << 28, 1 << 12, 1 << 24, 1 << 8, 1 << 20, 1 << 4, 1 << 16, 1,
                                       1 << 28, 1 << 12, 1 << 24, 1 << 8, 1 << 20, 1 << 4, 1 << 16, 1};
  const i32x16 both = select(mask16::first(8), i32x16::splat(p[0]), i32x16::splat(words > 1 ? p[1] : 0));
  return shr<28>(both * i32x16::load(to_top));
}

template <class Lanes>
void dequantize(const ops::AwqRow& row) {
  for (std::int64_t i = 0; i < row.n; i += 16) {
    const std::int64_t left = row.n - i;
    const f32x16 difference = to_f32(codes_of(row.codes + i / 8, left / 8) - codes_of(row.zeros + i / 8, left / 8));
    if (left >= 16) {
      Lanes::store(difference * Lanes::load(at<Lanes>(row.scales, i)), at<Lanes>(row.out, i));
    } else {
      Lanes::store_partial(difference * Lanes::load_partial(at<Lanes>(row.scales, i), left), at<Lanes>(row.out, i), left);
    }
  }
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void AwqRowKernel::run(const AwqRow& row) {
  using namespace DODONA_TIER;
  row.type == DType::bf16 ? dequantize<Bf16Lanes>(row) : dequantize<F16Lanes>(row);
}
template void AwqRowKernel::run<tier::DODONA_TIER>(const AwqRow&);

}  // namespace dodona::ops
