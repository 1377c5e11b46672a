#include "ops/tiles/panel/panel.h"

#include <algorithm>
#include <vector>

#include "core/threads.h"
#include "ops/base/processor.h"
#include "ops/base/work.h"
#include "ops/tiles/dot/dot.h"
#include "ops/tiles/panel/panel_amx.h"
#include "ops/tiles/panel/panel_few.h"
#include "quant/sizes.h"
#include "simd/amx.h"

namespace dodona::ops {
namespace {

using quant::ceil_div;

/// The most rows that take columns as they are packed, widening codes again for every few rows. Where vectors of eight lanes or a matrix
/// unit (AMX; such processors known to us have vectors of sixteen lanes on two ports alone) multiply, that soon stands in their way.
std::int64_t most_few_rows(Isa isa) {
  return isa == Isa::v3 ? 14 : uses_amx(isa) ? 8 : 24;
}

/// How products are cut into tiles, in the order batch, rows, columns. Every output is summed within one tile.
struct Tiling {
  std::int64_t row_parts, column_parts, panels;
};

/// `wanted` tiles at least, where there are as many.
Tiling tiling_of(const PanelProduct& p, std::int64_t wanted) {
  Tiling t{ceil_div(p.m, panel_tile_rows), ceil_div(p.n, panel_tile_columns), ceil_div(p.n, panel_columns)};
  const std::int64_t tiles = p.batches * t.row_parts;
  if (tiles > 0) t.column_parts = std::clamp(ceil_div(wanted, tiles), t.column_parts, t.panels);
  return t;
}

PanelTile tile_of(const PanelProduct& p, const Tiling& t, std::int64_t index) {
  const std::int64_t part = index % t.column_parts, row = index / t.column_parts % t.row_parts * panel_tile_rows;
  const std::int64_t column = t.panels * part / t.column_parts * panel_columns;
  const std::int64_t column_end = std::min(p.n, t.panels * (part + 1) / t.column_parts * panel_columns);
  return {.product = &p,
          .batch = index / t.column_parts / t.row_parts,
          .row = row,
          .rows = std::min(panel_tile_rows, p.m - row),
          .column = column,
          .columns = column_end - column,
          .wide_vectors_are_split = wide_vectors_are_split(),
          .scratch = nullptr};
}

/// The most rows for which blocks of K of raw columns are worked on side by side: with more of them vectors of sixteen lanes would rather
/// have all columns of a panel.
std::int64_t most_rows_by_blocks(Isa isa) {
  return isa == Isa::v3 ? 14 : 2;
}

/// Columns of a tile, all of one panel: as many as leave each thread some pieces. Raw ones of products that wait for memory sixteen at a
/// time: as streams they are few enough for a first-level cache and its table of pages.
std::int64_t few_columns(const PanelProduct& p, bool by_blocks, int threads) {
  constexpr std::int64_t most_rows_that_wait = 3;
  const std::int64_t wanted = pieces_wanted(threads);
  std::int64_t columns = by_blocks || (!p.b.packed && p.block == 0 && p.m <= most_rows_that_wait) ? 16 : panel_few_columns;
  while (columns > 16 && p.batches * ceil_div(p.n, columns) < wanted) columns /= 2;
  return columns;
}

/// Rows of A are unpacked when the batch changes.
void multiply_few(const PanelProduct& p, const Exec& exec) {
  if (p.batches == 0 || p.m == 0 || p.n == 0) return;
  const bool by_blocks = panel_few_by_blocks(p, most_rows_by_blocks(exec.isa));
  const std::int64_t columns = few_columns(p, by_blocks, exec.threads), parts = ceil_div(p.n, columns);
  const WorkRun run{p.batches * parts};
  const std::size_t a_floats = static_cast<std::size_t>(panel_few_a_rows(p) * panel_few_a_stride(p.k)),
                    floats = a_floats + panel_few_scratch(p.m);
  const double operations = 2.0 * static_cast<double>(p.m * columns) * static_cast<double>(p.k);
  const bool free = subnormals_are_free();
  Work(exec, run.pieces, floats * sizeof(float)).split({&run, 1}, operations, [&](auto, auto first, auto last, std::byte* scratch) {
    auto* const a = reinterpret_cast<float*>(scratch);
    std::int64_t unpacked = -1;
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t batch = i / parts, column = i % parts * columns;
      if (batch != unpacked) dispatch<PanelFewRowsKernel>(exec.isa, p, batch, a);
      unpacked = batch;
      dispatch<PanelFewTileKernel>(exec.isa, PanelFewTile{.product = &p,
                                                          .batch = batch,
                                                          .column = column,
                                                          .columns = std::min(columns, p.n - column),
                                                          .by_blocks = by_blocks,
                                                          .a = a,
                                                          .scratch = a + a_floats,
                                                          .subnormals_are_free = free});
    }
  });
}

bool is_wide(DType type) {
  return type == DType::bf16 || type == DType::f16 || type == DType::f32;
}
/// Products without codes and scales, of which dot.h has more ways to the same sums.
bool is_dot(const PanelProduct& p) {
  return p.block == 0 && is_wide(p.a.type) && is_wide(p.b.type);
}
void add_matrices(const PanelProduct& p, std::vector<DotMatrix>& matrices) {
  for (std::int64_t batch = 0; batch < p.batches; ++batch) {
    DotMatrix& m = matrices.emplace_back(DotMatrix{{p.a.data + batch * p.a.batch_stride, p.a.stride, p.a.type},
                                                   {p.b.data + batch * p.b.batch_stride, 1, p.b.stride / (bits(p.b.type) / 8), p.b.type},
                                                   p.m,
                                                   p.n,
                                                   p.k,
                                                   p.epilogue});
    m.epilogue.out += batch * p.out_batch_stride * (bits(p.epilogue.out_type) / 8);
  }
}

void multiply_many(std::span<const PanelProduct> products, const Exec& exec) {
  const std::int64_t wanted = pieces_wanted(exec.threads, static_cast<std::int64_t>(products.size()));
  std::vector<Tiling> tilings;
  std::vector<WorkRun> runs;
  std::int64_t pieces = 0;
  std::size_t floats = 0;
  for (const PanelProduct& p : products) {
    const Tiling t = tilings.emplace_back(tiling_of(p, wanted));
    const std::int64_t rows = std::min(p.m, panel_tile_rows), tiles = p.n > 0 ? p.batches * t.row_parts * t.column_parts : 0;
    const std::int64_t columns = tiles > 0 ? std::min(ceil_div(t.panels, t.column_parts) * panel_columns, p.n) : 0;
    runs.push_back({tiles, std::max<std::int64_t>(rows * columns * std::max<std::int64_t>(p.k, 1), 1)});
    pieces += tiles;
    if (tiles > 0) floats = std::max(floats, panel_tile_scratch(rows, columns, p.k));
  }
  if (pieces == 0) return;
  const Work work(exec, pieces, floats * sizeof(float));
  work.split(runs, 2.0, [&](std::size_t product, std::int64_t first, std::int64_t last, std::byte* scratch) {
    for (std::int64_t i = first; i < last; ++i) {
      PanelTile tile = tile_of(products[product], tilings[product], i);
      tile.scratch = reinterpret_cast<float*>(scratch);
      dispatch<PanelTileKernel>(exec.isa, tile);
    }
  });
}

}  // namespace

