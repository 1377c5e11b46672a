#include "ops/rows/order/order_key.h"

namespace dodona::DODONA_TIER {
namespace {

/// 64 bytes of keys side by side, in as many registers as the tier needs.
template <class Int>
struct Lanes {
  typedef Int Vector __attribute__((vector_size(64)));
  static constexpr std::int64_t count = 64 / sizeof(Int);

  static void keys(const Int* x, Int infinity, Vector& key) {
    Vector bits;
    __builtin_memcpy(&bits, x, sizeof bits);
    const Vector most = Vector{} + ops::most_key<Int>, magnitude = bits & most;
    // What order_key does, with masks of all ones for yes.
    const Vector ordered = (bits ^ ((bits >> (sizeof(Int) * 8 - 1)) & most)) & (magnitude != 0);
    const Vector nan = magnitude > (Vector{} + infinity);
    key = (ordered & ~nan) | (most & nan);
  }
};

template <class Int>
std::int32_t largest_of_group(const Int* x, Int infinity) {
  using Set = Lanes<Int>;
  typename Set::Vector best, key;
  Set::keys(x, infinity, best);
  for (std::int64_t i = Set::count; i < ops::GroupMaxima::group; i += Set::count) {
    Set::keys(x + i, infinity, key);
    const typename Set::Vector larger = key > best;
    best = (key & larger) | (best & ~larger);
  }
  Int all = best[0];
  for (std::int64_t j = 1; j < Set::count; ++j) all = best[j] > all ? best[j] : all;
  return all;
}

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
  for (; i + group <= row.n; i += group) row.maxima[g++] = largest_of_group(x + i, infinity);
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
