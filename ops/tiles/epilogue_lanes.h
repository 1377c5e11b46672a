// Epilogues in vector code. Included by *.simd.cpp only.
#pragma once

#include "ops/tiles/epilogue.h"
#include "simd/convert.h"

namespace dodona::DODONA_TIER {

/// Sums of the first min(n, 16) columns from `column` on, of one row.
DODONA_INLINE void finish(const ops::TileEpilogue& e, std::int64_t row, std::int64_t column, std::int64_t n, f32x16 value) {
  for (int s = 0; s < e.count; ++s) {
    const ops::EpilogueStep& step = e.steps[s];
    const float* const p = step.values + row * step.row_stride;
    const f32x16 f = step.column_stride == 0 ? f32x16::splat(*p) : f32x16::load_partial(p + column, n);
    value = step.kind == ops::EpilogueStep::Kind::times ? value * f : value + f;
  }
  const std::int64_t at = row * e.out_stride + column;
  switch (e.out_type) {
    case DType::bf16: {
      auto* const to = reinterpret_cast<std::uint16_t*>(e.out) + at;
      return n >= 16 ? store_bf16(value, to) : store_bf16_partial(value, to, n);
    }
    case DType::f16: {
      auto* const to = reinterpret_cast<std::uint16_t*>(e.out) + at;
      return n >= 16 ? store_f16(value, to) : store_f16_partial(value, to, n);
    }
    default: {
      auto* const to = reinterpret_cast<float*>(e.out) + at;
      return n >= 16 ? canonical_nan(value).store(to) : canonical_nan(value).store_partial(to, n);
    }
  }
}

}  // namespace dodona::DODONA_TIER