void panel_multiply(std::span<const PanelProduct> products, const Exec& exec) {
  const PanelUnit* const unit = panel_unit(exec.isa);
  std::vector<PanelProduct> many, of_unit;
  std::vector<DotMatrix> dots;
  for (const PanelProduct& product : products) {
    if (unit != nullptr && unit->takes(product)) {
      of_unit.push_back(product);
    } else if (is_dot(product)) {
      add_matrices(product, dots);
    } else if (has_few_rows(product, most_few_rows(exec.isa))) {
      multiply_few(product, exec);
    } else {
      many.push_back(product);
    }
  }
  multiply_many(many, exec);
  dot_multiply(dots, exec);
  if (!of_unit.empty()) panel_multiply_by(*unit, of_unit, exec);
}

void panel_multiply(const PanelProduct& product, const Exec& exec) {
  panel_multiply({&product, 1}, exec);
}

std::int64_t panel_packed_bytes(std::int64_t n, std::int64_t k) {
  return ceil_div(n, panel_few_columns) * (panel_few_head + panel_few_bytes(k));
}

void panel_pack(const PanelOperand& columns, std::int64_t n, std::int64_t k, std::byte* panels, const Exec& exec) {
  parallel_for(exec.threads, ceil_div(n, panel_few_columns), static_cast<double>(panel_few_columns * k) / 16, [&](std::int64_t panel) {
    dispatch<PanelFewPackKernel>(exec.isa, columns, panel * panel_few_columns, n, k,
                                 panels + panel * (panel_few_head + panel_few_bytes(k)));
  });
}

PanelOperand packed_operand(DType type, const std::byte* panels, std::int64_t k) {
  return {.data = panels, .stride = panel_few_head + panel_few_bytes(k), .type = type, .packed = true};
}

}  // namespace dodona::ops
