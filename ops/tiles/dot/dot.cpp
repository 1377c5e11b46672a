#include "ops/tiles/dot/dot.h"

#include <algorithm>
#include <vector>

#include "ops/base/processor.h"
#include "ops/base/work.h"
#include "ops/tiles/dot/dot_amx.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

using quant::align;
using quant::ceil_div;

std::byte* element(const Tensor& t, std::int64_t i, std::int64_t j, std::int64_t k) {
  return static_cast<std::byte*>(t.data()) + (i * t.stride(0) + j * t.stride(1) + k * t.stride(2)) * (bits(t.dtype()) / 8);
}

/// How a product is cut into tiles, in the order rows, columns. Every output is summed within one tile. Tiles have as many columns as
/// others but for one time those that are worked on together: a worker's share is one of tiles.
struct Tiling {
  std::int64_t tile_rows, row_parts, column_parts;
  std::int64_t groups;  ///< of columns that are worked on together

  std::int64_t column(std::int64_t part) const { return groups * part / column_parts * dot_columns_together; }
  std::int64_t most_columns() const { return ceil_div(groups, column_parts) * dot_columns_together; }
};
/// `wanted` tiles at least, where there are as many, and of columns as many for each of `threads`.
Tiling tiling_of(const DotMatrix& m, std::int64_t wanted, std::int64_t threads) {
  if (m.rows == 0 || m.columns == 0) return {.tile_rows = 0, .row_parts = 0, .column_parts = 1, .groups = 0};
  const std::int64_t tile_rows = ceil_div(m.rows, ceil_div(m.rows, dot_tile_rows)), groups = ceil_div(m.columns, dot_columns_together);
  Tiling t{tile_rows, ceil_div(m.rows, tile_rows), 0, groups};
  const std::int64_t parts = std::max(ceil_div(m.columns, dot_tile_columns), ceil_div(wanted, t.row_parts));
  t.column_parts = std::min(wanted > 1 ? align(parts, threads) : parts, groups);
  return t;
}

/// A run of tiles: rows of A are widened when they change.
void run_tiles(const DotMatrix& m, const Tiling& t, const Exec& exec, std::int64_t begin, std::int64_t end, float* widened) {
  std::int64_t widened_part = -1;
  for (std::int64_t index = begin; index < end; ++index) {
    const std::int64_t part = index / t.column_parts, row = part * t.tile_rows, column = t.column(index % t.column_parts);
    const std::int64_t rows = std::min(t.tile_rows, m.rows - row);
    if (part != widened_part)
      dispatch<DotWidenKernel>(exec.isa, DotRows{m.a.first + row * m.a.stride, m.a.stride, m.a.type}, m.b, rows, m.k, widened);
    widened_part = part;
    dispatch<DotTileKernel>(exec.isa, DotTile{.a = widened,
                                              .b = m.b.from(column),
                                              .row = row,
                                              .rows = rows,
                                              .column = column,
                                              .columns = std::min(t.column(index % t.column_parts + 1), m.columns) - column,
                                              .k = m.k,
                                              .epilogue = &m.epilogue,
                                              .wide_vectors_are_split = wide_vectors_are_split(),
                                              .scratch = widened + t.tile_rows * dot_row_stride(m.k)});
  }
}

std::vector<DotMatrix> matrices_of(const DotProduct& p) {
  std::vector<DotMatrix> matrices;
  for (std::int64_t batch = 0; batch < p.a.size(0); ++batch) {
    DotMatrix& m =
        matrices.emplace_back(DotMatrix{dot_rows(p, batch), dot_columns(p, batch), p.a.size(1), p.b.size(2), p.a.size(2), TileEpilogue{}});
    m.epilogue.out_type = p.out.dtype(), m.epilogue.out = element(p.out, batch, 0, 0), m.epilogue.out_stride = p.out.stride(1);
  }
  return matrices;
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

void dot_multiply(std::span<const DotMatrix> matrices, const Exec& exec) {
  const std::int64_t wanted = pieces_wanted(exec.threads, static_cast<std::int64_t>(matrices.size()));
  std::vector<Tiling> tilings;
  std::vector<WorkRun> runs;
  std::int64_t pieces = 0;
  std::size_t floats = 0;
  for (const DotMatrix& m : matrices) {
    const Tiling t = tilings.emplace_back(tiling_of(m, wanted, exec.threads));
    const std::int64_t tiles = t.row_parts * t.column_parts;
    runs.push_back({tiles, std::max<std::int64_t>(t.tile_rows * t.most_columns() * m.k, 1)});
    pieces += tiles;
    floats =
        std::max(floats, static_cast<std::size_t>(t.tile_rows * dot_row_stride(m.k)) + dot_tile_scratch(t.tile_rows, t.most_columns()));
  }
  if (pieces == 0) return;
  Work(exec, pieces, floats * sizeof(float)).split(runs, 2.0, [&](std::size_t i, auto first, auto last, std::byte* scratch) {
    run_tiles(matrices[i], tilings[i], exec, first, last, reinterpret_cast<float*>(scratch));
  });
}

void dot_multiply(const DotProduct& product, const Exec& exec) {
  if (const DotUnit* const unit = dot_unit(exec.isa); unit != nullptr && takes_tiles(product)) return dot_multiply_by(*unit, product, exec);
  dot_multiply(matrices_of(product), exec);
}

}  // namespace dodona::ops
