#include "ops/rows/copies/convert_row.h"

#include "ops/base/row_lanes.h"
#include "simd/convert.h"

namespace dodona::DODONA_TIER {
namespace {

struct WidenedE4m3 {
  static constexpr std::int64_t bytes = 1;
  static DODONA_INLINE f32x16 load(const void* p) { return load_e4m3(p); }
  static DODONA_INLINE f32x16 load_partial(const void* p, std::int64_t n) { return load_e4m3_partial(p, n); }
};
struct WidenedE5m2 {
  static constexpr std::int64_t bytes = 1;
  static DODONA_INLINE f32x16 load(const void* p) { return load_e5m2(p); }
  static DODONA_INLINE f32x16 load_partial(const void* p, std::int64_t n) { return load_e5m2_partial(p, n); }
};

template <class From, class To>
bool convert(const ops::ConvertRow& row) {
  const f32x16 factor = f32x16::splat(row.factor);
  const void* const from = row.from;
  void* const to = row.to;
  mask16 nans = factor != factor;
  std::int64_t i = 0;
  for (; i + 16 <= row.n; i += 16) {
    const f32x16 x = From::load(at<From>(from, i)) * factor;
    nans = nans | (x != x);
    To::store(x, at<To>(to, i));
  }
  if (i < row.n) {
    const f32x16 x = From::load_partial(at<From>(from, i), row.n - i) * factor;
    nans = nans | (x != x);
    To::store_partial(x, at<To>(to, i), row.n - i);
  }
  return !any(nans);
}

template <class From>
bool convert_from(const ops::ConvertRow& row) {
  switch (row.to_type) {
    case DType::bf16: return convert<From, Bf16Lanes>(row);
    case DType::f16: return convert<From, F16Lanes>(row);
    default: return convert<From, F32Lanes>(row);
  }
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
bool ConvertRowKernel::run(const ConvertRow& row) {
  using namespace DODONA_TIER;
  switch (row.from_type) {
    case DType::f8_e4m3: return convert_from<WidenedE4m3>(row);
    case DType::f8_e5m2: return convert_from<WidenedE5m2>(row);
    case DType::bf16: return convert_from<Bf16Lanes>(row);
    case DType::f16: return convert_from<F16Lanes>(row);
    default: return convert_from<F32Lanes>(row);
  }
}
template bool ConvertRowKernel::run<tier::DODONA_TIER>(const ConvertRow&);

}  // namespace dodona::ops
