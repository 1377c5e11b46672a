// The vector code under mma.h: codes decoded as a tensor core reads them, and its steps for blocks of sums.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dodona/dtype.h"
#include "quant/tensor_core/decode.h"
#include "simd/tier.h"

namespace dodona::ops {

/// Columns of a panel.
using quant::tensor_core::mma_lanes;
/// Decoded lines have room for a multiple of so many numbers, zeros behind the last.
inline constexpr std::int64_t mma_room = 32;

/// Lines of codes, k contiguous, and where they go.
struct MmaDecode {
  DType type;
  const std::byte* codes;
  std::int64_t stride;  ///< bytes from line to line
  std::int64_t lines, k, room;
  int lowest_exponent;         ///< of numbers other than zero
  const std::uint8_t* places;  ///< of each mma_room numbers, pairs of neighbours staying such; nullptr: where they are
  float* values;               ///< rows: [lines][room]. A panel, of at most mma_lanes lines: [room][mma_lanes]
  std::int16_t* exponents;     ///< with fp32's bias. rows: likewise. A panel: [room / 2][mma_lanes][2]
};

/// Of a scale that is NaN, as an exponent: far above what the stand-ins for products' exponents take away.
inline constexpr std::int32_t mma_nan_exponent = 1 << 20;

struct MmaRowsKernel {
  template <class Tier>
  static void run(const MmaDecode& rows);
};
/// Lanes without a line repeat the last one.
struct MmaPanelKernel {
  template <class Tier>
  static void run(const MmaDecode& panel);
};

/// Exponents of the window within which fp32 holds products, scaled addends and results exactly (or too small to count): scales are at most
/// 2^125, products that fp32 rounds lie below the window's last bit, results lie between 2^-125 and 2^103.
inline constexpr int lowest_quick = -100, highest_quick = 96;

/// Decoded operands and sums [rows][columns] that take their products over K, step by step.
struct MmaSums {
  int products;  ///< of one step, an even number
  int run;       ///< products that are added in 32 bits: run * 2^(addend_bits + 2) is at most 2^31
  int addend_bits;
  std::int32_t kept;  ///< mask of the bits that a sum keeps

  const float* a;  ///< [rows][a_room]
  const std::int16_t* a_exponents;
  const float* b;  ///< panels, [b_room][mma_lanes] each
  const std::int16_t* b_exponents;
  /// Kinds with block scales: the exponent of each step's scale, [rows][a_room / products] and panels, [b_room / products][mma_lanes]
  /// each; nullptr: none.
  const std::int32_t *a_scales, *b_scales;
  std::int64_t a_room, b_room;
  std::int64_t rows, columns, k;  ///< k: whole steps
  float* c;
  std::int64_t c_stride;

  /// Called after a step of the sixteen sums of a row and a panel when some lane was outside of the quick window; or, `all`, a total
  /// outside of 32 bits. `before` has the sums, `after` is right in lanes inside, and is made right in the others.
  void (*mend)(const MmaSums& sums, std::int64_t row, std::int64_t panel, std::int64_t k, const float* before, float* after, bool all);
  const void* spec;  ///< for `mend`
};

struct MmaSumsKernel {
  template <class Tier>
  static void run(const MmaSums& sums);
};

}  // namespace dodona::ops
