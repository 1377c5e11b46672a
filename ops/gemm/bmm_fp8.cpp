#include "ops/gemm/bmm_fp8.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/threads.h"
#include "ops/sums/products.h"
#include "ops/sums/products_hopper.h"
#include "ops/tiles/fp8_tile.h"

namespace dodona::ops {
namespace {

struct Sizes {
  std::int64_t batches, m, n, k;
};
Sizes sizes_of(const BmmFp8& op) {
  return {op.A.size(0), op.A.size(1), op.B.size(2), op.A.size(2)};
}

// Row i of A and column j of B: k codes each.
const std::uint8_t* row_codes(const BmmFp8& op, std::int64_t batch, std::int64_t i) {
  return op.A.as<std::uint8_t>() + (batch * op.A.size(1) + i) * op.A.size(2);
}
const std::uint8_t* column_codes(const BmmFp8& op, std::int64_t batch, std::int64_t j) {
  return op.B.as<std::uint8_t>() + (batch * op.B.size(2) + j) * op.B.size(1);
}

float value_of(const Tensor& scale) {
  return *scale.as<float>();
}

void check(const BmmFp8& op) {
  if (op.A.dtype() == f8_e5m2 && op.B.dtype() == f8_e5m2)
    throw Error(ErrorCode::bad_dtype, "", "B", "has dtype f8_e5m2, expected f8_e4m3 as A has f8_e5m2: no kernel multiplies e5m2 by e5m2");
}

double flops(const BmmFp8& op) {
  const Sizes s = sizes_of(op);
  return 2.0 * static_cast<double>(s.batches) * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}

std::vector<Product> products_of(const BmmFp8& op) {
  return batched_products(op.A, op.B, {.factors = {{whole_term(op.A_scale), whole_term(op.B_scale)}}});
}

void golden(const BmmFp8& op, const Exec& exec, Reference* reference) {
  golden_products(products_of(op), op.accumulator == "fp32" ? fp32_in_any_order : hopper_fp8, op.out, reference, "out", exec);
}

std::optional<Refusal> unsupported(const BmmFp8& op, Mode mode) {
  if (mode == Mode::hopper && op.accumulator == "fp32")
    return Refusal{"accumulator", "'fp32' has no hopper mode: the H200's kernel does not promote its sums"};
  return {};
}

void hopper(const BmmFp8& op, const Exec& exec) {
  hopper_products(products_of(op), hopper_fp8, op.out, exec);
}

// ---- fast

/// How a product is cut into tiles. Every output is summed within one tile, so the cut does not show in its bits.
struct Tiling {
  std::int64_t row_parts, column_parts, panels;
};
std::int64_t ceil_div(std::int64_t x, std::int64_t y) {
  return (x + y - 1) / y;
}
Tiling tiling_of(const Sizes& s, int threads) {
  Tiling t{ceil_div(s.m, fp8_tile_rows), ceil_div(s.n, fp8_tile_columns), ceil_div(s.n, fp8_panel_columns)};
  // Some tiles per thread, so that none waits long for the last one.
  const std::int64_t tiles = s.batches * t.row_parts, wanted = threads > 1 ? 4 * threads : 1;
  if (tiles > 0) t.column_parts = std::clamp(ceil_div(wanted, tiles), t.column_parts, t.panels);
  return t;
}

void run_tile(const BmmFp8& op, const Exec& exec, const Sizes& s, const Tiling& t, std::int64_t index, float* scratch) {
  const std::int64_t column_part = index % t.column_parts, row_part = index / t.column_parts % t.row_parts;
  const std::int64_t batch = index / t.column_parts / t.row_parts;
  const std::int64_t row = row_part * fp8_tile_rows;
  const std::int64_t column = t.panels * column_part / t.column_parts * fp8_panel_columns;
  const std::int64_t column_end = std::min(s.n, t.panels * (column_part + 1) / t.column_parts * fp8_panel_columns);
  dispatch<Fp8TileKernel>(exec.isa, Fp8Tile{.a = row_codes(op, batch, row),
                                            .b = column_codes(op, batch, column),
                                            .out = op.out.as<std::uint16_t>() + (batch * s.m + row) * s.n + column,
                                            .rows = std::min(fp8_tile_rows, s.m - row),
                                            .columns = column_end - column,
                                            .k = s.k,
                                            .out_stride = s.n,
                                            .a_type = op.A.dtype(),
                                            .b_type = op.B.dtype(),
                                            .out_type = op.dtype,
                                            .scale = value_of(op.A_scale) * value_of(op.B_scale),
                                            .scratch = scratch});
}

void fast(const BmmFp8& op, const Exec& exec) {
  const Sizes s = sizes_of(op);
  const Tiling t = tiling_of(s, exec.threads);
  const std::int64_t tiles = s.batches * t.row_parts * t.column_parts;
  if (tiles == 0) return;
  const std::int64_t columns = std::min(ceil_div(t.panels, t.column_parts) * fp8_panel_columns, s.n);
  const std::size_t floats = (fp8_tile_scratch(std::min(s.m, fp8_tile_rows), columns, s.k) + 15) / 16 * 16;
  const std::int64_t workers = std::min<std::int64_t>(exec.threads, tiles);
  const Scratch scratch = exec.scratch.take(static_cast<std::size_t>(workers) * floats * sizeof(float));
  parallel_for(exec.threads, workers, flops(op) / static_cast<double>(workers), [&](std::int64_t worker) {
    for (std::int64_t i = tiles * worker / workers; i < tiles * (worker + 1) / workers; ++i)
      run_tile(op, exec, s, t, i, scratch.as<float>() + static_cast<std::size_t>(worker) * floats);
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_bmm_fp8() {
  return define<ops::BmmFp8>({
      .contract = R"(
acc = sum over k of A*B (products are exact); out = rn(fl32(acc * fl32(A_scale*B_scale))), to nearest even. NaN and infinities
follow IEEE. Budget of acc, accumulator=hopper_fp8: K ascending in steps of 32 without promotion; with u = 2^(e-13), e the
largest exponent among a step's products and the largest partial sum of the whole row, each product may lose |p| mod u (of the
losses of either sign the larger total counts); the running sum loses where a step's products exceed those of the step before,
and the new sum where it outgrows its addends. A budget of fp32 roundings would fail the H200's kernel, whose saturated rows
lose percents. accumulator=fp32, and at least: K units of 2^-24 of the sum of |A*B|. Then 2^-24 relative for the product with
the scale.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .check = ops::check,
      .flops = ops::flops,
      .customary = {{"*", CustomaryKind::cosine, 0, 0.99, "sgl-kernel/tests/test_bmm_fp8.py"}},
      .cases = {"L=3 M=17 N=80 K=64", "L=2 M=16 N=32 K=512 --dtype A=f8_e5m2 --attr dtype=f16", "L=2 M=5 N=48 K=144 --dtype B=f8_e5m2",
                "L=1 M=1 N=16 K=1040 --dialect trtllm"},
      .bench_cases = {"L=128 M=64 N=512 K=128", "L=128 M=64 N=128 K=512", "L=128 M=1 N=512 K=128"},
  });
}
}  // namespace dodona
