#include "ops/softmax/golden_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

constexpr std::int64_t lanes = 8;
static_assert(ops::golden_together == lanes);

/// Eight doubles in whatever registers the tier has; the second form may lie anywhere.
typedef double Lanes __attribute__((vector_size(8 * lanes)));
typedef double LanesInMemory __attribute__((vector_size(8 * lanes), aligned(8), may_alias));
typedef long long Bits __attribute__((vector_size(8 * lanes)));

#define DODONA_LANES(pointer) (*reinterpret_cast<LanesInMemory*>(pointer))
#define DODONA_CONST_LANES(pointer) (*reinterpret_cast<const LanesInMemory*>(pointer))

template <int keys>
void add_scores(const ops::GoldenScores& s, std::int64_t first) {
  constexpr long long magnitude_bits = 0x7FFFFFFFFFFFFFFF;
  Lanes sums[keys] = {}, magnitudes[keys] = {};
  const double* const key = s.keys + first * s.width;
  for (std::int64_t k = 0; k < s.width; ++k) {
    const Lanes query = DODONA_CONST_LANES(s.queries + k * lanes);
    for (int j = 0; j < keys; ++j) {
      const Lanes product = query * key[j * s.width + k];
      sums[j] += product;
      magnitudes[j] += reinterpret_cast<Lanes>(reinterpret_cast<Bits>(product) & magnitude_bits);
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

}  // namespace dodona::ops
