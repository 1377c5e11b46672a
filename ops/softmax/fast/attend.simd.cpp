#include "ops/softmax/fast/attend.h"

#include "ops/softmax/fast/attend_lanes.h"
#include "ops/tiles/panel/panel_core.h"
#include "simd/flush.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::attend_block;
using ops::AttendMerge;
using ops::AttendUnit;

// ---- operands

/// queries[k][lanes] from heads whose elements lie one after another; lanes without a head are zero.
template <class Lanes>
void pack_queries(const std::byte* q, std::int64_t stride, std::int64_t heads, std::int64_t lanes, std::int64_t width, float* queries) {
  for (std::int64_t h = 0; h < lanes; h += 16)
    for (std::int64_t k = 0; k < width; k += 16) {
      f32x16 rows[16];
      DODONA_UNROLL(16)
      for (int i = 0; i < 16; ++i) rows[i] = h + i < heads ? Lanes::load(q + (h + i) * stride + k * Lanes::bytes) : f32x16::zero();
      transpose(rows);
      DODONA_UNROLL(16)
      for (int i = 0; i < 16; ++i) rows[i].store(queries + (k + i) * lanes + h);
    }
}

template <class Lanes>
void widen(const std::byte* const* rows, std::int64_t count, std::int64_t width, float* wide) {
  for (std::int64_t j = 0; j < count; ++j)
    for (std::int64_t k = 0; k < width; k += 16) Lanes::load(rows[j] + k * Lanes::bytes).store(wide + j * width + k);
}

// ---- products: c[i][lanes] += a[i][k] * b[k][lanes], with all of c in registers

/// What c holds before.
enum class Start { zero, sums, scaled };

/// The sum at a place, of so many lanes as Vector has.
template <class Vector>
DODONA_INLINE Vector sum_before(Start start, const float* sum, const float* factor) {
  if (start == Start::zero) return Vector::zero();
  // What vanishes is +0, as sums of products are.
  return start == Start::scaled ? Vector::load(sum) * Vector::load(factor) + Vector::zero() : Vector::load(sum);
}

struct From {
  SumsAt sums;
  Start start;
  const float* factor;  ///< Start::scaled: c is multiplied by it first
  DODONA_INLINE SumLanes operator()(int i, int v) const {
    return sum_before<SumLanes>(start, sums.c + i * sums.c_row + sum_lanes * v, factor + sum_lanes * v);
  }
};

/// b and c have a row stride of `stride`; of their lanes the first `lanes` are taken.
template <class ARow, class AColumn>
struct Product {
  PanelOperands<ARow, AColumn, std::int64_t> o;
  From from;
  std::int64_t stride, lanes;
};

constexpr int most_vectors = many_sums_fit ? 4 : sum_vectors<false>;  // with six rows 24 of 32 registers
constexpr int most_rows = many_sums_fit ? 6 : sum_rows;

template <int rows, class Product>
DODONA_INLINE void multiply_rows(const Product& p) {
  side_by_side<most_vectors>(p.lanes, [&](auto vectors, std::int64_t lane) {
    const SumsAt sums{p.from.sums.c + lane, p.from.sums.c_row};
    pair_sums<rows, vectors>(p.o.from_lane(lane), From{sums, p.from.start, p.from.factor + lane}, sums);
  });
}

/// Row groups of at most most_rows, `each(first row)` called before each. Eight rows make two fours rather than a six and a lame two.
template <class Product, class Each>
DODONA_INLINE void multiply_all(Product p, std::int64_t rows, const Each& each) {
  for (std::int64_t i = 0; i < rows;) {
    const std::int64_t left = rows - i, n = most_rows == 6 && left >= 6 && left != 8 ? 6 : left >= 4 ? 4 : 1;
    each(i);
    if (n == most_rows) {
      multiply_rows<most_rows>(p);
    } else if (n == 4) {
      multiply_rows<4>(p);
    } else {
      multiply_rows<1>(p);
    }
    p.o.a += n * p.o.a_row;
    p.from.sums.c += n * p.stride;
    i += n;
  }
}

// ---- one block of keys

