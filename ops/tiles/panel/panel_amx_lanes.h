// Products of fp8 by a matrix unit: all but its instructions, which are those of `Unit` (simd/amx_tiles.h). Included by *.simd.cpp, and by
// a test whose Unit is a model of them.
#pragma once

#include "ops/tiles/panel/panel_amx_few_lanes.h"

namespace dodona::DODONA_TIER {

static_assert(ops::panel_amx_chunk_bytes == tile_chunk_bytes && ops::panel_amx_chunk / ops::panel_amx_step == steps_of_chunk);

/// Elements [begin, begin + k) of K.
struct KPart {
  std::int64_t begin, k;
  std::int64_t steps() const { return steps_of(k); }
};
DODONA_INLINE KPart part_at(const ops::PanelProduct& p, std::int64_t begin, std::int64_t most) {
  return {begin, least_of(p.k - begin, most)};
}

// ---- operands as bf16

template <bool e5m2>
void prepare_lines(const ops::PanelAmxJob& job, std::int64_t sixteen) {
  const ops::PanelProduct& p = *job.product;
  const std::int64_t first = ops::panel_amx_together * sixteen;
  const std::byte* const rows = p.a.data + job.batch * p.a.batch_stride + (job.row + first) * p.a.stride;
  for (std::int64_t begin = 0; begin < p.k; begin += ops::panel_amx_chunk) {
    const KPart part = part_at(p, begin, ops::panel_amx_chunk);
    std::uint8_t* const to = job.a.at(sixteen, begin);
    for (std::int64_t r = 0; r < 16; ++r) {
      if (first + r < job.rows) {
        widen_line<e5m2>(rows + r * p.a.stride + begin, part.k, to + 64 * r);
      } else {
        for (std::int64_t s = 0; s < steps_of_chunk; ++s) __builtin_memset(to + s * tile_step_bytes + 64 * r, 0, 64);
      }
    }
    if (p.b.packed) continue;
    for (std::int64_t s = 0; s < part.steps(); ++s) {
      std::uint8_t* const step = to + s * tile_step_bytes;
      turn_back(reinterpret_cast<float*>(step), 16);
      if (job.rows <= ops::panel_amx_together) put_together(step, job.rows, to + s * 64 * words_together(job.rows));
    }
  }
}

/// Scales of sixteen rows, all blocks.
DODONA_INLINE void prepare_scales(const ops::PanelAmxJob& job, std::int64_t sixteen) {
  const ops::PanelProduct& p = *job.product;
  const std::int64_t first = ops::panel_amx_together * sixteen, left = job.rows - first, count = left < 16 ? left : 16;
  for (std::int64_t begin = 0, block = 0; begin < p.k; begin += p.block, ++block) {
    float* const to = job.a.scales + block * 16 * job.a.sixteens + first;
    f32x16::zero().store(to);
    take_scales(p.a_scales, job.row + first, count, block, to);
  }
}

/// A piece: some panels of a job.
struct PanelAmxPiece {
  const ops::PanelAmxJob* job;
  std::int64_t column, panels;
};

/// Sums of a row lie close together: a first-level cache has room for those of few panels.
DODONA_INLINE std::int64_t sums_row_of(const ops::PanelAmxJob& job) {
  return 16 * job.panels;
}

/// A chunk of a piece's columns on its way to bf16: some of it at every step of the chunk before, so that memory is asked evenly, and
/// vectors work while the unit does.
template <bool lines, bool e5m2>
class Widening {
 public:
  Widening() = default;
  Widening(const PanelAmxPiece& piece, const KPart& part, std::uint8_t (*to)[ops::panel_amx_chunk_bytes])
      : piece_(piece),
        part_(part),
        to_(to[0]),
        of_group_(lines ? 16 : part.steps() * fours_of_step),
        left_(of_group_ * (lines ? piece.panels : (piece.panels + together - 1) / together)) {
    take_group();
  }
  /// It will be asked so many times before all of it is wanted.
  void share_out(std::int64_t turns) { each_ = (left_ + turns - 1) / turns; }
  DODONA_INLINE void some() { widen(left_ < each_ ? left_ : each_); }
  void all() { widen(left_); }

