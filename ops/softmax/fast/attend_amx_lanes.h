// A unit of attention by a matrix unit: all but its instructions, which are those of `Unit` (simd/amx_tiles.h). Included by *.simd.cpp, and
// by a test whose Unit is a model of them.
//
// Scores are keys, in lines, times queries, in words. Outputs are weights, turned to lines of a query each, times values, in words of pairs
// of keys; they stay in rows of a query until the unit ends.
#pragma once

#include "ops/softmax/fast/attend_amx.h"
#include "ops/softmax/fast/attend_lanes.h"
#include "ops/tiles/tile_sums.h"
#include "simd/bf16_pairs.h"
#include "simd/flush.h"

namespace dodona::DODONA_TIER {

static_assert(ops::attend_chunk == tile_chunk_bytes && ops::attend_step == tile_step_bytes);

/// `width` elements, a multiple of 16, as bf16: as they lie, or at `to`, and zeros behind them to whole groups.
DODONA_INLINE const std::byte* row_of_bf16(DType type, ops::KeyRows rows, const std::byte* row, std::int64_t width, std::byte* to) {
  const bool whole = width % pair_group == 0;
  if (rows == ops::KeyRows::k_cache) {
    widen_k_cache_row(row, [&](f32x16 elements, std::int64_t k) { store_bf16(elements, to + 2 * k); });
  } else if (type == DType::bf16) {
    if (whole) return row;
    __builtin_memcpy(to, row, static_cast<std::size_t>(2 * width));
  } else {
    for (std::int64_t k = 0; k < width; k += 16) store_bf16(load_e4m3(row + k), to + 2 * k);
  }
  if (!whole) __builtin_memset(to + 2 * width, 0, 32);
  return to;
}
DODONA_INLINE i32x16 load_line(const std::byte* p) {
  return i32x16::load(reinterpret_cast<const std::int32_t*>(p));
}
DODONA_INLINE void store_line(i32x16 words, std::byte* p) {
  words.store(reinterpret_cast<std::int32_t*>(p));
}

template <class Unit>
class AttendByTiles {
 public:
  static bool run(const ops::AttendUnit& unit) {
    const typename Unit::Session session(shapes_of_tile_sums);
    return AttendByTiles(unit).attend();
  }

 private:
  explicit AttendByTiles(const ops::AttendUnit& unit) : u_(unit), first_(first_block(unit)) {
    std::int64_t bytes = 0;
    m_ = ops::AttendTilesMemory::in(reinterpret_cast<std::byte*>(unit.scratch), unit.lanes, unit.key_width, unit.value_width, &bytes);
  }

  bool attend() {
    fetched_ = first_;
    fetch_rows(u_, fetched_, first_ + ops::attend_block, key_bytes(), value_bytes());
    pack_queries();
    for (std::int64_t begin = first_; begin < u_.key_count; begin += ops::attend_block) {
      const std::int64_t count = u_.key_count - begin < ops::attend_block ? u_.key_count - begin : ops::attend_block;
      if (!add_block(begin, count)) return false;
    }
    turn_outputs();
    return true;
  }

  std::int64_t key_bytes() const { return packed() ? ops::k_cache_row_bytes : u_.key_width * (u_.type == DType::bf16 ? 2 : 1); }
  std::int64_t value_bytes() const { return u_.values == nullptr ? 0 : u_.value_width * (u_.type == DType::bf16 ? 2 : 1); }
  bool packed() const { return u_.key_rows == ops::KeyRows::k_cache; }
  std::int64_t chunks() const { return ops::attend_chunks(u_.key_width); }
  std::int64_t steps() const { return (u_.key_width + pair_group - 1) / pair_group; }

  /// Words of pairs, a query in each lane; those that are not there are zero.
  void pack_queries() {
    for (std::int64_t lane = 0; lane < u_.lanes; lane += 16) {
      std::byte* const to = m_.queries + lane / 16 * chunks() * tile_chunk_bytes;
      std::int64_t step = 0;
      for (const ops::QueryPart& part : u_.queries)
        for (std::int64_t k = 0; k < part.width; k += pair_group, ++step) {
          i32x16 words[16];
          for (int i = 0; i < 16; ++i) words[i] = lane + i < u_.heads ? query_line(part, lane + i, k) : i32x16::zero();
          transpose(words);
          DODONA_UNROLL(16)
          for (int i = 0; i < 16; ++i) store_line(words[i], to + step * tile_step_bytes + 64 * i);
        }
    }
  }
  DODONA_INLINE i32x16 query_line(const ops::QueryPart& part, std::int64_t head, std::int64_t k) const {
    const std::byte* const row = part.first_head + head * part.head_stride;
    const std::int64_t count = part.width - k < pair_group ? part.width - k : pair_group;
    if (u_.query_type == DType::bf16) {
      if (count == pair_group) return load_line(row + 2 * k);
      return i32x16::load_partial(reinterpret_cast<const std::int32_t*>(row + 2 * k), count / 2);
    }
    std::byte line[64] = {};
    for (std::int64_t i = 0; i < count; i += 16) store_bf16(load_e4m3(row + k + i), line + 2 * i);
    return load_line(line);
  }