/// What multiply_all does with the values of keys that not all lanes see: a key that a lane does not see has no part in its sums. Sixteen
/// lanes at a time, of as many groups of keys as some of them see; keys that all of these see need no mask.
void add_seen(const AttendUnit& unit, const float* values, std::int64_t stride, const float* weights, std::int64_t first_key,
              std::int64_t keys, Start start, const float* factor) {
  constexpr int together = many_sums_fit ? 8 : 4;
  for (std::int64_t lane = 0; lane < unit.lanes; lane += 16) {
    const KeyRange some = seen_by_some(unit, lane, first_key, keys);
    const KeyRange all{unit.hidden == nullptr ? 0 : in_block(unit.hidden[lane + 15], first_key, keys),
                       unit.visible == nullptr ? keys : in_block(unit.visible[lane], first_key, keys)};
    for (std::int64_t column = 0; column < unit.value_width; column += together) {
      float* const sums = unit.partial + (2 + column) * unit.lanes + lane;
      f32x16 sum[together];
      DODONA_UNROLL(8)
      for (int i = 0; i < together; ++i) sum[i] = sum_before<f32x16>(start, sums + i * unit.lanes, factor + lane);
      for (std::int64_t group = some.first - some.first % pair_group; group < some.end; group += pair_group) {
        f32x16 chains[2][together];
        DODONA_UNROLL(8)
        for (int i = 0; i < together; ++i) chains[0][i] = chains[1][i] = f32x16::zero();
        const std::int64_t end = some.end - group < pair_group ? some.end : group + pair_group;
        for (std::int64_t j = group < some.first ? some.first : group; j < end; ++j) {
          f32x16(&chain)[together] = chains[j % 2];
          const mask16 here = all.first <= j && j < all.end ? mask16::first(16) : sees(unit, lane, first_key + j);
          const f32x16 weight = f32x16::load(weights + j * unit.lanes + lane);
          DODONA_UNROLL(8)
          for (int i = 0; i < together; ++i)
            chain[i] = select(here, fma(f32x16::splat(values[j * stride + column + i]), weight, chain[i]), chain[i]);
        }
        DODONA_UNROLL(8)
        for (int i = 0; i < together; ++i) sum[i] = sum[i] + (chains[0][i] + chains[1][i]);
      }
      DODONA_UNROLL(8)
      for (int i = 0; i < together; ++i) sum[i].store(sums + i * unit.lanes);
    }
  }
}

/// Scores of `count` keys from `begin` on, but for the first ones that no lane sees: of those that not all lanes see, for the lanes alone
/// that may. each(share) is called with the share of the products, of 256, that is behind them.
template <class Each>
void score(const AttendUnit& unit, const float* keys, const float* queries, float* scores, std::int64_t begin, std::int64_t count,
           const float* factor, const Each& each) {
  const FlushDenormals flushing;
  const std::int64_t lanes = unit.lanes, width = unit.key_width;
  // Parts of the queries that a first-level cache holds while all keys of a block pass.
  constexpr std::int64_t most = 96;
  for (std::int64_t k = 0; k < width; k += most) {
    std::int64_t first = seen_by_some(unit, 0, begin, count).first;
    for (std::int64_t lane = 0; lane < lanes && first < count; lane += 16) {
      const std::int64_t end = seen_by_some(unit, lane, begin, count).end;
      if (end <= first) continue;
      const Product<std::int64_t, Known<1>> product{
          {keys + first * width + k, queries + k * lanes + lane, width - k < most ? width - k : most, width, {}, lanes},
          {{scores + first * lanes + lane, lanes}, k == 0 ? Start::zero : Start::sums, factor},
          lanes,
          lanes - lane};
      multiply_all(product, end - first, [&](std::int64_t j) { each((k * count + product.o.k * (first + j)) * 256 / (width * count)); });
      first = end;
    }
  }
}

template <class Lanes, class Weights>
void attend(const AttendUnit unit) {
  const std::int64_t lanes = unit.lanes, width = unit.key_width;
  const bool separate = unit.values != nullptr, packed = unit.key_rows == ops::KeyRows::k_cache;
  const std::int64_t value_stride = separate ? unit.value_width : width;
  float* const queries = unit.scratch;
  float* const keys = queries + width * lanes;
  float* const values = separate ? keys + attend_block * width : keys;
  float* const scores = values + attend_block * value_stride;
  float* const sums = unit.partial + 2 * lanes;
  float factor[ops::attend_most_heads];
  const std::int64_t key_bytes = packed ? ops::k_cache_row_bytes : width * Lanes::bytes,
                     value_bytes = separate ? unit.value_width * Lanes::bytes : 0;
  const std::int64_t first = first_block(unit);
  std::int64_t fetched = first;
  fetch_rows(unit, fetched, first + attend_block, key_bytes, value_bytes);
  float* part_of_queries = queries;
  for (const ops::QueryPart& part : unit.queries) {
    with_value_lanes(unit.query_type, [&](auto of_queries) {
      pack_queries<decltype(of_queries)>(part.first_head, part.head_stride, unit.heads, lanes, part.width, part_of_queries);
    });
    part_of_queries += part.width * lanes;
  }
  for (std::int64_t begin = first; begin < unit.key_count; begin += attend_block) {
    const std::int64_t count = unit.key_count - begin < attend_block ? unit.key_count - begin : attend_block;
    if (packed) {
      for (std::int64_t j = 0; j < count; ++j)
        widen_k_cache_row(unit.keys[begin + j], [&](f32x16 elements, std::int64_t k) { elements.store(keys + j * width + k); });
    } else {
      widen<Lanes>(unit.keys + begin, count, width, keys);
    }
    if (separate) widen<Lanes>(unit.values + begin, count, unit.value_width, values);
    // Meanwhile the next block's rows come in, a little ahead of the share of the products that is done.
    score(unit, keys, queries, scores, begin, count, factor, [&](std::int64_t share) {
      fetch_rows(unit, fetched, begin + attend_block + (share + 8) * attend_block / 256, key_bytes, value_bytes);
    });
    fetch_rows(unit, fetched, begin + 2 * attend_block, key_bytes, value_bytes);
    if (all_see_all(unit, begin, count)) {
      weigh<Weights, false>(scores, begin, count, unit, factor);
    } else {
      weigh<Weights, true>(scores, begin, count, unit, factor);
    }
    // Whole groups of keys that all lanes see, and before and behind them those that some do.
    KeyRange all = seen_by_all(unit, begin, count);
    all.first = (all.first + pair_group - 1) / pair_group * pair_group;
    if (all.end < count) all.end -= all.end % pair_group;
    if (all.end <= all.first) all = {count, count};
    Start start = begin == first ? Start::zero : Start::scaled;
    const FlushDenormals flushing;
    const auto add_of_some = [&](std::int64_t from, std::int64_t to) {
      if (from == to) return;
      add_seen(unit, values + from * value_stride, value_stride, scores + from * lanes, begin + from, to - from, start, factor);
      start = Start::sums;
    };
    add_of_some(0, all.first);
    if (all.first < all.end) {
      const Product<Known<1>, std::int64_t> product{
          {values + all.first * value_stride, scores + all.first * lanes, all.end - all.first, {}, value_stride, lanes},
          {{sums, lanes}, start, factor},
          lanes,
          lanes};
      multiply_all(product, unit.value_width, [](std::int64_t) {});
      start = Start::sums;
    }
    add_of_some(all.end, count);
  }
}

