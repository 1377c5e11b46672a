// Packed columns of fp8 times at most sixteen rows by a matrix unit, see panel_amx.h: columns are one stream from memory, and widening them
// takes longer than all else. They are widened two steps ahead, to a ring that a first-level cache holds, and the unit has tiles of as many
// rows as there are. Included by *.simd.cpp, and by a test whose Unit is a model of the unit's instructions.
#pragma once

#include "ops/tiles/panel_amx.h"
#include "ops/tiles/panel_few.h"
#include "ops/tiles/panel_lanes.h"
#include "ops/tiles/tile_sums.h"
#include "ops/tiles/unpack/fp8_bf16.h"

namespace dodona::DODONA_TIER {

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

  /// The next step, as long as there is one.
  DODONA_INLINE void widen() {
    if (pieces_ == 0) return;
    const std::int64_t at = step_++ % few_ring * tile_step_bytes;
    if (left_ > fours_of_step) {
      widen_fours(fours_of_step, at);
      left_ -= fours_of_step;
      return;
    }
    widen_fours(left_, at);
    for (int panel = 0; panel < few_panels; ++panel)
      __builtin_memset(ring_[panel] + at + left_ * of_four, 0, static_cast<std::size_t>((fours_of_step - left_) * of_four));
    from_ += ops::panel_few_head;
    left_ = fours_;
    --pieces_;
  }

 private:
  static constexpr std::int64_t fours_of_step = ops::panel_amx_step / 4, of_four = tile_step_bytes / fours_of_step;

  DODONA_INLINE void widen_fours(std::int64_t count, std::int64_t at) {
    constexpr std::int64_t far = 2048;
    for (const std::int64_t end = at + count * of_four; at < end; at += of_four, from_ += ops::panel_few_line) {
      DODONA_UNROLL(4)
      for (int panel = 0; panel < few_panels; ++panel) {
        const std::byte* const codes = from_ + 64 * panel;
        fetch_line(codes, far);
        const WideCodes wide = widen_pairs<e5m2>(load_bytes(codes));
        auto* const to = reinterpret_cast<std::int32_t*>(ring_[panel] + at);
        wide.first.store(to);
        wide.last.store(to + 16);
      }
    }
  }

  const std::byte* from_;
  std::int64_t fours_, left_, pieces_, step_ = 0;
  std::uint8_t (*ring_)[ops::panel_amx_chunk_bytes];
};

/// All of K, or a block of it, of a job's rows times some columns whose steps begin at `first`, into tiles 0 to 3 and then to `sums`.
template <class Unit, bool e5m2>
void add_few_steps(const ops::PanelAmxJob& job, std::int64_t begin, std::int64_t steps, std::int64_t first, StepsOfColumns<e5m2>& columns,
                   const ops::PanelAmxScratch& s, float* sums) {
  constexpr std::int64_t row_bytes = 4 * ops::panel_few_columns;
  const auto each = [&]<int... panel>(std::integer_sequence<int, panel...>) {
    (Unit::template zero<panel>(), ...);
    for (std::int64_t step = 0; step < steps; ++step) {
      columns.widen();
      const std::int64_t at = (first + step) % few_ring * tile_step_bytes;
      Unit::template load<4>(job.a.at(0, begin + step * ops::panel_amx_step), 64);
      ((Unit::template load<5 + panel % 3>(s.weights[0][panel] + at, 64), dot_tiles<Unit, TileDots::pairs, panel, 4, 5 + panel % 3>()),
       ...);
    }
    (Unit::template store<panel>(sums + 16 * panel, row_bytes), ...);
  };
  each(std::make_integer_sequence<int, few_panels>());
}

/// sums += those of a block of K * scale of row * scale of column.
DODONA_INLINE void add_few_scaled(const ops::PanelAmxJob& job, std::int64_t block, std::int64_t column, std::int64_t columns,
                                  ops::PanelAmxScratch& s, const float* of_block) {
  take_scales(job.product->b_scales, column, columns, block, s.scales[0]);
  const float* const of_rows = job.a.scales + block * 16 * job.a.sixteens;
  for (int panel = 0; panel < few_panels; ++panel) {
    const f32x16 of_columns = f32x16::load(s.scales[0] + 16 * panel);
    for (std::int64_t r = 0; r < job.rows; ++r) {
      const std::int64_t at = r * ops::panel_few_columns + 16 * panel;
      fma(f32x16::load(of_block + at), f32x16::splat(of_rows[r]) * of_columns, f32x16::load(s.sums + at)).store(s.sums + at);
    }
  }
}

/// Pieces [first, last) of a job of few rows, each of columns that are packed together.
template <class Unit, bool e5m2>
void multiply_few_rows(const ops::PanelAmxJob& job, std::int64_t first, std::int64_t last, ops::PanelAmxScratch& s) {
  const typename Unit::Session session(shapes_of_few_rows.of[job.rows]);
  const ops::PanelProduct& p = *job.product;
  const std::int64_t block = p.block > 0 ? p.block : p.k, all_steps = (p.k + ops::panel_amx_step - 1) / ops::panel_amx_step;
  std::int64_t step = 0;
  StepsOfColumns<e5m2> steps(p, first, last, s.weights[0]);
  for (std::int64_t i = 0; i < few_ahead; ++i) steps.widen();
  for (std::int64_t piece = first; piece < last; ++piece) {
    const std::int64_t column = piece * ops::panel_few_columns, left = p.n - column;
    const std::int64_t columns = left < ops::panel_few_columns ? left : ops::panel_few_columns;
    if (p.block > 0) {
      for (std::int64_t i = 0; i < job.rows * ops::panel_few_columns; i += 16) f32x16::zero().store(s.sums + i);
      for (std::int64_t i = columns / 16 * 16; i < ops::panel_few_columns; i += 16) f32x16::zero().store(s.scales[0] + i);
    }
    for (std::int64_t begin = 0; begin < p.k; begin += block) {
      const std::int64_t there = all_steps - begin / ops::panel_amx_step, whole = (block + ops::panel_amx_step - 1) / ops::panel_amx_step;
      const std::int64_t count = there < whole ? there : whole;
      add_few_steps<Unit>(job, begin, count, step, steps, s, p.block > 0 ? s.blocks[0] : s.sums);
      step += count;
      if (p.block > 0) add_few_scaled(job, begin / block, column, columns, s, s.blocks[0]);
    }
    const ops::TileEpilogue epilogue = epilogue_of(p, job.batch);
    for (std::int64_t r = 0; r < job.rows; ++r)
      finish_row<FloatSums>(epilogue, job.row + r, column, columns, s.sums + r * ops::panel_few_columns);
  }
}

}  // namespace dodona::DODONA_TIER
