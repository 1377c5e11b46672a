#include "ops/softmax/golden_lanes.h"

#include "ops/base/double_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

constexpr std::int64_t lanes = double_lanes;
static_assert(ops::golden_together == lanes);

template <int keys>
void add_scores(const ops::GoldenScores& s, std::int64_t first) {
  Lanes sums[keys] = {}, magnitudes[keys] = {};
  const double* const key = s.keys + first * s.width;
  for (std::int64_t k = 0; k < s.width; ++k) {
    const Lanes query = DODONA_CONST_LANES(s.queries + k * lanes);
    for (int j = 0; j < keys; ++j) {
      const Lanes product = query * key[j * s.width + k];
      sums[j] += product;
      magnitudes[j] += DODONA_MAGNITUDE(product);
    }
  }
  for (int j = 0; j < keys; ++j) {
    DODONA_LANES(s.sums + (first + j) * lanes) = sums[j];
    DODONA_LANES(s.magnitudes + (first + j) * lanes) = magnitudes[j];
  }
}

template <int vectors>
void add_values(const ops::GoldenSums& s, std::int64_t column) {
  Lanes sums[vectors];
  for (int v = 0; v < vectors; ++v) sums[v] = DODONA_CONST_LANES(s.sums + column + v * lanes);
  for (std::int64_t j = 0; j < s.count; ++j)
    for (int v = 0; v < vectors; ++v) sums[v] += DODONA_CONST_LANES(s.values + j * s.stride + column + v * lanes) * s.weights[j];
  for (int v = 0; v < vectors; ++v) DODONA_LANES(s.sums + column + v * lanes) = sums[v];
}

template <bool distances_may_count>
void add_slacks(const ops::GoldenSlacks& s, std::int64_t column) {
  const Lanes exact = DODONA_CONST_LANES(s.exact + column);
  Lanes slack = DODONA_CONST_LANES(s.slack + column), magnitudes = DODONA_CONST_LANES(s.magnitudes + column),
        undivided = DODONA_CONST_LANES(s.undivided + column), largest = DODONA_CONST_LANES(s.largest + column);
  for (std::int64_t j = 0; j < s.count; ++j) {
    const Lanes value = DODONA_CONST_LANES(s.values + j * s.stride + column), off = value - exact;
    const Lanes magnitude = DODONA_MAGNITUDE(value), distance = DODONA_MAGNITUDE(off);
    const Lanes counts = distances_may_count ? DODONA_LARGER(magnitude, distance) : magnitude;
    const double most = s.most[j];
    slack += s.drift[j] * distance + s.lost[j] * counts;
    magnitudes += most * magnitude;
    undivided += magnitude * s.above_1;
    largest = DODONA_LARGER(largest, magnitude);
    if (most > 0 && most < s.may_flush_below) slack += most * magnitude;
  }
  DODONA_LANES(s.slack + column) = slack;
  DODONA_LANES(s.magnitudes + column) = magnitudes;
  DODONA_LANES(s.undivided + column) = undivided;
  DODONA_LANES(s.largest + column) = largest;
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void GoldenScoresKernel::run(const GoldenScores& scores) {
  std::int64_t j = 0;
  for (; j + 4 <= scores.count; j += 4) DODONA_TIER::add_scores<4>(scores, j);
  for (; j < scores.count; ++j) DODONA_TIER::add_scores<1>(scores, j);
}
template void GoldenScoresKernel::run<tier::DODONA_TIER>(const GoldenScores&);

template <class Tier>
void GoldenSumsKernel::run(const GoldenSums& sums) {
  std::int64_t column = 0;
  for (; column + 4 * DODONA_TIER::lanes <= sums.width; column += 4 * DODONA_TIER::lanes) DODONA_TIER::add_values<4>(sums, column);
  for (; column < sums.width; column += 2 * DODONA_TIER::lanes) DODONA_TIER::add_values<2>(sums, column);
}
template void GoldenSumsKernel::run<tier::DODONA_TIER>(const GoldenSums&);

template <class Tier>
void GoldenSlacksKernel::run(const GoldenSlacks& slacks) {
  for (std::int64_t column = 0; column < slacks.width; column += DODONA_TIER::lanes)
    slacks.distances_may_count ? DODONA_TIER::add_slacks<true>(slacks, column) : DODONA_TIER::add_slacks<false>(slacks, column);
}
template void GoldenSlacksKernel::run<tier::DODONA_TIER>(const GoldenSlacks&);

}  // namespace dodona::ops
