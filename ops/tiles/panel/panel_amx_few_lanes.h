// At most sixteen rows of fp8 by a matrix unit, see panel_amx.h: columns are streams from memory, and widening them takes longer than all
// else. They are widened ahead, to what a first-level cache holds, by plain loops that leave the processor room to wait for memory
// meanwhile, and the unit has tiles of as many rows as there are. Included by *.simd.cpp, and by a test whose Unit is a model of the unit's
// instructions.
#pragma once

#include "ops/tiles/panel/panel_amx.h"
#include "ops/tiles/panel/panel_few.h"
#include "ops/tiles/panel/panel_lanes.h"
#include "ops/tiles/tile_sums.h"
#include "ops/tiles/unpack/fp8_bf16.h"

namespace dodona::DODONA_TIER {

/// `lines` of sums += those of a block of K * scale of line * scales of words.
DODONA_INLINE void add_scaled_lines(const float* of_block, std::int64_t stride, std::int64_t lines, const float* of_lines, f32x16 of_words,
                                    float* sums) {
  for (std::int64_t i = 0; i < lines; ++i) {
    float* const line = sums + i * stride;
    fma(f32x16::load(of_block + i * stride), f32x16::splat(of_lines[i]) * of_words, f32x16::load(line)).store(line);
  }
}
DODONA_INLINE void clear_lines(float* lines, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 16) f32x16::zero().store(lines + i);
}
DODONA_INLINE std::int64_t steps_of(std::int64_t k) {
  return (k + ops::panel_amx_step - 1) / ops::panel_amx_step;
}
DODONA_INLINE std::int64_t least_of(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

DODONA_INLINE i32x16 load_first_bytes(const std::byte* from, std::int64_t count) {
  alignas(64) std::byte bytes[64] = {};
  __builtin_memcpy(bytes, from, static_cast<std::size_t>(count));
  return load_bytes(bytes);
}
/// `k` codes of a line, to lines of two steps after another, zeros behind them.
template <bool e5m2>
DODONA_INLINE void widen_line(const std::byte* codes, std::int64_t k, std::uint8_t* to) {
  for (std::int64_t i = 0; i < k; i += 64, to += 2 * tile_step_bytes) {
    const WideCodes wide = widen_codes<e5m2>(k - i < 64 ? load_first_bytes(codes + i, k - i) : load_bytes(codes + i));
    wide.first.store(reinterpret_cast<std::int32_t*>(to));
    wide.last.store(reinterpret_cast<std::int32_t*>(to + tile_step_bytes));
  }
}

// ---- packed columns

/// Columns that go together, as they are packed: panels of sixteen.
inline constexpr int few_panels = ops::panel_few_columns / 16;
/// Steps of the ring, a power of two, and how many are widened ahead.
inline constexpr std::int64_t few_ring = 4, few_ahead = 2;

/// Packed columns, step by step of K, those of a piece behind those of another: widened into the ring.
template <bool e5m2>
class StepsOfColumns {
 public:
  /// Pieces [first, last).
  StepsOfColumns(const ops::PanelProduct& p, std::int64_t first, std::int64_t last, std::uint8_t (*ring)[ops::panel_amx_chunk_bytes])
      : from_(p.b.data + first * p.b.stride + ops::panel_few_head),
        fours_((p.k + 3) / 4),
        left_(fours_),
        pieces_(last - first),
        ring_(ring) {}

  /// The next part of a step, of as many as there are panels, as long as there is one.
  DODONA_INLINE void widen() {
    if (pieces_ == 0) return;
    if (left_ >= fours_of_part) {
      DODONA_UNROLL(2)
      for (int i = 0; i < fours_of_part; ++i) widen_four();
    } else {
      for (int i = 0; i < fours_of_part; ++i) left_ > 0 ? widen_four() : clear_four();
    }
    at_ &= few_ring * tile_step_bytes - 1;
    if (left_ > 0 || at_ % tile_step_bytes != 0) return;
    from_ += ops::panel_few_head;
    left_ = fours_;
    --pieces_;
  }

 private:
  static constexpr std::int64_t fours_of_step = ops::panel_amx_step / 4, fours_of_part = fours_of_step / few_panels;
  static constexpr std::int64_t of_four = tile_step_bytes / fours_of_step;

  DODONA_INLINE void widen_four() {
    constexpr std::int64_t far = 2048;
    DODONA_UNROLL(4)
    for (int panel = 0; panel < few_panels; ++panel) {
      const std::byte* const codes = from_ + 64 * panel;
      fetch_line(codes, far);
      const WideCodes wide = widen_pairs<e5m2>(load_bytes(codes));
      auto* const to = reinterpret_cast<std::int32_t*>(ring_[panel] + at_);
      wide.first.store(to);
      wide.last.store(to + 16);
    }
    from_ += ops::panel_few_line;
    at_ += of_four;
    --left_;
  }
  /// Behind the end of K.
  void clear_four() {
    for (int panel = 0; panel < few_panels; ++panel) __builtin_memset(ring_[panel] + at_, 0, of_four);
    at_ += of_four;
  }

  const std::byte* from_;
  std::int64_t fours_, left_, pieces_, at_ = 0;
  std::uint8_t (*ring_)[ops::panel_amx_chunk_bytes];
};

/// Sums of a job's rows and packed columns, block by block of K, or of all of K.
template <class Unit>
class PackedBlocks {
 public:
  PackedBlocks(const ops::PanelAmxJob& job, ops::PanelAmxScratch& s) : job_(job), p_(*job.product), s_(s) {}

  /// A block that begins at `k`: tiles 0 to 3 are its sums.
  DODONA_INLINE void begin(std::int64_t piece, std::int64_t k) {
    column_ = piece * ops::panel_few_columns, k_ = k;
    zero_tiles(std::make_integer_sequence<int, few_panels>());
  }
  /// meanwhile(panel) before each of them.
  template <class Meanwhile>
  DODONA_INLINE void add_step(std::int64_t k, std::int64_t ring_at, const Meanwhile& meanwhile) {
    Unit::template load<4>(job_.a.at(0, k), 64);
    add_tiles(std::make_integer_sequence<int, few_panels>(), ring_at, meanwhile);
  }
  /// Of the block that was begun, if there was one.
  void finish() {
    if (k_ < 0) return;
    store_tiles(std::make_integer_sequence<int, few_panels>(), p_.block > 0 ? s_.blocks[0] : s_.sums);
    if (p_.block > 0) add_scaled();
    if (p_.block == 0 || k_ + p_.block >= p_.k) finish_piece();
  }

 private:
  template <int... panel>
  DODONA_INLINE void zero_tiles(std::integer_sequence<int, panel...>) {
    (Unit::template zero<panel>(), ...);
  }
  template <int... panel, class Meanwhile>
  DODONA_INLINE void add_tiles(std::integer_sequence<int, panel...>, std::int64_t at, const Meanwhile& meanwhile) {
    ((meanwhile(panel), Unit::template load<5 + panel % 3>(s_.weights[0][panel] + at, 64),
      dot_tiles<Unit, TileDots::pairs, panel, 4, 5 + panel % 3>()),
     ...);
  }
  template <int... panel>
  DODONA_INLINE void store_tiles(std::integer_sequence<int, panel...>, float* sums) {
    (Unit::template store<panel>(sums + 16 * panel, 4 * ops::panel_few_columns), ...);
  }
  std::int64_t columns() const { return least_of(p_.n - column_, ops::panel_few_columns); }

  DODONA_INLINE void add_scaled() {
    if (k_ == 0) {
      clear_lines(s_.sums, job_.rows * ops::panel_few_columns);
      clear_lines(s_.scales[0], ops::panel_few_columns);
    }
    const std::int64_t block = k_ / p_.block;
    take_scales(p_.b_scales, column_, columns(), block, s_.scales[0]);
    for (std::int64_t j = 0; j < ops::panel_few_columns; j += 16)
      add_scaled_lines(s_.blocks[0] + j, ops::panel_few_columns, job_.rows, job_.a.scales + 16 * block, f32x16::load(s_.scales[0] + j),
                       s_.sums + j);
  }
  DODONA_INLINE void finish_piece() {
    const ops::TileEpilogue epilogue = epilogue_of(p_, job_.batch);
    for (std::int64_t r = 0; r < job_.rows; ++r)
      finish_row<FloatSums>(epilogue, job_.row + r, column_, columns(), s_.sums + r * ops::panel_few_columns);
  }

  const ops::PanelAmxJob& job_;
  const ops::PanelProduct& p_;
  ops::PanelAmxScratch& s_;
  std::int64_t column_ = 0, k_ = -1;
};

/// Pieces [first, last) of a job of few rows, each of the panels that are packed together.
template <class Unit, bool e5m2>
void multiply_few_packed(const ops::PanelAmxJob& job, std::int64_t first, std::int64_t last, ops::PanelAmxScratch& s) {
  const typename Unit::Session session(shapes_of_few_rows.of[job.rows]);
  const ops::PanelProduct& p = *job.product;
  const std::int64_t block = p.block > 0 ? p.block : p.k;
  StepsOfColumns<e5m2> columns(p, first, last, s.weights[0]);
  for (std::int64_t i = 0; i < few_ahead * few_panels; ++i) columns.widen();
  PackedBlocks<Unit> blocks(job, s);
  std::int64_t step = 0;
  for (std::int64_t piece = first; piece < last; ++piece)
    for (std::int64_t begin = 0; begin < p.k; begin += block)
      for (std::int64_t k = begin; k < least_of(p.k, begin + block); k += ops::panel_amx_step) {
        blocks.add_step(k, step++ % few_ring * tile_step_bytes, [&](int panel) {
          columns.widen();
          if (panel > 0 || k > begin) return;
          // Only now: sums that are stored are waited for.
          blocks.finish();
          blocks.begin(piece, begin);
        });
      }
  blocks.finish();
}

// ---- raw columns

/// Words of rows that lie together, those of a k beside each other: of few rows a cache holds more of them.
DODONA_INLINE std::int64_t words_together(std::int64_t rows) {
  return rows <= 4 ? 4 : rows <= 8 ? 8 : 16;
}
/// A step's words of sixteen rows in lines of 64 bytes each, to where those of few rows lie together.
DODONA_INLINE void put_together(const std::uint8_t* from, std::int64_t rows, std::uint8_t* to) {
  const std::int64_t bytes = 4 * words_together(rows);
  for (std::int64_t word = 0; word < 16; ++word) __builtin_memmove(to + word * bytes, from + word * 64, static_cast<std::size_t>(bytes));
}

/// Raw columns, sixteen of a piece at a time: parts of K, those of a piece behind those of another, widened to lines of the unit's left
/// operand while the part before is multiplied.
template <bool e5m2>
class PartsOfColumns {
 public:
  /// Pieces [first, last), and where two parts have room.
  PartsOfColumns(const ops::PanelAmxJob& job, std::int64_t first, std::int64_t last, std::uint8_t (*to)[ops::panel_amx_chunk_bytes])
      : p_(*job.product), data_(p_.b.data + job.batch * p_.b.batch_stride), column_(16 * first), end_(16 * last), to_(to) {
    begin();
  }

  /// Lines of the part that was begun last. The next one begins, as long as there is one.
  const std::uint8_t* take() {
    widen(left_);
    const std::uint8_t* const lines = to_[now_];
    now_ ^= 1;
    begin_ += k_;
    if (begin_ == p_.k) begin_ = 0, column_ += 16;
    if (column_ < end_) begin();
    return lines;
  }
  /// Some columns of it.
  DODONA_INLINE void widen(std::int64_t count) {
    for (count = least_of(count, left_); count > 0; --count) {
      for (std::int64_t i = 0; i < k_; i += 64) fetch_line(from_, far_ + i);
      widen_line<e5m2>(from_, k_, at_);
      at_ += 64;
      --left_;
      // Those that are not there repeat the last one.
      if (column_ + 16 - left_ < p_.n) from_ += p_.b.stride;
    }
  }

 private:
  void begin() {
    k_ = least_of(p_.k - begin_, ops::panel_amx_chunk);
    left_ = 16, at_ = to_[now_];
    from_ = data_ + column_ * p_.b.stride + begin_;
    // The next part of each column, or where the next piece begins.
    far_ = begin_ + k_ < p_.k ? k_ : 16 * p_.b.stride - begin_;
  }

  const ops::PanelProduct& p_;
  const std::byte *data_, *from_ = nullptr;
  std::int64_t column_, end_, begin_ = 0, k_ = 0, left_ = 0, far_ = 0;
  std::uint8_t (*to_)[ops::panel_amx_chunk_bytes];
  std::uint8_t* at_ = nullptr;
  int now_ = 0;
};

/// Pieces [first, last) of a job of few rows, each of one panel of raw columns. Sums come turned: a line of each column.
template <class Unit, bool e5m2>
void multiply_few_raw(const ops::PanelAmxJob& job, std::int64_t first, std::int64_t last, ops::PanelAmxScratch& s) {
  const std::int64_t word_bytes = 4 * words_together(job.rows);
  const typename Unit::Session session(shapes_of_few_words.of[words_together(job.rows)]);
  const ops::PanelProduct& p = *job.product;
  PartsOfColumns<e5m2> parts(job, first, last, s.weights[0]);
  clear_lines(s.blocks[0], 256);
  for (std::int64_t piece = first; piece < last; ++piece) {
    const std::int64_t column = 16 * piece, columns = least_of(p.n - column, 16);
    clear_lines(s.sums, 256);
    clear_lines(s.scales[0], 16);
    Unit::template zero<0>();
    for (std::int64_t begin = 0; begin < p.k; begin += ops::panel_amx_chunk) {
      const std::int64_t end = least_of(p.k, begin + ops::panel_amx_chunk), steps = steps_of(end - begin), columns_a_step = 16 / steps;
      const std::uint8_t *lines = parts.take(), *a = job.a.at(0, begin);
      for (std::int64_t k = begin; k < end; k += ops::panel_amx_step) {
        parts.widen(columns_a_step);
        Unit::template load<1>(lines, 64);
        Unit::template load<2>(a, word_bytes);
        Unit::template dot_bf16<0, 1, 2>();
        lines += tile_step_bytes;
        a += 16 * word_bytes;
        const std::int64_t done = least_of(k + ops::panel_amx_step, p.k);
        // Blocks divide half a chunk: they are powers of two.
        if (p.block == 0 || ((done & (p.block - 1)) != 0 && done < p.k)) continue;
        Unit::template store<0>(s.blocks[0], 64);
        Unit::template zero<0>();
        const std::int64_t block = k / p.block;
        take_scales(p.b_scales, column, columns, block, s.scales[0]);
        add_scaled_lines(s.blocks[0], 16, 16, s.scales[0], f32x16::load(job.a.scales + 16 * block), s.sums);
      }
    }
    if (p.block == 0) Unit::template store<0>(s.sums, 64);
    turn_back(s.sums, 16);
    const ops::TileEpilogue epilogue = epilogue_of(p, job.batch);
    for (std::int64_t r = 0; r < job.rows; ++r) finish_row<FloatSums>(epilogue, job.row + r, column, columns, s.sums + 16 * r);
  }
}

}  // namespace dodona::DODONA_TIER
