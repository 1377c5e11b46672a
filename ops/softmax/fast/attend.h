// Attention in fast mode: the units that its work is cut into.
//
// The queries of a row lie in lanes; they are called heads here, whatever they are. The keys of a row are cut into splits of attend_split
// keys and these into blocks of attend_block keys. Heads lie in lanes, so that a head's bits depend neither on how many share a vector, nor
// on the batch, nor on the threads:
//     s[j]  = z[j] * sigma, z the pair sum (simd/bf16_pairs.h) over the key's elements; sigma = fl32(scale * log2 e); with a cap or a
//             temperature t
//             (tanh(z[j] * fl32(scale / cap)) * fl32(cap * log2 e)) * t, or (z[j] * sigma) * t
//     m     = max(m, block's s);  p[j] = exp2(s[j] - m), times 256 for e4m3 where all keys are;  p is rounded to the values' type for its
//             products alone
//     l     = fma(l, a, sum of p in the block), a = exp2(m_before - m);  o = o * a, then a pair sum over the block's keys from there on
// Denormals count as zeros in both pair sums and in o * a.
// A query that does not see all keys of a block takes nothing of those that it does not see, whatever they hold: the chains of its pair
// sums go over the others. Where windows hide the first keys of a row, splits and blocks still begin where they would if it hid none.
// Cached keys are in splits of their own. Splits are merged in order, o = sum of exp2(m_split - max m) * o_split and l likewise, and out =
// o
// * (1/l * out_scale); a sink takes part in the maximum and is the first addend of l.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dodona/dtype.h"
#include "ops/softmax/attention.h"
#include "simd/tier.h"

namespace dodona::ops {

inline constexpr std::int64_t attend_block = 128, attend_split = 1024;
/// Heads of one unit of work, a multiple of 16: so many at most, and of vectors, which hold no more sums in a first-level cache.
inline constexpr std::int64_t attend_most_heads = 128, attend_most_heads_of_vectors = 64;

/// One split of one row for some heads.
struct AttendUnit {
  QueryParts queries;                   ///< from the first of the heads on
  std::int64_t heads, lanes;            ///< lanes: heads rounded up to 16
  std::int64_t key_width, value_width;  ///< multiples of 16
  const std::byte* const* keys;         ///< rows of key_width elements, or as key_rows says
  const std::byte* const* values;       ///< rows of value_width; nullptr where they begin those of the keys
  std::int64_t key_count;
  const std::int32_t* visible;          ///< for each lane before which key those end that it sees, rising; nullptr: all
  const std::int32_t* hidden;           ///< and at which one they begin, likewise; nullptr: the first
  DType type, query_type, weight_type;  ///< of keys and values; weight_type: `type`, or f32
  KeyRows key_rows;
  float weight_exponent;      ///< weights are counted in units of 2 to the power of less it
  float sigma, cap;           ///< cap: not 0, and then sigma stands for scale / cap
  const float* temperatures;  ///< of each lane; nullptr: 1
  float* partial;             ///< m[lanes], l[lanes], o[value_width][lanes]
  float* scratch;             ///< attend_scratch_floats
};
inline constexpr std::int64_t attend_partial_floats(std::int64_t lanes, std::int64_t value_width) {
  return (2 + value_width) * lanes;
}
/// `separate`: elements of a value that lies outside its key, else 0.
inline constexpr std::int64_t attend_scratch_floats(std::int64_t lanes, std::int64_t key_width, std::int64_t separate) {
  return key_width * lanes + attend_block * (key_width + separate) + attend_block * lanes;
}
struct AttendUnitKernel {
  template <class Tier>
  static void run(const AttendUnit& unit);
};

/// All splits of one row for some heads, to its output.
struct AttendMerge {
  float* partials;      ///< of the first split; used up
  std::int64_t stride;  ///< floats from split to split
  std::int64_t splits, heads, lanes, value_width;
  DType out_type;
  float weight_exponent;  ///< as AttendUnit has it
  float out_scale;
  const float* sinks;  ///< [lanes] base 2, or nullptr
  std::byte* out;
  std::int64_t out_stride;  ///< bytes from head to head
  float* lse;               ///< of the first head, or nullptr
  float* top;               ///< of the first head, or nullptr: the largest score, base 2
  std::int64_t lse_stride;  ///< from head to head, of both
  bool natural_lse;         ///< lse * fl32(ln 2) in its place
};
struct AttendMergeKernel {
  template <class Tier>
  static void run(const AttendMerge& merge);
};

}  // namespace dodona::ops