  /// Keys of a block to lines, and its values to words of pairs of keys, those behind the last one zero.
  void pack_keys(std::int64_t begin, std::int64_t count) {
    const std::int64_t pairs = (count + pair_group - 1) / pair_group * 16;
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      const std::byte* rows[2] = {};
      for (std::int64_t i = 0; i < 2; ++i) {
        const std::int64_t j = 2 * pair + i;
        if (j >= count) continue;
        std::byte* const space = m_.row + i * (2 * (u_.key_width + u_.value_width) + 128);
        rows[i] = row_of_bf16(u_.type, u_.key_rows, u_.keys[begin + j], u_.key_width, space);
        pack_key(rows[i], j);
        if (u_.values != nullptr)
          rows[i] = row_of_bf16(u_.type, ops::KeyRows::elements, u_.values[begin + j], u_.value_width, space + 2 * u_.key_width + 64);
      }
      pack_values(rows, pair);
    }
  }
  DODONA_INLINE void pack_key(const std::byte* row, std::int64_t key) const {
    std::byte* to = m_.keys + key / 16 * tile_chunk_bytes + key % 16 * 64;
    const std::int64_t to_chunk = (ops::attend_block / 16 - 1) * tile_chunk_bytes;
    for (std::int64_t step = 0; step < steps(); ++step, to += tile_step_bytes) {
      if (step > 0 && step % steps_of_chunk == 0) to += to_chunk;
      store_line(load_line(row + 64 * step), to);
    }
  }
  DODONA_INLINE void pack_values(const std::byte* const (&rows)[2], std::int64_t pair) const {
    std::byte* to = m_.values + pair / 16 * tile_step_bytes + pair % 16 * 64;
    const std::int64_t to_panel = ops::attend_block / pair_group * tile_step_bytes;
    for (std::int64_t column = 0; column < u_.value_width; column += 16, to += to_panel) {
      const i32x16 first = rows[0] != nullptr ? load_16(rows[0] + 2 * column) : i32x16::zero();
      const i32x16 second = rows[1] != nullptr ? load_16(rows[1] + 2 * column) : i32x16::zero();
      store_line(first | shl<16>(second), to);
    }
  }

  /// False where vectors have to do it.
  bool add_block(std::int64_t begin, std::int64_t count) {
    pack_keys(begin, count);
    const bool masked = !all_see_all(u_, begin, count);
    // Weights of keys that are not seen are zeros, which leave sums alone unless values are infinite.
    if (masked && !values_are_finite(count)) return false;
    score(begin, count);
    alignas(64) float factor[ops::attend_most_heads];
    weigh_as(masked, begin, count, factor);
    if (begin > first_) scale_outputs(factor);
    pack_weights(masked, begin, count);
    add_values(begin == first_, count);
    return true;
  }
  bool values_are_finite(std::int64_t count) const {
    PairMagnitudes magnitudes;
    for (std::int64_t panel = 0; panel < u_.value_width / 16; ++panel)
      for (std::int64_t line = 0; line < (count + pair_group - 1) / pair_group * 16; ++line)
        magnitudes.add(load_line(m_.values + panel * (ops::attend_block / pair_group) * tile_step_bytes + 64 * line));
    return magnitudes.result().finite();
  }

  void score(std::int64_t begin, std::int64_t count) {
    const std::uint8_t* queries[ops::attend_most_heads / 16];
    for (std::int64_t i = 0; i < u_.lanes / 16; ++i) queries[i] = bytes(m_.queries + i * chunks() * tile_chunk_bytes);
    const std::int64_t panels = u_.lanes / 16, turns = (count + 31) / 32 * ((panels + 1) / 2) * steps();
    std::int64_t turn = 0;
    // Meanwhile the next block's rows come in.
    const auto fetch = [&](std::int64_t) {
      ++turn;
      fetch_rows(u_, fetched_, begin + ops::attend_block + turn * ops::attend_block / turns, key_bytes(), value_bytes());
    };
    TileBlock block{bytes(m_.keys), ops::attend_block / 16 * tile_chunk_bytes, queries, tile_chunk_bytes, m_.scores, u_.lanes, true};
    add_rows<Unit, TileDots::pairs>(block, (count + 15) / 16 * 16, panels, steps(), fetch);
    fetch_rows(u_, fetched_, begin + 2 * ops::attend_block, key_bytes(), value_bytes());
  }

