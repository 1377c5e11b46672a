#include "ops/rows/order_key.h"

namespace dodona::DODONA_TIER {
namespace {

template <class Int>
std::int32_t largest(const Int* x, std::int64_t n, Int infinity) {
  Int best = static_cast<Int>(-1 - ops::most_key<Int>);
  for (std::int64_t i = 0; i < n; ++i) {
    const Int key = ops::order_key(x[i], infinity);
    best = key > best ? key : best;
  }
  return best;
}

template <class Int>
void maxima_of(const ops::GroupMaxima& row) {
  constexpr std::int64_t group = ops::GroupMaxima::group;
  const auto* const x = static_cast<const Int*>(row.input);
  const auto infinity = static_cast<Int>(ops::infinity_bits(row.type));
  std::int64_t i = 0, g = 0;
  for (; i + group <= row.n; i += group) row.maxima[g++] = largest(x + i, group, infinity);
  if (i < row.n) row.maxima[g] = largest(x + i, row.n - i, infinity);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void GroupMaximaKernel::run(const GroupMaxima& row) {
  using namespace DODONA_TIER;
  row.type == DType::f32 ? maxima_of<std::int32_t>(row) : maxima_of<std::int16_t>(row);
}
template void GroupMaximaKernel::run<tier::DODONA_TIER>(const GroupMaxima&);

}  // namespace dodona::ops