// ---- merging

DODONA_INLINE float* partial_of(const AttendMerge& m, std::int64_t split) {
  return m.partials + split * m.stride;
}

DODONA_INLINE void store_heads(const AttendMerge& m, f32x16 numbers, std::int64_t lane, float* to) {
  float number[16];
  numbers.store(number);
  for (std::int64_t i = 0; i < 16 && lane + i < m.heads; ++i) to[(lane + i) * m.lse_stride] = number[i];
}

/// One vector of heads: the splits' maxima become their weights. Returns the factor of the output; writes lse.
DODONA_INLINE f32x16 merge_weights(const AttendMerge& m, std::int64_t lane) {
  f32x16 largest = f32x16::load(partial_of(m, 0) + lane);
  for (std::int64_t s = 1; s < m.splits; ++s) largest = max(f32x16::load(partial_of(m, s) + lane), largest);
  f32x16 total = f32x16::zero();
  if (m.sinks != nullptr) {
    const f32x16 sink = f32x16::load(m.sinks + lane);
    largest = max(sink, largest);
    total = exp2((sink - largest) + f32x16::splat(m.weight_exponent));
  }
  for (std::int64_t s = 0; s < m.splits; ++s) {
    float* const p = partial_of(m, s) + lane;
    const f32x16 weight = exp2(f32x16::load(p) - largest);
    total = fma(weight, f32x16::load(p + m.lanes), total);
    weight.store(p);
  }
  const f32x16 base = f32x16::splat(m.natural_lse ? 0x1.62e430p-1f : 1.0f);
  if (m.top != nullptr) store_heads(m, canonical_nan(largest * base), lane, m.top);
  if (m.lse != nullptr) store_heads(m, canonical_nan((largest + (log2(total) - f32x16::splat(m.weight_exponent))) * base), lane, m.lse);
  return (f32x16::splat(1.0f) / total) * f32x16::splat(m.out_scale);
}

template <class Out>
void merge_to(const AttendMerge m) {
  for (std::int64_t lane = 0; lane < m.heads; lane += 16) {
    const f32x16 factor = merge_weights(m, lane);
    for (std::int64_t column = 0; column < m.value_width; column += 16) {
      f32x16 block[16];
      DODONA_UNROLL(16)
      for (int i = 0; i < 16; ++i) {
        const std::int64_t at = (2 + column + i) * m.lanes + lane;
        block[i] = f32x16::load(partial_of(m, 0) + lane) * f32x16::load(partial_of(m, 0) + at);
        for (std::int64_t s = 1; s < m.splits; ++s)
          block[i] = fma(f32x16::load(partial_of(m, s) + lane), f32x16::load(partial_of(m, s) + at), block[i]);
        block[i] = block[i] * factor;
      }
      transpose(block);
      DODONA_UNROLL(16)
      for (int i = 0; i < 16; ++i)
        if (lane + i < m.heads) Out::store(block[i], m.out + (lane + i) * m.out_stride + column * Out::bytes);
    }
  }
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void AttendUnitKernel::run(const AttendUnit& unit) {
  using namespace DODONA_TIER;
  if (unit.type == DType::f8_e4m3 && unit.weight_type == DType::f32) return attend<E4m3Lanes, F32Lanes>(unit);
  with_value_lanes(unit.type, [&](auto lanes) { attend<decltype(lanes), decltype(lanes)>(unit); });
}
template void AttendUnitKernel::run<tier::DODONA_TIER>(const AttendUnit&);

template <class Tier>
void AttendMergeKernel::run(const AttendMerge& merge) {
  using namespace DODONA_TIER;
  with_lanes(merge.out_type, [&](auto lanes) { merge_to<decltype(lanes)>(merge); });
}
template void AttendMergeKernel::run<tier::DODONA_TIER>(const AttendMerge&);

}  // namespace dodona::ops
