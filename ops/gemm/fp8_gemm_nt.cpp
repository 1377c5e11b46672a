#include "ops/gemm/fp8_gemm_nt.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "dodona/error.h"
#include "ops/schemes/deep_gemm.h"
#include "quant/element.h"

namespace dodona::ops {
namespace {

DeepGemmProduct product_of(const Fp8GemmNt& op) {
  return {.a = op.a, .sfa = op.sfa, .b = op.b, .sfb = op.sfb, .d = op.d, .gran_n = op.gran_n, .c = op.c};
}

template <DeepGemmScaling scaling>
void golden(const Fp8GemmNt& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.d, reference, "d");
  out.make_open();
  const DeepGemmProduct product = product_of(op);
  deep_gemm_golden({&product, 1}, out, reference != nullptr, scaling, exec);
}

void on_gpu(const Fp8GemmNt& op, const Exec& exec) {
  const DeepGemmProduct product = product_of(op);
  deep_gemm_on_gpu({&product, 1}, op.d, exec);
}

void fast(const Fp8GemmNt& op, const Exec& exec) {
  const DeepGemmProduct product = product_of(op);
  deep_gemm_fast({&product, 1}, exec);
}

void fast_prepared(const Fp8GemmNt& op, const Prepared& prepared, const Exec& exec) {
  DeepGemmProduct product = product_of(op);
  product.packed_b = prepared.part(0);
  deep_gemm_fast({&product, 1}, exec);
}

std::int64_t packed_bytes(const Fp8GemmNt& op) {
  return panel_packed_bytes(op.b.size(0), op.b.size(1));
}

void pack(const Fp8GemmNt& op, std::byte* part, const Exec& exec) {
  panel_pack({op.b.as<std::byte>(), op.b.stride(0), 0, f8_e4m3}, op.b.size(0), op.b.size(1), part, exec);
}

/// No code of e4m3.
constexpr double unknown_element = 1e300;

bool has_gaps(const Tensor& matrix) {
  return matrix.size(0) > 1 && matrix.stride(0) != matrix.size(1);
}

/// An H100's kernel with a scale for each row of b takes rows to be K apart, whatever their strides.
bool reads_dense_rows(const Fp8GemmNt& op, std::int64_t linear) {
  const std::int64_t n = op.b.size(0);
  const bool is_such = op.gran_n == 1 && !op.scale_ue8m0;
  return is_such && ((has_gaps(op.a) && linear >= n) || (has_gaps(op.b) && linear % n > 0));
}

/// A row as such a kernel reads it: element k lies row * K + k behind the matrix. `unknown_element` where no argument holds that.
std::vector<double> dense_row(const Tensor& matrix, std::int64_t row) {
  const std::int64_t k = matrix.size(1), apart = matrix.size(0) > 1 ? matrix.stride(0) : k;
  std::vector<double> x(static_cast<std::size_t>(k), unknown_element);
  for (std::int64_t i = 0; i < k; ++i) {
    const std::int64_t at = row * k + i;
    if (at / apart < matrix.size(0) && at % apart < k)
      quant::to_f64(f8_e4m3, matrix.as<std::byte>() + at, &x[static_cast<std::size_t>(i)], 1);
  }
  return x;
}

/// The scale of row `row` for block `block`.
double scale_at(const Tensor& scales, std::int64_t row, std::int64_t block) {
  return quant::get(scales.slice(0, row, row + 1).slice(1, block, block + 1), 0);
}

/// What is known of a product with such rows: some number within `reach` of `exact`, or NaN where elements of it are unknown.
struct DenseProduct {
  double exact = 0, reach = 0;
  bool unknown = false;
};

DenseProduct dense_product(const Fp8GemmNt& op, std::int64_t row, std::int64_t column) {
  constexpr double largest = 448;
  constexpr std::size_t block_size = 128;
  const std::vector<double> a = dense_row(op.a, row), b = dense_row(op.b, column);
  DenseProduct product;
  for (std::size_t begin = 0; begin < a.size(); begin += block_size) {
    double sum = 0, known = 0, unknown = 0;
    for (std::size_t i = begin; i < std::min(a.size(), begin + block_size); ++i) {
      const bool a_known = a[i] != unknown_element, b_known = b[i] != unknown_element;
      const double u = a_known ? a[i] : largest, v = b_known ? b[i] : largest;
      (a_known && b_known ? known : unknown) += std::fabs(u * v);
      if (a_known && b_known) sum += u * v;
      product.unknown = product.unknown || !a_known || !b_known;
    }
    const auto block = static_cast<std::int64_t>(begin / block_size);
    const double scale = scale_at(op.sfa, row, block) * scale_at(op.sfb, column, block);
    product.exact += sum * scale;
    // The tensor core cuts 32 products and the sum so far 2^-13 below the largest of them, four times in a block.
    product.reach += std::fabs(scale) * (known * 0x1p-6 + unknown * (1 + 0x1p-6));
  }
  const double c = op.c.defined() ? quant::get(op.c, row * op.b.size(0) + column) : 0.0;
  product.exact += c;
  product.reach += std::fabs(c) * 0x1p-22;
  return product;
}

/// Of large outputs one element in so many is held to what the kernel gives; the others are explained by their place.
std::int64_t held_one_in(const Fp8GemmNt& op) {
  constexpr std::int64_t most = std::int64_t{1} << 26;
  return 1 + op.d.elements() / std::max<std::int64_t>(1, most / std::max<std::int64_t>(1, op.b.size(1)));
}

bool explains_dense_rows(const Fp8GemmNt& actual, std::string_view, std::int64_t linear) {
  if (!reads_dense_rows(actual, linear)) return false;
  if (linear % held_one_in(actual) != 0) return true;
  const std::int64_t n = actual.b.size(0);
  const DenseProduct product = dense_product(actual, linear / n, linear % n);
  const double x = quant::get(actual.d, linear);
  if (std::isnan(product.exact) || std::isinf(product.exact)) return true;
  return std::isnan(x) ? product.unknown : std::fabs(x - product.exact) <= product.reach + std::fabs(x) * 0x1p-8;
}

std::optional<Refusal> unsupported(const Fp8GemmNt& op, Mode mode) {
  if (mode == Mode::hopper) {
    if (op.scale_ue8m0) return Refusal{"scale_ue8m0", "is true: an H100's kernels take scales in fp32"};
    if (op.gran_n == 128 && op.out_dtype == f32)
      return Refusal{"out_dtype", "is f32: an H100's kernel with a scale for 128 rows of b stores bf16"};
    for (const auto& [name, matrix] : {std::pair<const char*, const Tensor&>{"a", op.a}, {"b", op.b}})
      if (op.gran_n == 1 && has_gaps(matrix))
        return Refusal{name, "has rows " + std::to_string(matrix.stride(0)) +
                                 " apart: an H100's kernel with a scale for each row of b reads them " + std::to_string(matrix.size(1)) +
                                 " apart"};
    if (op.gran_n == 1 && !op.c.defined()) return Refusal{"c", "is not given: an H100's kernel with a scale for each row of b adds to it"};
  }
  if (mode == Mode::blackwell) {
    const DeepGemmProduct product = product_of(op);
    return deep_gemm_on_b200({&product, 1});
  }
  return {};
}

void check(const Fp8GemmNt& op) {
  require_deep_gemm_scales(op.gran_n, op.scale_ue8m0, op.sfa.dtype());
  if (op.c.defined() && op.out_dtype != f32) throw Error(ErrorCode::bad_dtype, "", "out_dtype", "is bf16, expected f32 with c");
}

double flops(const Fp8GemmNt& op) {
  const DeepGemmProduct product = product_of(op);
  return deep_gemm_flops({&product, 1});
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_fp8_gemm_nt() {
  const std::string words = " --attr scale_ue8m0=true --attr gran_n=1 --dtype sfa=i32";
  return define<ops::Fp8GemmNt>({
      .contract = std::string(ops::deep_gemm_contract) + " d = rn(acc), or rn(fl32(acc + c)), to nearest even.",
      .golden = ops::golden<ops::DeepGemmScaling::right>,
      .fast = ops::fast,
      .hopper = ops::on_gpu,
      .blackwell = ops::on_gpu,
      .unsupported = ops::unsupported,
      .prepare = {{"b"}, false, ops::packed_bytes, ops::pack, ops::fast_prepared},
      .check = ops::check,
      .flops = ops::flops,
      .defects = {{"rows-taken-as-dense", "d",
                   "gran_n = 1 with scales in fp32: rows of a and of b are read K apart, also where they are slices of wider ones (held to "
                   "that, as "
                   "far as the arguments hold what is read)",
                   ops::explains_dense_rows}},
      .mistakes = {{"scales-of-first-block", "the first scale of each row of a is used for all of K",
                    ops::golden<ops::DeepGemmScaling::of_first_block>}},
      .cases = {"M=5 N=40 K=256", "M=4 N=136 K=1536", "M=7 N=64 K=400 --dist wide-exponent",
                "M=5 N=40 K=256 --attr gran_n=1 --attr out_dtype=f32 --with c --special tiny-rows", "M=3 N=72 K=640" + words,
                "M=5 N=24 K=528 --attr out_dtype=f32 --with c --special tiny-rows" + words},
      .bench_cases = {"M=1 N=4096 K=7168", "M=64 N=4096 K=7168", "M=64 N=4096 K=7168" + words},
  });
}
}  // namespace dodona
