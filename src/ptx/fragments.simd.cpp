#include "ptx/fragments.h"

#include "simd/f32x16.h"

namespace dodona::DODONA_TIER {
namespace {

constexpr std::size_t rows = 16, lanes_of_a_warp = 32, block = 4;

/// Two registers have the sixteen rows of four columns, two apart: words of a column are every fourth.
DODONA_INLINE void spread(const std::uint32_t* upper, const std::uint32_t* lower, float* sums) {
  const auto from = [](const std::uint32_t* words) { return f32x16::load(reinterpret_cast<const float*>(words)); };
  const f32x16_pair a = deinterleave(from(upper), from(upper + 16)), b = deinterleave(from(lower), from(lower + 16));
  const f32x16_pair even = deinterleave(a.first, b.first), odd = deinterleave(a.second, b.second);
  even.first.store(sums);
  odd.first.store(sums + 2 * rows);
  even.second.store(sums + 4 * rows);
  odd.second.store(sums + 6 * rows);
}
DODONA_INLINE void gather(const float* sums, std::uint32_t* upper, std::uint32_t* lower) {
  const auto column = [&](std::size_t n) { return f32x16::load(sums + n * rows); };
  const f32x16_pair even = interleave(column(0), column(4)), odd = interleave(column(2), column(6));
  const f32x16_pair a = interleave(even.first, odd.first), b = interleave(even.second, odd.second);
  a.first.store(reinterpret_cast<float*>(upper));
  a.second.store(reinterpret_cast<float*>(upper + 16));
  b.first.store(reinterpret_cast<float*>(lower));
  b.second.store(reinterpret_cast<float*>(lower + 16));
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ptx {

template <class Tier>
void SpreadSums::run(const std::uint32_t* const* registers, std::size_t count, void* sums) {
  using namespace DODONA_TIER;
  auto* to = static_cast<float*>(sums);
  for (std::size_t r = 0; r < count; r += block, to += 8 * rows) {
    spread(registers[r], registers[r + 2], to);
    spread(registers[r + 1], registers[r + 3], to + rows);
  }
}
template void SpreadSums::run<tier::DODONA_TIER>(const std::uint32_t* const*, std::size_t, void*);

template <class Tier>
void GatherSums::run(const void* sums, std::size_t count, std::uint32_t* const* registers) {
  using namespace DODONA_TIER;
  const auto* from = static_cast<const float*>(sums);
  for (std::size_t r = 0; r < count; r += block, from += 8 * rows) {
    gather(from, registers[r], registers[r + 2]);
    gather(from + rows, registers[r + 1], registers[r + 3]);
  }
}
template void GatherSums::run<tier::DODONA_TIER>(const void*, std::size_t, std::uint32_t* const*);

template <class Tier>
bool SameRegisters::run(const std::uint32_t* const* registers, std::size_t count, const void* words) {
  using namespace DODONA_TIER;
  const auto* kept = static_cast<const std::int32_t*>(words);
  i32x16 other = i32x16::zero();
  for (std::size_t r = 0; r < count; ++r, kept += lanes_of_a_warp) {
    const auto* const now = reinterpret_cast<const std::int32_t*>(registers[r]);
    other = other | (i32x16::load(now) ^ i32x16::load(kept)) | (i32x16::load(now + 16) ^ i32x16::load(kept + 16));
  }
  return all(other == i32x16::zero());
}
template bool SameRegisters::run<tier::DODONA_TIER>(const std::uint32_t* const*, std::size_t, const void*);

}  // namespace dodona::ptx
