#include "ops/gemm/qserve_w4a8_per_chn_gemm.h"

#include <algorithm>
#include <cmath>

#include "ops/sums/products_gpu.h"
#include "ops/tiles/float_vector.h"
#include "quant/qserve.h"

namespace dodona::ops {
namespace {

Product product_of(const QserveW4a8PerChnGemm& op, const Tensor& weights) {
  Product product = qserve_product(op.in_feats, weights);
  product.epilogue = {.factors = {{column_term(op.wscales), {}}, {row_term(op.ascales), {}}},
                      .addend = {column_term(op.w_szs), row_term(op.a_ssums)},
                      .subtract = true,
                      .fused = true};
  return product;
}

template <QserveReading reading, bool subtract>
void golden(const QserveW4a8PerChnGemm& op, const Exec& exec, Reference* reference) {
  const Tensor weights = qserve_weights(op.kernel, nullptr, nullptr, reading, exec);
  Product product = product_of(op, weights);
  product.epilogue.subtract = subtract;
  golden_products({&product, 1}, int32_exact, op.out_feats, reference, "out_feats", exec);
}

void hopper(const QserveW4a8PerChnGemm& op, const Exec& exec) {
  const Tensor weights = qserve_weights(op.kernel, nullptr, nullptr, QserveReading::right, exec);
  const Product product = product_of(op, weights);
  gpu_products({&product, 1}, int32_exact, op.out_feats, exec);
}

constexpr std::int64_t block_k = 128, strip = 32;

/// Kernels for fewer than 128 rows take K in blocks of 128, and read beyond a K that is not made of those.
bool reads_beyond_k(const QserveW4a8PerChnGemm& op) {
  return op.in_feats.size(0) < 128 && op.in_feats.size(1) % block_k != 0;
}

/// The least and the largest sum of products that a kernel may have come to.
struct SumRange {
  std::int64_t least = 0, most = 0;

