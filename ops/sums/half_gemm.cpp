#include "ops/sums/half_gemm.h"

#include <algorithm>
#include <vector>

#include "core/threads.h"
#include "ops/tiles/half_tile.h"

namespace dodona::ops {
namespace {

struct Sizes {
  std::int64_t batches, rows, columns, k;
};
Sizes sizes_of(const HalfGemm& gemm) {
  return {gemm.a.size(0), gemm.a.size(1), gemm.b.size(2), gemm.a.size(2)};
}

std::int64_t ceil_div(std::int64_t x, std::int64_t y) {
  return (x + y - 1) / y;
}

std::byte* element(const Tensor& t, std::int64_t i, std::int64_t j, std::int64_t k) {
  return static_cast<std::byte*>(t.data()) + (i * t.stride(0) + j * t.stride(1) + k * t.stride(2)) * (bits(t.dtype()) / 8);
}

}  // namespace

bool has_dense_columns_or_rows(const Tensor& b) {
  return b.stride(-1) == 1 || b.stride(-2) == 1 || b.size(-1) <= 1 || b.size(-2) <= 1;
}

double half_gemm_flops(const HalfGemm& gemm) {
  const Sizes s = sizes_of(gemm);
  return 2.0 * static_cast<double>(s.batches) * static_cast<double>(s.rows) * static_cast<double>(s.columns) * static_cast<double>(s.k);
}

namespace {

/// How a product is cut into tiles, in the order batch, rows, columns. Every output is summed within one tile.
struct Tiling {
  std::int64_t row_parts, column_parts;
};

/// A run of tiles on one thread: rows of A are packed when they change.
void run_tiles(const HalfGemm& gemm, const Exec& exec, const Sizes& s, const Tiling& t, std::int64_t begin, std::int64_t end,
               float* packed) {
  const std::int64_t stride = half_packed_stride(s.k);
  float* const scratch = packed + std::min(s.rows, half_tile_rows) * stride;
  // A dimension of one element has any stride.
  const std::int64_t k_stride = s.k == 1 ? 1 : gemm.b.stride(1), column_stride = s.columns == 1 && k_stride != 1 ? 1 : gemm.b.stride(2);
  std::int64_t packed_part = -1;
  for (std::int64_t index = begin; index < end; ++index) {
    const std::int64_t part = index / t.column_parts, batch = part / t.row_parts;
    const std::int64_t row = part % t.row_parts * half_tile_rows, column = index % t.column_parts * half_tile_columns;
    const std::int64_t rows = std::min(half_tile_rows, s.rows - row);
    if (part != packed_part)
      for (std::int64_t i = 0; i < rows; ++i)
        dispatch<HalfPackKernel>(exec.isa, gemm.a.dtype(), element(gemm.a, batch, row + i, 0), s.k, packed + i * stride);
    packed_part = part;
    dispatch<HalfTileKernel>(exec.isa, HalfTile{.a = packed,
                                                .b = element(gemm.b, batch, 0, column),
                                                .b_k_stride = k_stride,
                                                .b_column_stride = column_stride,
                                                .b_type = gemm.b.dtype(),
                                                .rows = rows,
                                                .columns = std::min(half_tile_columns, s.columns - column),
                                                .k = s.k,
                                                .out = element(gemm.out, batch, row, column),
                                                .out_stride = gemm.out.stride(1),
                                                .out_type = gemm.out.dtype(),
                                                .scratch = scratch});
  }
}

}  // namespace

void half_gemm_fast(const HalfGemm& gemm, const Exec& exec) {
  const Sizes s = sizes_of(gemm);
  const Tiling t{ceil_div(s.rows, half_tile_rows), ceil_div(s.columns, half_tile_columns)};
  const std::int64_t tiles = s.batches * t.row_parts * t.column_parts;
  if (tiles == 0) return;
  const std::int64_t rows = std::min(s.rows, half_tile_rows);
  const std::size_t floats = (static_cast<std::size_t>(rows * half_packed_stride(s.k)) + half_tile_scratch(rows) + 15) / 16 * 16;
  const std::int64_t workers = std::min<std::int64_t>(exec.threads, tiles);
  const Scratch scratch = exec.scratch.take(static_cast<std::size_t>(workers) * floats * sizeof(float));
  parallel_for(exec.threads, workers, half_gemm_flops(gemm) / static_cast<double>(workers), [&](std::int64_t worker) {
    run_tiles(gemm, exec, s, t, tiles * worker / workers, tiles * (worker + 1) / workers,
              scratch.as<float>() + static_cast<std::size_t>(worker) * floats);
  });
}

}  // namespace dodona::ops
