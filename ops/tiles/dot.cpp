#include "ops/tiles/dot.h"

#include <algorithm>

#include "ops/tiles/work.h"

namespace dodona::ops {
namespace {

std::int64_t ceil_div(std::int64_t x, std::int64_t y) {
  return (x + y - 1) / y;
}

std::byte* element(const Tensor& t, std::int64_t i, std::int64_t j, std::int64_t k) {
  return static_cast<std::byte*>(t.data()) + (i * t.stride(0) + j * t.stride(1) + k * t.stride(2)) * (bits(t.dtype()) / 8);
}

/// How a product is cut into tiles, in the order batch, rows, columns. Every output is summed within one tile.
struct Tiled {
  const Tensor &a, &b, &out;
  std::int64_t rows, columns, k;
  std::int64_t row_parts = ceil_div(rows, dot_tile_rows), tile_rows = row_parts == 0 ? 0 : ceil_div(rows, row_parts);
  std::int64_t tile_columns = dot_columns(tile_rows), column_parts = ceil_div(columns, tile_columns);
};

/// A run of tiles: rows of A are packed when they change.
void run_tiles(const Tiled& t, const Exec& exec, std::int64_t begin, std::int64_t end, float* packed) {
  float* const scratch = packed + t.tile_rows * dot_padded(t.k);
  // A dimension of one element has any stride.
  const std::int64_t k_stride = t.k == 1 ? 1 : t.b.stride(1), column_stride = t.columns == 1 && k_stride != 1 ? 1 : t.b.stride(2);
  std::int64_t packed_part = -1;
  for (std::int64_t index = begin; index < end; ++index) {
    const std::int64_t part = index / t.column_parts, batch = part / t.row_parts;
    const std::int64_t row = part % t.row_parts * t.tile_rows, column = index % t.column_parts * t.tile_columns;
    const std::int64_t rows = std::min(t.tile_rows, t.rows - row);
    if (part != packed_part)
      dispatch<DotPackKernel>(exec.isa, DotRows{.type = t.a.dtype(),
                                                .source = element(t.a, batch, row, 0),
                                                .stride_bytes = t.a.stride(1) * (bits(t.a.dtype()) / 8),
                                                .rows = rows,
                                                .k = t.k,
                                                .destination = packed});
    packed_part = part;
    dispatch<DotTileKernel>(exec.isa, DotTile{.a = packed,
                                              .b = element(t.b, batch, 0, column),
                                              .b_k_stride = k_stride,
                                              .b_column_stride = column_stride,
                                              .b_type = t.b.dtype(),
                                              .rows = rows,
                                              .columns = std::min(t.tile_columns, t.columns - column),
                                              .k = t.k,
                                              .out = element(t.out, batch, row, column),
                                              .out_stride = t.out.stride(1),
                                              .out_type = t.out.dtype(),
                                              .scratch = scratch});
  }
}

}  // namespace

bool has_dense_columns_or_rows(const Tensor& b) {
  return b.stride(-1) == 1 || b.stride(-2) == 1 || b.size(-1) <= 1 || b.size(-2) <= 1;
}

double dot_flops(const DotProduct& product) {
  return 2.0 * static_cast<double>(product.a.elements()) * static_cast<double>(product.b.size(2));
}

void dot_multiply(const DotProduct& product, const Exec& exec) {
  const auto& [a, b, out] = product;
  const Tiled t{a, b, out, a.size(1), b.size(2), a.size(2)};
  const WorkRun tiles{a.size(0) * t.row_parts * t.column_parts};
  if (tiles.pieces == 0) return;
  const std::size_t floats = static_cast<std::size_t>(t.tile_rows * dot_padded(t.k)) + dot_tile_scratch(t.tile_rows);
  const double operations = 2.0 * static_cast<double>(t.tile_rows * t.tile_columns) * static_cast<double>(t.k);
  Work(exec, tiles.pieces, floats * sizeof(float)).split({&tiles, 1}, operations, [&](auto, auto first, auto last, std::byte* scratch) {
    run_tiles(t, exec, first, last, reinterpret_cast<float*>(scratch));
  });
}

}  // namespace dodona::ops