  /// A product of a code and a weight, each in a range.
  void add(std::int64_t least_code, std::int64_t most_code, std::int64_t least_weight, std::int64_t most_weight) {
    const auto [low, high] =
        std::minmax({least_code * least_weight, least_code * most_weight, most_code * least_weight, most_code * most_weight});
    least += low;
    most += high;
  }
};

/// Behind K of a row lies the next row, and behind that of a strip of 32 columns the next strip; behind the last ones, whatever memory
/// holds: any code of eight bits, any weight of four.
SumRange sum_beyond_k(const QserveW4a8PerChnGemm& op, std::int64_t row, std::int64_t column) {
  const std::int64_t rows = op.in_feats.size(0), columns = op.kernel.size(0), k = op.in_feats.size(1);
  const auto* const x = op.in_feats.as<std::int8_t>() + row * k;
  SumRange sum;
  for (std::int64_t i = 0; i < (k + block_k - 1) / block_k * block_k; ++i) {
    const std::int64_t behind = i / k, of_column = column + strip * behind;
    const bool no_code = row + behind >= rows, no_weight = of_column >= columns;
    const std::int64_t code = no_code ? 0 : x[i],
                       weight = no_weight ? 0 : quant::qserve_weight(op.kernel.as<std::uint8_t>(), of_column, i % k, k);
    sum.add(no_code ? -128 : code, no_code ? 127 : code, no_weight ? 0 : weight, no_weight ? 15 : weight);
  }
  return sum;
}

/// What comes out lies between what the least and the largest sum give.
bool explains_beyond_k(const QserveW4a8PerChnGemm& actual, std::string_view, std::int64_t linear) {
  if (!reads_beyond_k(actual)) return false;
  const std::int64_t n = actual.kernel.size(0), row = linear / n, column = linear % n;
  const auto f32_at = [](const Tensor& t, std::int64_t i) { return static_cast<float>(quant::get(t, i)); };
  const auto result_of = [&](std::int64_t sum) {
    const float product = static_cast<float>(sum) * f32_at(actual.wscales, column);
    const float result = std::fma(product, f32_at(actual.ascales, row), -(f32_at(actual.w_szs, column) * f32_at(actual.a_ssums, row)));
    return quant::round_to(DType::f16, static_cast<double>(result));
  };
  const SumRange sum = sum_beyond_k(actual, row, column);
  const double one = result_of(sum.least), other = result_of(sum.most), is = quant::get(actual.out_feats, linear);
  if (std::isnan(one) || std::isnan(other)) return std::isnan(is) || sum.least != sum.most;
  return std::min(one, other) <= is && is <= std::max(one, other);
}

std::optional<Refusal> unsupported(const QserveW4a8PerChnGemm& op, Mode mode) {
  if (mode == Mode::hopper && reads_beyond_k(op))
    return Refusal{"in_feats", "has K = " + std::to_string(op.in_feats.size(1)) +
                                   ": for fewer than 128 tokens the H200's kernel reads whole blocks of 128, beyond the end of K"};
  return qserve_unsupported(op.in_feats, op.kernel, mode);
}

double flops(const QserveW4a8PerChnGemm& op) {
  return 2.0 * static_cast<double>(op.out_feats.elements()) * static_cast<double>(op.in_feats.size(1));
}

// ---- fast

I8Weights raw_weights(const QserveW4a8PerChnGemm& op) {
  return {.codes = op.kernel.as<std::uint8_t>(), .n = op.kernel.size(0), .k = 2 * op.kernel.size(1)};
}

void multiply(const QserveW4a8PerChnGemm& op, const I8Weights& weights, const Exec& exec) {
  using Kind = EpilogueStep::Kind;
  const FloatVector columns(op.wscales, exec), rows(op.ascales, exec), zeros(op.w_szs, exec), sums(op.a_ssums, exec);
  qserve_multiply(
      I8Format::qserve, op.in_feats, weights,
      {.steps = {{.values = columns.data(), .column_stride = 1},
                 {.values = rows.data(), .row_stride = 1},
                 {.kind = Kind::minus, .values = zeros.data(), .column_stride = 1, .by = sums.data(), .by_row_stride = 1, .fused = true}},
       .count = 3},
      op.out_feats, exec);
}

void fast(const QserveW4a8PerChnGemm& op, const Exec& exec) {
  multiply(op, raw_weights(op), exec);
}

void fast_prepared(const QserveW4a8PerChnGemm& op, const Prepared& prepared, const Exec& exec) {
  const auto* const packed = reinterpret_cast<const std::uint8_t*>(prepared.part(0));
  multiply(op, {.packed = packed, .n = op.kernel.size(0), .k = 2 * op.kernel.size(1)}, exec);
}

std::int64_t packed_bytes(const QserveW4a8PerChnGemm& op) {
  return i8_packed_bytes(I8Format::qserve, op.kernel.size(0), 2 * op.kernel.size(1));
}

void pack(const QserveW4a8PerChnGemm& op, std::byte* part, const Exec& exec) {
  i8_pack(I8Format::qserve, raw_weights(op), part, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_qserve_w4a8_per_chn_gemm() {
  using enum ops::QserveReading;
  return define<ops::QserveW4a8PerChnGemm>({
      .contract = R"(
acc = fl32(sum over k of in_feats * kernel), weights 0 to 15, the sum exact in 32-bit integers; u = fl32(acc * wscales[n]); out_feats =
rn(fl32(u * ascales[m] - fl32(w_szs[n] * a_ssums[m]))), one rounding for the product and the difference; to nearest even, overflow gives
infinity. Budget, units of 2^-24: 1 of acc where it is beyond 2^24, 1 for each product, and 1 of the difference.)",
      .contract_version = 2,
      .golden = ops::golden<right, true>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .prepare = {{"kernel"}, false, ops::packed_bytes, ops::pack, ops::fast_prepared},
      .flops = ops::flops,
      .defects =
          {ops::unwritten_columns<ops::QserveW4a8PerChnGemm>(),
           {"beyond-k", "out_feats",
            "with fewer than 128 rows and K no multiple of 128, products of what lies behind K are added, which is the next row and "
            "the next 32 columns, and behind the last ones whatever memory holds, codes of eight and weights of four bits (held to the "
            "sums that these give): no check asks for K",
            ops::explains_beyond_k}},
      .mistakes = {{"nibbles-in-order", "weights are read two a byte along K, as other formats have them",
                    ops::golden<nibbles_in_order, true>},
                   {"zeros-added", "the zero points' product is added", ops::golden<right, false>}},
      .customary = {{"*", CustomaryKind::close, 1e-3, 1e-2, "sgl-kernel/tests/test_qserve_w4a8_per_chn_gemm.py"}},
      .cases = {"M=4 N=64 K=256", "M=7 N=128 K=128 --dist wide-exponent", "M=33 N=64 K=128 --dist outliers", "M=130 N=64 K=192"},
      .bench_cases = {"M=1 N=4096 K=7168", "M=4 N=4096 K=7168", "M=16 N=4096 K=7168", "M=64 N=4096 K=7168", "M=256 N=4096 K=7168"},
  });
}
}  // namespace dodona