 private:
  static constexpr std::int64_t together = ops::panel_few_columns / 16, fours_of_step = ops::panel_amx_step / 4;

  /// The next panel of raw columns, or those that are packed together.
  void take_group() {
    const ops::PanelProduct& p = *piece_.job->product;
    if constexpr (lines) {
      from_ = p.b.data + piece_.job->batch * p.b.batch_stride + (piece_.column + 16 * panel_) * p.b.stride + part_.begin;
    } else {
      from_ = p.b.data + (piece_.column / ops::panel_few_columns + panel_ / together) * p.b.stride + ops::panel_few_head +
              ops::panel_few_bytes(part_.begin);
    }
  }
  void widen(std::int64_t count) {
    left_ -= count;
    for (; count > 0; --count) {
      if constexpr (lines) {
        widen_column();
      } else {
        piece_.panels - panel_ >= together ? widen_four<together>(together) : widen_four<1>(piece_.panels - panel_);
      }
      if (++done_ < of_group_) continue;
      done_ = 0;
      panel_ += lines ? 1 : together;
      to_ += (lines ? 1 : together) * ops::panel_amx_chunk_bytes;
      take_group();
    }
  }
  /// Those that are not there repeat the last one. What is fetched is the next part of the column, or where that of the next piece begins.
  DODONA_INLINE void widen_column() {
    const ops::PanelProduct& p = *piece_.job->product;
    const bool last = part_.begin + part_.k == p.k;
    const std::int64_t far = last ? 16 * piece_.panels * p.b.stride - part_.begin : part_.k;
    for (std::int64_t i = 0; i < part_.k; i += 64) fetch_line(from_, far + i);
    widen_line<e5m2>(from_, part_.k, to_ + done_ * 64);
    if (piece_.column + 16 * panel_ + done_ + 1 < p.n) from_ += p.b.stride;
  }
  /// Four k of the columns of some panels.
  template <std::int64_t at_once>
  DODONA_INLINE void widen_four(std::int64_t panels) {
    constexpr std::int64_t far = 4096;
    const bool there = 4 * done_ < part_.k;
    for (std::int64_t panel = 0; panel < panels; panel += at_once) {
      DODONA_UNROLL(4)
      for (std::int64_t i = 0; i < at_once; ++i) {
        const std::byte* const codes = from_ + 64 * (panel + i);
        fetch_line(codes, far);
        const WideCodes wide = widen_pairs<e5m2>(there ? load_bytes(codes) : i32x16::zero());
        auto* const to = reinterpret_cast<std::int32_t*>(to_ + (panel + i) * ops::panel_amx_chunk_bytes + done_ * 128);
        wide.first.store(to);
        wide.last.store(to + 16);
      }
    }
    from_ += ops::panel_few_line;
  }

  PanelAmxPiece piece_{};
  KPart part_{};
  const std::byte* from_ = nullptr;
  std::uint8_t* to_ = nullptr;
  std::int64_t of_group_ = 0, left_ = 0, each_ = 0, done_ = 0, panel_ = 0;
};

// ---- sums

/// Sums of blocks of K of some tiles that are on their way to all sums, each sixteen lines of a tile times the scales of its lines and of
/// its words. They are added while the unit makes the next ones.
class BlocksUnderWay {
 public:
  BlocksUnderWay(const float* from, std::int64_t sums_row) : from_(from), sums_row_(sums_row) {}
  DODONA_INLINE void put(int tile, std::int64_t at, float* sums, const float* of_lines, const float* of_words) {
    tiles_[tile] = {from_ + at, sums, of_lines, of_words};
    count_ = tile + 1;
    next_ = 0;
  }
  DODONA_INLINE void add() {
    if (next_ == count_) return;
    const Tile t = tiles_[next_++];
    const f32x16 words = f32x16::load(t.of_words);
    DODONA_UNROLL(16)
    for (int i = 0; i < 16; ++i) {
      float* const sums = t.sums + i * sums_row_;
      fma(f32x16::load(t.from + i * blocks_row), f32x16::splat(t.of_lines[i]) * words, f32x16::load(sums)).store(sums);
    }
  }
  DODONA_INLINE void add_all() {
    while (next_ < count_) add();
  }
  static constexpr std::int64_t blocks_row = 64;

