#include "ops/sums/half_gemm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/threads.h"
#include "ops/base/golden_output.h"
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

Tensor batch_of_one(const Tensor& matrix) {
  return {matrix.owner(),   matrix.data(), matrix.dtype(), {1, matrix.size(0), matrix.size(1)}, {0, matrix.stride(0), matrix.stride(1)},
          matrix.writable()};
}

bool has_dense_columns_or_rows(const Tensor& b) {
  return b.stride(-1) == 1 || b.stride(-2) == 1 || b.size(-1) <= 1 || b.size(-2) <= 1;
}

double half_gemm_flops(const HalfGemm& gemm) {
  const Sizes s = sizes_of(gemm);
  return 2.0 * static_cast<double>(s.batches) * static_cast<double>(s.rows) * static_cast<double>(s.columns) * static_cast<double>(s.k);
}

// ---- golden

const std::string_view half_sum_contract = R"(
acc = sum over k of the products, in fp32 (no TF32, no 16-bit accumulator); out = rn(acc), to nearest even. NaN and infinities
follow IEEE; where the magnitudes of the products add up beyond fp32, infinities and NaN pass too. Budget of acc: the larger of
two ways to add. (1) k ascending, in one chain or in contiguous parts whose fp32 sums are added: with D the largest magnitude of
a sum over any contiguous range of k, K + 16 + min(48, K/16) units of 2^-24 D. That holds for one rounding an addition, and for
tensor cores that take 16 products a step: 17 addends cut below 2^-25 of the largest and a sum cut to 24 bits lose less than 16
such units a step, and up to 48 parts are added; there a denormal factor counts as its type's smallest normal, so D is at least
the largest such product. (2) any other order in which no product passes through more than K/16 + 32 additions (never more than
K): that many units of 2^-24 of the larger of two sums, of all positive products and of all negative ones, which no partial sum
exceeds. Where a product of the two types does not fit fp32, its own rounding: 2^-24 of the sum of all magnitudes.)";

namespace {
/// What a tensor core takes a denormal factor's exponent from.
double smallest_normal(DType type) {
  return type == DType::f16 ? 0x1p-14 : 0x1p-126;
}
}  // namespace

HalfSum half_sum(std::span<const double> a, DType a_type, std::span<const double> b, DType b_type) {
  const bool exact_products = a_type != DType::f32 && b_type != DType::f32;
  const double a_normal = smallest_normal(a_type), b_normal = smallest_normal(b_type);
  double sum = 0, lowest = 0, highest = 0, positive = 0, negative = 0, largest = 0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    const double product = a[k] * b[k];
    if (product != 0) largest = std::max(largest, std::max(std::fabs(a[k]), a_normal) * std::max(std::fabs(b[k]), b_normal));
    sum += product;
    lowest = std::min(lowest, sum), highest = std::max(highest, sum);
    (product > 0 ? positive : negative) += std::fabs(product);
  }
  const double magnitudes = positive + negative;
  if (std::isnan(sum) || std::isinf(sum)) {
    // Of an operand. A finite product that overflows may turn the one infinity into NaN.
    double finite = 0;
    for (std::size_t k = 0; k < a.size(); ++k)
      if (const double product = std::fabs(a[k] * b[k]); std::isfinite(product)) finite += product;
    return {sum, 0.0, !std::isnan(sum) && finite > 0x1.ffp127};
  }
  if (magnitudes > 0x1.ffp127) return {sum, 0.0, true};
  const auto additions = static_cast<double>(a.size());
  const double steps = std::ceil(additions / 16);
  const double ascending = (additions + 16 + std::min(48.0, steps)) * std::max(highest - lowest, largest);
  const double spread = std::min(steps + 32, additions) * std::max(positive, negative);
  const double products = exact_products ? 0.0 : magnitudes;
  // Each addition and each product may be flushed. A sum of nothing but zeros may have either sign.
  const double flushed = magnitudes > 0 ? 2 * additions * flush_floor : a.empty() ? 0.0 : 0x1p-149;
  return {sum, (std::max(ascending, spread) + products) * f32_eps + flushed, false};
}

namespace {

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
  return sum;
}

void decode_column(const Tensor& b, std::int64_t batch, std::int64_t column, std::span<double> out) {
  if (b.stride(1) == 1) return quant::to_f64(b.dtype(), element(b, batch, 0, column), out.data(), static_cast<std::int64_t>(out.size()));
  for (std::size_t k = 0; k < out.size(); ++k) out[k] = quant::load(b.dtype(), element(b, batch, static_cast<std::int64_t>(k), column), 0);
}

/// The products of one column of B with decoded rows of A, from row `first` on.
void golden_column(const HalfGemm& gemm, const Sizes& s, std::int64_t batch, std::int64_t first, std::span<const double> rows,
                   std::int64_t count, std::int64_t j, bool judged, const GoldenOutput& out) {
  const auto k = static_cast<std::size_t>(s.k);
  std::vector<double> column(k);
  decode_column(gemm.b, batch, j, column);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto row = rows.subspan(static_cast<std::size_t>(i) * k, k);
    const std::int64_t linear = (batch * s.rows + first + i) * s.columns + j;
    const HalfSum sum = judged ? half_sum(row, gemm.a.dtype(), column, gemm.b.dtype()) : HalfSum{dot(row, column), 0.0, false};
    if (sum.open) {
      out.put_open(linear, sum.exact);
    } else {
      out.put(linear, sum.exact, sum.slack);
    }
  }
}

}  // namespace

void half_gemm_golden(const HalfGemm& gemm, const Exec& exec, Reference* reference, std::string_view output) {
  const GoldenOutput out(gemm.out, reference, output);
  const Sizes s = sizes_of(gemm);
  if (s.batches * s.rows * s.columns == 0) return;
  out.make_open();
  constexpr std::int64_t most_rows = 64;  // decoded at a time
  std::vector<double> rows(static_cast<std::size_t>(std::min(s.rows, most_rows) * s.k));
  for (std::int64_t batch = 0; batch < s.batches; ++batch)
    for (std::int64_t first = 0; first < s.rows; first += most_rows) {
      const std::int64_t count = std::min(most_rows, s.rows - first);
      for (std::int64_t i = 0; i < count; ++i)
        quant::to_f64(gemm.a.dtype(), element(gemm.a, batch, first + i, 0), rows.data() + i * s.k, s.k);
      parallel_for(exec.threads, s.columns, static_cast<double>(count * s.k),
                   [&](std::int64_t j) { golden_column(gemm, s, batch, first, rows, count, j, reference != nullptr, out); });
    }
}

// ---- fast

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
  Workspace own;
  Workspace& workspace = exec.workspace != nullptr ? *exec.workspace : own;
  auto* const scratch = reinterpret_cast<float*>(workspace.get(static_cast<std::size_t>(workers) * floats * sizeof(float)));
  parallel_for(exec.threads, workers, half_gemm_flops(gemm) / static_cast<double>(workers), [&](std::int64_t worker) {
    run_tiles(gemm, exec, s, t, tiles * worker / workers, tiles * (worker + 1) / workers,
              scratch + static_cast<std::size_t>(worker) * floats);
  });
}

}  // namespace dodona::ops
