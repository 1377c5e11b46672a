#include "ops/softmax/mla_decode.h"
#include "ops/base/row_lanes.h"
#include "simd/math.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::mla_block;
using ops::mla_latent;
using ops::mla_rope;
using ops::mla_width;
using ops::MlaMerge;
using ops::MlaUnit;

struct E4m3Lanes {
  static constexpr std::int64_t bytes = 1;
  static DODONA_INLINE f32x16 load(const void* p) { return load_e4m3(p); }
  /// Rounded to e4m3, for 0 <= x <= 448 and NaN.
  static DODONA_INLINE f32x16 round(f32x16 x) {
    const i32x16 u = as_i32(x), odd = shr<20>(u) & i32x16::splat(1);
    const f32x16 normal = as_f32((u + i32x16::splat(0x7FFFF) + odd) & i32x16::splat(-0x100000));
    const f32x16 anchor = f32x16::splat(0x1p14f);  // its unit in the last place is 2^-9, that of the denormals
    return select(x < f32x16::splat(0x1p-6f), (x + anchor) - anchor, select(x == x, normal, x));
  }
};

template <class Body>
DODONA_INLINE void with_cache_lanes(DType type, const Body& body) {
  if (type == DType::f8_e4m3) return body(E4m3Lanes{});
  with_lanes(type, body);
}

/// Weights of e4m3 caches are counted in units of 2^-8, which keeps small ones out of the denormals.
constexpr float weight_exponent(DType type) {
  return type == DType::f8_e4m3 ? 8.0f : 0.0f;
}

// ---- operands

/// queries[k][lanes] from heads whose elements lie one after another; lanes without a head are zero.
template <class Lanes>
void pack_queries(const std::byte* q, std::int64_t stride, std::int64_t heads, std::int64_t lanes, std::int64_t width, float* queries) {
  for (std::int64_t h = 0; h < lanes; h += 16)
    for (std::int64_t k = 0; k < width; k += 16) {
      f32x16 rows[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) rows[i] = h + i < heads ? Lanes::load(q + (h + i) * stride + k * Lanes::bytes) : f32x16::zero();
      transpose(rows);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) rows[i].store(queries + (k + i) * lanes + h);
    }
}

template <class Lanes>
void widen_keys(const std::byte* const* keys, std::int64_t count, float* wide) {
  for (std::int64_t j = 0; j < count; ++j)
    for (std::int64_t k = 0; k < mla_width; k += 16) Lanes::load(keys[j] + k * Lanes::bytes).store(wide + j * mla_width + k);
}

// ---- products: c[i][lanes] += a[i][k] * b[k][lanes], with all of c in registers

/// What c holds before.
enum class Start { zero, sums, scaled };

struct Operands {
  const float* a;
  const float* b;
  float* c;
  std::int64_t lanes, k;
  const float* factor;  ///< Start::scaled: c is multiplied by it first
};

