// What kernels of PanelProduct share in vector code: operands' formats as a table, scales of a block, sums that are fp32 already. Included
// by *.simd.cpp only.
#pragma once

#include <bit>

#include "ops/tiles/epilogue_lanes.h"
#include "ops/tiles/panel/panel.h"
#include "ops/tiles/unpack/fp8.h"
#include "ops/tiles/unpack/half.h"
#include "ops/tiles/unpack/int8.h"

namespace dodona::DODONA_TIER {

struct Unpacker {
  int bits;
  float left_out;
  void (*row)(const std::byte* row, std::int64_t k, float factor, float* to);
  void (*columns)(const Columns& from, std::int64_t k, float* to, std::int64_t to_k);
  /// Of formats that are packed: without NaN codes, and with them.
  void (*packed_columns[2])(const std::byte* fours, std::int64_t four_stride, std::int64_t k, float* to, std::int64_t to_k);
};
template <class Unpack>
constexpr Unpacker unpacker_of() {
  return {Unpack::bits, Unpack::left_out, unpack_row<Unpack>, Unpack::columns, {}};
}
template <bool e5m2>
constexpr Unpacker unpacker_of_fp8() {
  using Unpack = Fp8Unpack<e5m2>;
  return {Unpack::bits,
          Unpack::left_out,
          unpack_row<Unpack>,
          Unpack::columns,
          {Unpack::template packed_columns<false>, Unpack::template packed_columns<true>}};
}

DODONA_INLINE Unpacker unpacker(DType type) {
  switch (type) {
    case DType::f8_e4m3: return unpacker_of_fp8<false>();
    case DType::f8_e5m2: return unpacker_of_fp8<true>();
    case DType::bf16: return unpacker_of<Bf16Unpack>();
    case DType::f16: return unpacker_of<F16Unpack>();
    case DType::i8: return unpacker_of<I8Unpack>();
    default: return unpacker_of<F32Unpack>();
  }
}

/// Columns of B that are worked on next, in sixteens. Their codes are fetched meanwhile; a fetch beyond the end does nothing.
struct Ahead {
  const std::byte* first[3] = {};
  std::int64_t columns = 0, stride = 0;      ///< from column to column
  std::int64_t lines = 0, line_stride = 64;  ///< of a column
  std::int64_t begin = 0, end = 0;           ///< those whose turn it is
};
/// `offset` bytes from a place, which may be no place of the same tensor: to be fetched, not to be read.
DODONA_INLINE const std::byte* beyond(const std::byte* from, std::int64_t offset) {
  const auto address = reinterpret_cast<std::uintptr_t>(from) + static_cast<std::uintptr_t>(offset);
  return reinterpret_cast<const std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}
/// The line `offset` bytes from a place.
DODONA_INLINE void fetch_line(const std::byte* from, std::int64_t offset) {
  __builtin_prefetch(beyond(from, offset));
}
DODONA_INLINE void fetch(const Ahead& ahead, std::int64_t begin, std::int64_t end) {
  for (std::int64_t j = begin; j < end && j < ahead.columns; ++j)
    for (std::int64_t line = 0; line < ahead.lines; ++line)
      fetch_line(ahead.first[j / 16], j % 16 * ahead.stride + line * ahead.line_stride);
}

/// Scales of a block of K of `count` rows, or columns, from `first` on.
DODONA_INLINE void take_scales(const ops::PanelScales& scales, std::int64_t first, std::int64_t count, std::int64_t block, float* to) {
  const float* const of_block = scales.data + block * scales.block_stride;
  if (scales.together == 1) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = of_block[(first + i) * scales.stride];
    return;
  }
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t shared = (first + i) / scales.together, end = (shared + 1) * scales.together - first;
    const float scale = of_block[shared * scales.stride];
    for (; i < end && i < count; ++i) to[i] = scale;
  }
}

/// An epilogue as one of the products has it.
DODONA_INLINE ops::TileEpilogue epilogue_of(const ops::PanelProduct& p, std::int64_t batch) {
  ops::TileEpilogue epilogue = p.epilogue;
  epilogue.out += batch * p.out_batch_stride * (epilogue.out_type == DType::f32 ? 4 : 2);
  return epilogue;
}

}  // namespace dodona::DODONA_TIER
