#include "ops/rows/group_row.h"

#include "ops/rows/code_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::GroupRow;

template <class Codes, class Lanes>
void quantize_groups(const GroupRow& row, const float* factors, std::uint8_t* codes) {
  for (std::int64_t g = 0; g < row.groups; ++g)
    quantize<Codes, Lanes>(at<Lanes>(row.input, g * row.size), row.size, factors[g], codes + g * row.size);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void GroupMaximaKernel::run(const GroupRow& row, float* maxima) {
  using namespace DODONA_TIER;
  with_lanes(row.type, [&](auto lanes_of) {
    using Lanes = decltype(lanes_of);
    for (std::int64_t g = 0; g < row.groups; ++g) maxima[g] = largest_magnitude<Lanes>(at<Lanes>(row.input, g * row.size), row.size);
  });
}
template void GroupMaximaKernel::run<tier::DODONA_TIER>(const GroupRow&, float*);

template <class Tier>
void GroupCodesKernel::run(const GroupRow& row, const float* factors, GroupCode code, std::uint8_t* codes) {
  using namespace DODONA_TIER;
  with_lanes(row.type, [&](auto lanes_of) {
    using Lanes = decltype(lanes_of);
    switch (code) {
      case GroupCode::e4m3: return quantize_groups<E4m3Codes<0xFE>, Lanes>(row, factors, codes);
      case GroupCode::i8_cut: return quantize_groups<CutI8Codes, Lanes>(row, factors, codes);
      case GroupCode::i8_half_away: return quantize_groups<HalfAwayI8Codes, Lanes>(row, factors, codes);
    }
  });
}
template void GroupCodesKernel::run<tier::DODONA_TIER>(const GroupRow&, const float*, GroupCode, std::uint8_t*);

}  // namespace dodona::ops