template <std::int64_t a_row, std::int64_t a_column, int rows, int vectors>
void multiply(const Operands o, Start start) {
  f32x16 c[rows][vectors];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      c[i][v] = start == Start::zero ? f32x16::zero() : f32x16::load(o.c + i * o.lanes + 16 * v);
      if (start == Start::scaled) c[i][v] = c[i][v] * f32x16::load(o.factor + 16 * v);
    }
  for (std::int64_t k = 0; k < o.k; ++k) {
    f32x16 b[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) b[v] = f32x16::load(o.b + k * o.lanes + 16 * v);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const f32x16 a = f32x16::splat(o.a[i * a_row + k * a_column]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) c[i][v] = fma(a, b[v], c[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) c[i][v].store(o.c + i * o.lanes + 16 * v);
}

#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
constexpr int most_vectors = 4;  // with six rows 24 of 32 registers
#else
constexpr int most_vectors = 1;  // 12 of 16 registers of eight lanes
#endif

template <std::int64_t a_row, std::int64_t a_column, int rows>
DODONA_INLINE void multiply_rows(Operands o, Start start) {
  if constexpr (most_vectors == 4) {
    switch (o.lanes) {
      case 64: return multiply<a_row, a_column, rows, 4>(o, start);
      case 48: return multiply<a_row, a_column, rows, 3>(o, start);
      case 32: return multiply<a_row, a_column, rows, 2>(o, start);
      default: return multiply<a_row, a_column, rows, 1>(o, start);
    }
  }
  for (std::int64_t lane = 0; lane < o.lanes; lane += 16) {
    multiply<a_row, a_column, rows, 1>(o, start);
    o.b += 16;
    o.c += 16;
    if (o.factor != nullptr) o.factor += 16;
  }
}

/// Row groups of at most six, `each(first row)` called before each. Eight rows make two fours rather than a six and a lame two.
template <std::int64_t a_row, std::int64_t a_column, class Each>
DODONA_INLINE void multiply_all(Operands o, std::int64_t rows, Start start, const Each& each) {
  for (std::int64_t i = 0; i < rows;) {
    const std::int64_t left = rows - i, n = left >= 6 && left != 8 ? 6 : left >= 4 ? 4 : 1;
    each(i);
    if (n == 6) {
      multiply_rows<a_row, a_column, 6>(o, start);
    } else if (n == 4) {
      multiply_rows<a_row, a_column, 4>(o, start);
    } else {
      multiply_rows<a_row, a_column, 1>(o, start);
    }
    o.a += n * a_row;
    o.c += n * o.lanes;
    i += n;
  }
}

// ---- one block of keys

/// The scores of a block times sigma, the new maximum, the weights rounded for their products, and the sum of the unrounded ones.
/// `factor` becomes what earlier sums are to be multiplied with.
template <class Lanes>
void weigh(float* scores, std::int64_t keys, const MlaUnit& unit, bool first, float* factor) {
  const f32x16 sigma = f32x16::splat(unit.sigma), offset = f32x16::splat(weight_exponent(unit.type));
  float* const maxima = unit.partial;
  float* const sums = maxima + unit.lanes;
  for (std::int64_t lane = 0; lane < unit.lanes; lane += 16) {
    const f32x16 before = first ? f32x16::splat(-__builtin_inff()) : f32x16::load(maxima + lane);
    f32x16 largest = before;
    for (std::int64_t j = 0; j < keys; ++j) {
      float* const p = scores + j * unit.lanes + lane;
      const f32x16 s = f32x16::load(p) * sigma;
      s.store(p);
      largest = max(s, largest);
    }
    f32x16 sum = f32x16::zero();
    for (std::int64_t j = 0; j < keys; ++j) {
      float* const p = scores + j * unit.lanes + lane;
      const f32x16 weight = exp2((f32x16::load(p) - largest) + offset);
      sum = sum + weight;
      Lanes::round(weight).store(p);
    }
    if (!first) {
      const f32x16 a = exp2(before - largest);
      a.store(factor + lane);
      sum = fma(f32x16::load(sums + lane), a, sum);
    }
    largest.store(maxima + lane);
    sum.store(sums + lane);
  }
}

DODONA_INLINE void fetch_row(const std::byte* row, std::int64_t bytes) {
  for (std::int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(row + line);
}

template <class Lanes>
void attend(const MlaUnit unit) {
  const std::int64_t lanes = unit.lanes;
  float* const queries = unit.scratch;
  float* const wide = queries + mla_width * lanes;
  float* const scores = wide + mla_block * mla_width;
  float* const sums = unit.partial + 2 * lanes;
  float factor[ops::mla_most_heads];
  pack_queries<Lanes>(unit.q_nope, unit.q_nope_stride, unit.heads, lanes, mla_latent, queries);
  pack_queries<Lanes>(unit.q_pe, unit.q_pe_stride, unit.heads, lanes, mla_rope, queries + mla_latent * lanes);
  // Parts of the queries that a first-level cache holds while all keys of a block pass.
  constexpr std::int64_t part = 96;
  static_assert(mla_width % part == 0);
  for (std::int64_t begin = 0; begin < unit.key_count; begin += mla_block) {
    const std::int64_t keys = unit.key_count - begin < mla_block ? unit.key_count - begin : mla_block;
    widen_keys<Lanes>(unit.keys + begin, keys, wide);
    for (std::int64_t k = 0; k < mla_width; k += part) {
      const Operands o{wide + k, queries + k * lanes, scores, lanes, part, nullptr};
      const std::int64_t ahead = begin + mla_block + k / part * (mla_block * part / mla_width);
      multiply_all<mla_width, 1>(o, keys, k == 0 ? Start::zero : Start::sums, [&](std::int64_t j) {
        // Meanwhile the next block's rows come in, each part of the queries fetching its share of them.
        const std::int64_t next = ahead + j / 6;
        if (j % 6 == 0 && next < unit.key_count) fetch_row(unit.keys[next], mla_width * Lanes::bytes);
      });
    }
    weigh<Lanes>(scores, keys, unit, begin == 0, factor);
    const Operands o{wide, scores, sums, lanes, keys, begin == 0 ? nullptr : factor};
    multiply_all<1, mla_width>(o, mla_latent, begin == 0 ? Start::zero : Start::scaled, [](std::int64_t) {});
  }
}

// ---- merging

DODONA_INLINE float* partial_of(const MlaMerge& m, std::int64_t split) {
  return m.partials + split * m.stride;
}

/// One vector of heads: the splits' maxima become their weights. Returns the factor of the output; writes lse.
DODONA_INLINE f32x16 merge_weights(const MlaMerge& m, std::int64_t lane) {
  f32x16 largest = f32x16::load(partial_of(m, 0) + lane);
  for (std::int64_t s = 1; s < m.splits; ++s) largest = max(f32x16::load(partial_of(m, s) + lane), largest);
  f32x16 total = f32x16::zero();
  for (std::int64_t s = 0; s < m.splits; ++s) {
    float* const p = partial_of(m, s) + lane;
    const f32x16 weight = exp2(f32x16::load(p) - largest);
    total = fma(weight, f32x16::load(p + m.lanes), total);
    weight.store(p);
  }
  if (m.lse != nullptr) {
    const f32x16 lse = largest + (log2(total) - f32x16::splat(weight_exponent(m.cache_type)));
    canonical_nan(lse).store_partial(m.lse + lane, m.heads - lane);
  }
  return (f32x16::splat(1.0f) / total) * f32x16::splat(m.out_scale);
}

template <class Out>
void merge_to(const MlaMerge m) {
  for (std::int64_t lane = 0; lane < m.heads; lane += 16) {
    const f32x16 factor = merge_weights(m, lane);
    for (std::int64_t column = 0; column < mla_latent; column += 16) {
      f32x16 block[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        const std::int64_t at = (2 + column + i) * m.lanes + lane;
        block[i] = f32x16::load(partial_of(m, 0) + lane) * f32x16::load(partial_of(m, 0) + at);
        for (std::int64_t s = 1; s < m.splits; ++s)
          block[i] = fma(f32x16::load(partial_of(m, s) + lane), f32x16::load(partial_of(m, s) + at), block[i]);
        block[i] = block[i] * factor;
      }
      transpose(block);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i)
        if (lane + i < m.heads) Out::store(block[i], m.out + (lane + i) * m.out_stride + column * Out::bytes);
    }
  }
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void MlaUnitKernel::run(const MlaUnit& unit) {
  using namespace DODONA_TIER;
  with_cache_lanes(unit.type, [&](auto lanes) { attend<decltype(lanes)>(unit); });
}
template void MlaUnitKernel::run<tier::DODONA_TIER>(const MlaUnit&);

template <class Tier>
void MlaMergeKernel::run(const MlaMerge& merge) {
  using namespace DODONA_TIER;
  with_lanes(merge.out_type, [&](auto lanes) { merge_to<decltype(lanes)>(merge); });
}
template void MlaMergeKernel::run<tier::DODONA_TIER>(const MlaMerge&);

}  // namespace dodona::ops
