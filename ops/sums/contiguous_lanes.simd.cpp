#include "ops/sums/contiguous_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

constexpr std::int64_t lanes = 8;
static_assert(ops::lines_together == lanes);

/// Eight doubles in whatever registers the tier has; the second form may lie anywhere.
typedef double Lanes __attribute__((vector_size(8 * lanes)));
typedef double LanesInMemory __attribute__((vector_size(8 * lanes), aligned(8), may_alias));
typedef long long Bits __attribute__((vector_size(8 * lanes)));

#define DODONA_MAGNITUDE(x) reinterpret_cast<Lanes>(reinterpret_cast<Bits>(x) & 0x7FFFFFFFFFFFFFFF)
/// As std::max and std::min have it: the first where neither is beyond the other.
#define DODONA_LARGER(x, y) ((x) < (y) ? (y) : (x))
#define DODONA_SMALLER(x, y) ((y) < (x) ? (y) : (x))

void add_products(const ops::ContiguousLines& c) {
  const Lanes zero = {}, line_normal = zero + c.line_normal;
  Lanes sum = zero, lowest = zero, highest = zero, positive = zero, negative = zero, largest = zero;
  for (std::int64_t k = 0; k < c.k; ++k) {
    const Lanes line = *reinterpret_cast<const LanesInMemory*>(c.lines + k * lanes);
    const double column = c.column[k], column_magnitude = column < 0 ? -column : column;
    const double column_normal = column_magnitude < c.column_normal ? c.column_normal : column_magnitude;
    const Lanes product = line * column, magnitude = DODONA_MAGNITUDE(product), line_magnitude = DODONA_MAGNITUDE(line);
    const Lanes normal = DODONA_LARGER(line_magnitude, line_normal) * column_normal;
    const Lanes counts = product != zero ? normal : zero;
    largest = DODONA_LARGER(largest, counts);
    sum += product;
    lowest = DODONA_SMALLER(lowest, sum);
    highest = DODONA_LARGER(highest, sum);
    positive += 0.5 * (magnitude + product);
    negative += 0.5 * (magnitude - product);
  }
  for (int i = 0; i < lanes; ++i) c.sums[i] = {sum[i], lowest[i], highest[i], positive[i], negative[i], largest[i]};
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void ContiguousLinesKernel::run(const ContiguousLines& lines) {
  DODONA_TIER::add_products(lines);
}
template void ContiguousLinesKernel::run<tier::DODONA_TIER>(const ContiguousLines&);

}  // namespace dodona::ops
