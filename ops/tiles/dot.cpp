#include "ops/tiles/dot.h"

#include <algorithm>

#include "ops/base/work.h"
#include "ops/tiles/dot_amx.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

using quant::ceil_div;

std::byte* element(const Tensor& t, std::int64_t i, std::int64_t j, std::int64_t k) {
  return static_cast<std::byte*>(t.data()) + (i * t.stride(0) + j * t.stride(1) + k * t.stride(2)) * (bits(t.dtype()) / 8);
}

/// How a product is cut into tiles, in the order batch, rows, columns. Every output is summed within one tile.
struct Tiled {
  const DotProduct& product;
  std::int64_t rows, columns, k, row_parts, tile_rows, tile_columns, column_parts;
};
Tiled tiled(const DotProduct& p, int threads) {
  Tiled t{p, p.a.size(1), p.b.size(2), p.a.size(2), ceil_div(p.a.size(1), dot_tile_rows), 0, dot_tile_columns, 0};
  // About as many rows in each, in twenty-fours, which vectors of eight lanes multiply three at a time.
  t.tile_rows = t.row_parts == 0 ? 0 : std::min(t.rows, ceil_div(ceil_div(t.rows, t.row_parts), 24) * 24);
  t.row_parts = t.row_parts == 0 ? 0 : ceil_div(t.rows, t.tile_rows);
  // Some tiles per thread, so that none waits long for the last one.
  const std::int64_t wanted = threads > 1 ? 4 * threads : 1;
  while (t.tile_columns > dot_columns_together && p.a.size(0) * t.row_parts * ceil_div(t.columns, t.tile_columns) < wanted)
    t.tile_columns -= dot_columns_together;
  t.column_parts = ceil_div(t.columns, t.tile_columns);
  return t;
}

/// A run of tiles: rows of A are widened when they change.
void run_tiles(const Tiled& t, const Exec& exec, std::int64_t begin, std::int64_t end, float* widened) {
  const Tensor& out = t.product.out;
  std::int64_t widened_part = -1;
  for (std::int64_t index = begin; index < end; ++index) {
    const std::int64_t part = index / t.column_parts, batch = part / t.row_parts;
    const std::int64_t row = part % t.row_parts * t.tile_rows, column = index % t.column_parts * t.tile_columns;
    const std::int64_t rows = std::min(t.tile_rows, t.rows - row);
    if (part != widened_part) {
      DotRows a = dot_rows(t.product, batch);
      a.first += row * a.stride;
      dispatch<DotWidenKernel>(exec.isa, a, dot_columns(t.product, batch), rows, t.k, widened);
    }
    widened_part = part;
    dispatch<DotTileKernel>(exec.isa, DotTile{.a = widened,
                                              .b = dot_columns(t.product, batch).from(column),
                                              .rows = rows,
                                              .columns = std::min(t.tile_columns, t.columns - column),
                                              .k = t.k,
                                              .out = element(out, batch, row, column),
                                              .out_stride = out.stride(1),
                                              .out_type = out.dtype(),
                                              .scratch = widened + t.tile_rows * dot_row_stride(t.k)});
  }
}

}  // namespace

DotRows dot_rows(const DotProduct& product, std::int64_t batch) {
  const Tensor& a = product.a;
  return {element(a, batch, 0, 0), a.stride(1) * (bits(a.dtype()) / 8), a.dtype()};
}

DotColumns dot_columns(const DotProduct& product, std::int64_t batch) {
  const Tensor& b = product.b;
  // A dimension of one element has any stride.
  const std::int64_t k_stride = b.size(1) == 1 ? 1 : b.stride(1);
  return {element(b, batch, 0, 0), k_stride, b.size(2) == 1 && k_stride != 1 ? 1 : b.stride(2), b.dtype()};
}

bool has_dense_columns_or_rows(const Tensor& b) {
  return b.stride(-1) == 1 || b.stride(-2) == 1 || b.size(-1) <= 1 || b.size(-2) <= 1;
}

double dot_flops(const DotProduct& product) {
  return 2.0 * static_cast<double>(product.a.elements()) * static_cast<double>(product.b.size(2));
}

void dot_multiply(const DotProduct& product, const Exec& exec) {
  if (const DotUnit* const unit = dot_unit(exec.isa); unit != nullptr && takes_tiles(product)) return dot_multiply_by(*unit, product, exec);
  const Tiled t = tiled(product, exec.threads);
  const WorkRun tiles{product.a.size(0) * t.row_parts * t.column_parts};
  if (tiles.pieces == 0) return;
  const std::size_t floats = static_cast<std::size_t>(t.tile_rows * dot_row_stride(t.k)) + dot_tile_scratch(t.tile_rows, t.tile_columns);
  const double operations = 2.0 * static_cast<double>(t.tile_rows * t.tile_columns) * static_cast<double>(t.k);
  Work(exec, tiles.pieces, floats * sizeof(float)).split({&tiles, 1}, operations, [&](auto, auto first, auto last, std::byte* scratch) {
    run_tiles(t, exec, first, last, reinterpret_cast<float*>(scratch));
  });
}

}  // namespace dodona::ops