 private:
  struct Tile {
    const float* from;
    float* sums;
    const float *of_lines, *of_words;
  };
  const float* from_;
  std::int64_t sums_row_;
  Tile tiles_[4] = {};
  int count_ = 0, next_ = 0;
};

/// A chunk of K of all rows times all panels, whose blocks begin at zero and are scaled; meanwhile(step).
template <class Unit, TileDots dots, class Meanwhile>
void add_scaled_chunk(const PanelAmxPiece& piece, const KPart& part, const std::uint8_t* const* weights, ops::PanelAmxScratch& s,
                      const Meanwhile& meanwhile) {
  const ops::PanelAmxJob& job = *piece.job;
  const ops::PanelProduct& p = *job.product;
  const std::int64_t first_block = part.begin / p.block, steps_of_block = p.block / ops::panel_amx_step;
  const std::int64_t all = 16 * piece.panels, left = p.n - piece.column, columns = left < all ? left : all;
  for (std::int64_t b = 0; b * p.block < part.k; ++b) {
    for (std::int64_t j = columns / 16 * 16; j < all; j += 16) f32x16::zero().store(s.scales[b] + j);
    take_scales(p.b_scales, piece.column, columns, first_block + b, s.scales[b]);
  }
  const std::int64_t sums_row = sums_row_of(job);
  BlocksUnderWay under_way(s.blocks[0], sums_row);
  in_tiles(job.rows, piece.panels, [&]<int sixteens, int together>(std::int64_t r, std::int64_t panel) {
    for (std::int64_t b = 0; b * steps_of_block < part.steps(); ++b) {
      const std::int64_t step = b * steps_of_block, steps = part.steps() - step < steps_of_block ? part.steps() - step : steps_of_block;
      const std::uint8_t* of_block[together];
      for (int i = 0; i < together; ++i) of_block[i] = weights[panel + i] + step * tile_step_bytes;
      const std::uint8_t* const a = job.a.at(r / 16, part.begin) + step * tile_step_bytes;
      const TileBlock block{a, 0, of_block, 0, s.blocks[0], BlocksUnderWay::blocks_row, true};
      add_tiles<Unit, dots, sixteens, together>(block, steps, [&](std::int64_t i) {
        meanwhile(step + i);
        i + 1 < steps ? under_way.add() : under_way.add_all();
      });
      DODONA_UNROLL(4)
      for (int i = 0; i < sixteens * together; ++i) {
        const std::int64_t row = r + i / together * 16, at = 16 * (panel + i % together);
        const float *of_rows = job.a.scales + (first_block + b) * 16 * job.a.sixteens + row, *of_columns = s.scales[b] + at;
        under_way.put(i, i / together * 16 * BlocksUnderWay::blocks_row + i % together * 16, s.sums + row * sums_row + at,
                      has_lines_of(dots) ? of_columns : of_rows, has_lines_of(dots) ? of_rows : of_columns);
      }
    }
  });
  under_way.add_all();
}

/// What becomes of a piece's sums.
template <TileDots dots>
void finish_piece(const PanelAmxPiece& piece, float* sums) {
  const ops::PanelAmxJob& job = *piece.job;
  const ops::PanelProduct& p = *job.product;
  const std::int64_t sums_row = sums_row_of(job);
  if constexpr (has_lines_of(dots))
    for (std::int64_t r = 0; r < job.rows; r += 16)
      for (std::int64_t panel = 0; panel < piece.panels; ++panel) turn_back(sums + r * sums_row + 16 * panel, sums_row);
  const ops::TileEpilogue epilogue = epilogue_of(p, job.batch);
  const std::int64_t left = p.n - piece.column, all = 16 * piece.panels, columns = left < all ? left : all;
  for (std::int64_t r = 0; r < job.rows; ++r) finish_row<FloatSums>(epilogue, job.row + r, piece.column, columns, sums + r * sums_row);
}

template <class Unit, TileDots dots, bool e5m2>
void multiply_pieces(const ops::PanelAmxJob& job, std::int64_t first, std::int64_t last, ops::PanelAmxScratch& s) {
  const typename Unit::Session session(shapes_of_tile_sums);
  const ops::PanelProduct& p = *job.product;
  const std::int64_t all = (p.n + 15) / 16, sums_row = sums_row_of(job);
  const auto piece_at = [&](std::int64_t i) {
    const std::int64_t panel = i * job.panels, left = all - panel;
    return PanelAmxPiece{&job, 16 * panel, left < job.panels ? left : job.panels};
  };
  int now = 0;
  using Next = Widening<has_lines_of(dots), e5m2>;
  Next next(piece_at(first), part_at(p, 0, job.part), s.weights[now]);
  next.all();
  for (std::int64_t i = first; i < last; ++i) {
    const PanelAmxPiece piece = piece_at(i);
    for (std::int64_t r = 0; r < 16 * job.a.sixteens; ++r)
      for (std::int64_t panel = 0; panel < piece.panels; ++panel) f32x16::zero().store(s.sums + r * sums_row + 16 * panel);
    for (std::int64_t begin = 0; begin < p.k; begin += job.part) {
      const KPart part = part_at(p, begin, job.part);
      const std::int64_t end = begin + part.k;
      const int then = now ^ 1;
      next = {};
      if (end < p.k || i + 1 < last) next = {piece_at(end < p.k ? i : i + 1), part_at(p, end < p.k ? end : 0, job.part), s.weights[then]};
      next.share_out(turns_of_rows(job.rows, piece.panels, part.steps()));
      const auto meanwhile = [&](std::int64_t) { next.some(); };
      const std::uint8_t* weights[ops::panel_amx_panels];
      for (std::int64_t panel = 0; panel < piece.panels; ++panel) weights[panel] = s.weights[now][panel];
      if (p.block > 0) {
        add_scaled_chunk<Unit, dots>(piece, part, weights, s, meanwhile);
      } else {
        const TileBlock block{job.a.at(0, begin), 0, weights, 0, s.sums, sums_row};
        add_rows<Unit, dots>(block, job.rows, piece.panels, part.steps(), meanwhile);
      }
      next.all();
      now = then;
    }
    finish_piece<dots>(piece, s.sums);
  }
}

template <class Unit>
struct PanelMatrixUnit {
  static void prepare(const ops::PanelAmxJob& job, std::int64_t sixteen) {
    job.product->a.type == DType::f8_e5m2 ? prepare_lines<true>(job, sixteen) : prepare_lines<false>(job, sixteen);
    if (job.product->block > 0) prepare_scales(job, sixteen);
  }
  static void multiply(const ops::PanelAmxJob& job, std::int64_t first, std::int64_t last, ops::PanelAmxScratch& scratch) {
    job.product->b.type == DType::f8_e5m2 ? multiply_from<true>(job, first, last, scratch)
                                          : multiply_from<false>(job, first, last, scratch);
  }

 private:
  template <bool e5m2>
  static void multiply_from(const ops::PanelAmxJob& job, std::int64_t first, std::int64_t last, ops::PanelAmxScratch& scratch) {
    const bool few = job.rows <= ops::panel_amx_together;
    if (job.product->b.packed) {
      few ? multiply_few_packed<Unit, e5m2>(job, first, last, scratch)
          : multiply_pieces<Unit, TileDots::pairs, e5m2>(job, first, last, scratch);
    } else {
      few ? multiply_few_raw<Unit, e5m2>(job, first, last, scratch)
          : multiply_pieces<Unit, TileDots::pair_lines, e5m2>(job, first, last, scratch);
    }
  }
};

}  // namespace dodona::DODONA_TIER
