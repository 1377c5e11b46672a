#include "ops/rows/quantize/fp8_row.h"

#include "ops/rows/quantize/code_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::Fp8Row;

/// fmaxf(fminf(v, 448), -448) turns NaN into +448.
using Codes = E4m3Codes<0x7E>;

template <class Lanes>
void scale_and_quantize(const Fp8Row row) {
  // Memory is not to rest in this pass, which takes an eighth of the time.
  const Fetch fetch{static_cast<const char*>(row.next) - static_cast<const char*>(row.input), 512};
  const float largest = largest_magnitude<Lanes>(row.input, row.n, fetch);
  const float scale = row.true_division ? largest / 448.0f : largest * (1.0f / 448.0f);
  *row.scale = scale;
  const float factor = scale != 0 ? 1.0f / scale : 0.0f;
  quantize_row<Codes>(Lanes{}, {row.input, 1, row.n, &factor, row.next, row.codes, row.writing});
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void Fp8RowKernel::run(const Fp8Row& row) {
  using namespace DODONA_TIER;
  with_lanes(row.type, [&](auto lanes_of) { scale_and_quantize<decltype(lanes_of)>(row); });
}
template void Fp8RowKernel::run<tier::DODONA_TIER>(const Fp8Row&);

template <class Tier>
void LargestMagnitudeKernel::run(const LargestMagnitude& row) {
  using namespace DODONA_TIER;
  with_lanes(row.type, [&](auto lanes_of) { *row.result = largest_magnitude<decltype(lanes_of)>(row.input, row.n, {row.fetched}); });
}
template void LargestMagnitudeKernel::run<tier::DODONA_TIER>(const LargestMagnitude&);

template <class Tier>
void Fp8CodesKernel::run(const Fp8Codes& row) {
  using namespace DODONA_TIER;
  const void* const next = static_cast<const char*>(row.input) + row.fetched;
  with_lanes(row.type, [&](auto lanes_of) {
    quantize_row<Codes>(lanes_of, {row.input, 1, row.n, &row.factor, next, row.codes, row.writing});
  });
}
template void Fp8CodesKernel::run<tier::DODONA_TIER>(const Fp8Codes&);

}  // namespace dodona::ops