  void weigh_as(bool masked, std::int64_t begin, std::int64_t count, float* factor) {
    if (u_.weight_type == DType::f8_e4m3) {
      masked ? weigh<E4m3Lanes, true>(m_.scores, begin, count, u_, factor) : weigh<E4m3Lanes, false>(m_.scores, begin, count, u_, factor);
    } else {
      masked ? weigh<Bf16Lanes, true>(m_.scores, begin, count, u_, factor) : weigh<Bf16Lanes, false>(m_.scores, begin, count, u_, factor);
    }
  }

  /// Outputs times what the new maxima make of them.
  void scale_outputs(const float* factor) {
    const FlushDenormals flushing;
    for (std::int64_t lane = 0; lane < u_.lanes; ++lane) {
      if (factor[lane] == 1.0f) continue;
      const f32x16 a = f32x16::splat(factor[lane]);
      float* const row = m_.outputs + lane * u_.value_width;
      for (std::int64_t column = 0; column < u_.value_width; column += 16)
        (f32x16::load(row + column) * a + f32x16::zero()).store(row + column);
    }
  }

  /// Rounded weights to lines of a query's, zeros for keys that it does not see.
  void pack_weights(bool masked, std::int64_t begin, std::int64_t count) {
    for (std::int64_t lane = 0; lane < u_.lanes; lane += 16) {
      const std::int64_t seen = masked ? seen_by_some(u_, lane, begin, count).end : count;
      const auto weight = [&](std::int64_t j) { return j < seen ? as_i32(f32x16::load(m_.scores + j * u_.lanes + lane)) : i32x16::zero(); };
      for (std::int64_t group = 0; group < count; group += pair_group) {
        i32x16 words[16];
        DODONA_UNROLL(16)
        for (int i = 0; i < 16; ++i) words[i] = shr<16>(weight(group + 2 * i)) | (weight(group + 2 * i + 1) & i32x16::splat(-0x10000));
        transpose(words);
        std::byte* const to = m_.weights + lane / 16 * tile_chunk_bytes + group / pair_group * tile_step_bytes;
        DODONA_UNROLL(16)
        for (int i = 0; i < 16; ++i) store_line(words[i], to + 64 * i);
      }
    }
  }

  void add_values(bool first, std::int64_t count) {
    constexpr std::int64_t together = 16;
    const std::int64_t all = u_.value_width / 16;
    for (std::int64_t panel = 0; panel < all; panel += together) {
      const std::uint8_t* values[together];
      const std::int64_t panels = all - panel < together ? all - panel : together;
      for (std::int64_t p = 0; p < panels; ++p)
        values[p] = bytes(m_.values + (panel + p) * (ops::attend_block / pair_group) * tile_step_bytes);
      add_rows<Unit, TileDots::pairs>({bytes(m_.weights), 0, values, 0, m_.outputs + 16 * panel, u_.value_width, first}, u_.lanes, panels,
                                      (count + pair_group - 1) / pair_group, [](std::int64_t) {});
    }
  }

  /// To where partial results are kept: a row for each column.
  void turn_outputs() const {
    float* const to = u_.partial + 2 * u_.lanes;
    for (std::int64_t lane = 0; lane < u_.lanes; lane += 16)
      for (std::int64_t column = 0; column < u_.value_width; column += 16) {
        f32x16 rows[16];
        DODONA_UNROLL(16)
        for (int i = 0; i < 16; ++i) rows[i] = f32x16::load(m_.outputs + (lane + i) * u_.value_width + column);
        transpose(rows);
        DODONA_UNROLL(16)
        for (int i = 0; i < 16; ++i) rows[i].store(to + (column + i) * u_.lanes + lane);
      }
  }

  static const std::uint8_t* bytes(const std::byte* p) { return reinterpret_cast<const std::uint8_t*>(p); }

  const ops::AttendUnit& u_;
  std::int64_t first_;  ///< block
  ops::AttendTilesMemory m_;
  std::int64_t fetched_ = 0;
};

}  // namespace dodona::DODONA_TIER
