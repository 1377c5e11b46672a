// Epilogues in vector code. Included by *.simd.cpp only.
#pragma once

#include "ops/tiles/epilogue.h"
#include "simd/convert.h"

namespace dodona::DODONA_TIER {

struct ToBf16 {
  using Code = std::uint16_t;
  static DODONA_INLINE void store(f32x16 x, Code* p) { store_bf16(x, p); }
  static DODONA_INLINE void store_partial(f32x16 x, Code* p, std::int64_t n) { store_bf16_partial(x, p, n); }
};
struct ToF16 {
  using Code = std::uint16_t;
  static DODONA_INLINE void store(f32x16 x, Code* p) { store_f16(x, p); }
  static DODONA_INLINE void store_partial(f32x16 x, Code* p, std::int64_t n) { store_f16_partial(x, p, n); }
};
struct ToF32 {
  using Code = float;
  static DODONA_INLINE void store(f32x16 x, Code* p) { canonical_nan(x).store(p); }
  static DODONA_INLINE void store_partial(f32x16 x, Code* p, std::int64_t n) { canonical_nan(x).store_partial(p, n); }
};

/// One row of a step's numbers, from the first column that is asked for on; negated where they are subtracted.
struct StepNumbers {
  const float *values, *by;
  bool each_column, by_each_column, negated;

  static DODONA_INLINE StepNumbers of(const ops::EpilogueStep& step, std::int64_t row, std::int64_t column) {
    return {step.values + row * step.row_stride + column * step.column_stride,
            step.by == nullptr ? nullptr : step.by + row * step.by_row_stride + column * step.by_column_stride, step.column_stride != 0,
            step.by_column_stride != 0, step.kind == ops::EpilogueStep::Kind::minus};
  }
  DODONA_INLINE f32x16 at(std::int64_t j, std::int64_t left) const {
    f32x16 f = read(values, each_column, j, left);
    if (by != nullptr) f = f * read(by, by_each_column, j, left);
    return negated ? -f : f;
  }

 private:
  static DODONA_INLINE f32x16 read(const float* p, bool each, std::int64_t j, std::int64_t left) {
    return !each ? f32x16::splat(*p) : left >= 16 ? f32x16::load(p + j) : f32x16::load_partial(p + j, left);
  }
};

template <class To, class Sums>
void finish_as(const ops::TileEpilogue& e, std::int64_t row, std::int64_t column, std::int64_t n, const float* sums) {
  auto* const to = reinterpret_cast<typename To::Code*>(e.out) + row * e.out_stride + column;
  StepNumbers numbers[ops::TileEpilogue::most_steps];
  for (int s = 0; s < e.count; ++s) numbers[s] = StepNumbers::of(e.steps[s], row, column);
  const auto result = [&](std::int64_t j, std::int64_t left) {
    f32x16 x = Sums::result(sums + j);
    for (int s = 0; s < e.count; ++s) {
      const f32x16 f = numbers[s].at(j, left);
      if (e.steps[s].kind != ops::EpilogueStep::Kind::times) {
        x = x + f;
      } else if (s + 1 < e.count && e.steps[s + 1].fused) {
        x = fma(x, f, numbers[++s].at(j, left));
      } else {
        x = x * f;
      }
    }
    return x;
  };
  std::int64_t j = 0;
  for (; j + 16 <= n; j += 16) To::store(result(j, 16), to + j);
  if (j < n) To::store_partial(result(j, n - j), to + j, n - j);
}

/// Sums that are fp32 already.
struct FloatSums {
  static DODONA_INLINE f32x16 result(const float* p) { return f32x16::load(p); }
};

/// `n` columns from `column` on, of one row. Sums::result reads sixteen sums.
template <class Sums>
DODONA_INLINE void finish_row(const ops::TileEpilogue& e, std::int64_t row, std::int64_t column, std::int64_t n, const float* sums) {
  switch (e.out_type) {
    case DType::bf16: return finish_as<ToBf16, Sums>(e, row, column, n, sums);
    case DType::f16: return finish_as<ToF16, Sums>(e, row, column, n, sums);
    default: return finish_as<ToF32, Sums>(e, row, column, n, sums);
  }
}

}  // namespace dodona::DODONA_TIER
