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
  std::int64_t row_parts, column_parts;
};

/// A run of tiles: rows of A are packed when they change.
void run_tiles(const Tiled& t, const Exec& exec, std::int64_t begin, std::int64_t end, float* packed) {
  const std::int64_t stride = dot_packed_stride(t.k);
  float* const scratch = packed + std::min(t.rows, dot_tile_rows) * stride;
  // A dimension of one element has any stride.
  const std::int64_t k_stride = t.k == 1 ? 1 : t.b.stride(1), column_stride = t.columns == 1 && k_stride != 1 ? 1 : t.b.stride(2);
  std::int64_t packed_part = -1;
  for (std::int64_t index = begin; index < end; ++index) {
    const std::int64_t part = index / t.column_parts, batch = part / t.row_parts;
    const std::int64_t row = part % t.row_parts * dot_tile_rows, column = index % t.column_parts * dot_tile_columns;
    const std::int64_t rows = std::min(dot_tile_rows, t.rows - row);
    if (part != packed_part)
      for (std::int64_t i = 0; i < rows; ++i)
        dispatch<DotPackKernel>(exec.isa, t.a.dtype(), element(t.a, batch, row + i, 0), t.k, packed + i * stride);
    packed_part = part;
    dispatch<DotTileKernel>(exec.isa, DotTile{.a = packed,
                                              .b = element(t.b, batch, 0, column),
                                              .b_k_stride = k_stride,
                                              .b_column_stride = column_stride,
                                              .b_type = t.b.dtype(),
                                              .rows = rows,
                                              .columns = std::min(dot_tile_columns, t.columns - column),
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
  Tiled t{a, b, out, a.size(1), b.size(2), a.size(2), 0, 0};
  t.row_parts = ceil_div(t.rows, dot_tile_rows);
  t.column_parts = ceil_div(t.columns, dot_tile_columns);
  const WorkRun tiles{a.size(0) * t.row_parts * t.column_parts};
  if (tiles.pieces == 0) return;
  const std::int64_t rows = std::min(t.rows, dot_tile_rows);
  const std::size_t floats = static_cast<std::size_t>(rows * dot_packed_stride(t.k)) + dot_tile_scratch(rows);
  const double operations = 2.0 * static_cast<double>(rows * dot_tile_columns) * static_cast<double>(t.k);
  Work(exec, tiles.pieces, floats * sizeof(float)).split({&tiles, 1}, operations, [&](auto, auto first, auto last, std::byte* scratch) {
    run_tiles(t, exec, first, last, reinterpret_cast<float*>(scratch));
  });
}

}  // namespace dodona::ops
