#include "ops/tiles/panel.h"

#include <algorithm>

#include "ops/tiles/work.h"

namespace dodona::ops {
namespace {

std::int64_t ceil_div(std::int64_t x, std::int64_t y) {
  return (x + y - 1) / y;
}

/// How products are cut into tiles, in the order batch, rows, columns. Every output is summed within one tile.
struct Tiling {
  std::int64_t row_parts, column_parts, panels;
};
Tiling tiling_of(const PanelProduct& p, int threads) {
  Tiling t{ceil_div(p.m, panel_tile_rows), ceil_div(p.n, panel_tile_columns), ceil_div(p.n, panel_columns)};
  // Some tiles per thread, so that none waits long for the last one.
  const std::int64_t tiles = p.batches * t.row_parts, wanted = threads > 1 ? 4 * threads : 1;
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
          .scratch = nullptr};
}

}  // namespace

void panel_multiply(const PanelProduct& product, const Exec& exec) {
  const Tiling t = tiling_of(product, exec.threads);
  const std::int64_t tiles = product.batches * t.row_parts * t.column_parts;
  if (tiles == 0 || product.n == 0) return;
  const std::int64_t columns = std::min(ceil_div(t.panels, t.column_parts) * panel_columns, product.n);
  const std::size_t floats = panel_tile_scratch(std::min(product.m, panel_tile_rows), columns, product.k);
  const Work work(exec, tiles, floats * sizeof(float));
  const WorkRun run{tiles};
  const double operations = 2.0 * static_cast<double>(std::min(product.m, panel_tile_rows) * columns) * static_cast<double>(product.k);
  work.split({&run, 1}, operations, [&](std::size_t, std::int64_t first, std::int64_t last, std::byte* scratch) {
    for (std::int64_t i = first; i < last; ++i) {
      PanelTile tile = tile_of(product, t, i);
      tile.scratch = reinterpret_cast<float*>(scratch);
      dispatch<PanelTileKernel>(exec.isa, tile);
    }
  });
}

}  // namespace dodona::ops
