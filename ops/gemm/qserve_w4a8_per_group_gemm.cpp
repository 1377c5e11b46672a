#include "ops/gemm/qserve_w4a8_per_group_gemm.h"

#include <algorithm>

#include "core/random.h"
#include "dodona/error.h"
#include "ops/sums/products_gpu.h"
#include "ops/tiles/float_vector.h"

namespace dodona::ops {
namespace {

/// Kernels multiply four codes by one scale in a 32-bit word: products must stay below 256.
constexpr int largest_scale = 17;

void check(const QserveW4a8PerGroupGemm& op) {
  const auto* const scales = op.scales_i8.as<std::uint8_t>();
  if (scales == nullptr) return;
  // Every call looks at all of them: first for the largest.
  const std::int64_t count = op.scales_i8.elements();  // asked for once: the loop becomes vectors only so
  std::uint8_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, scales[i]);
  for (std::int64_t i = 0; largest > largest_scale; ++i)
    if (scales[i] > largest_scale)
      throw Error(ErrorCode::bad_value, "", "scales_i8",
                  "holds " + std::to_string(static_cast<std::int8_t>(scales[i])) + " at element " + std::to_string(i) + ", expected 0 to " +
                      std::to_string(largest_scale) + ": products with a code reach into the next one");
}

void make_inputs(QserveW4a8PerGroupGemm& op, std::uint64_t seed) {
  if (!op.scales_i8.defined()) return;
  const InputDraw draw(seed, "scales_i8");
  for (std::int64_t i = 0; i < op.scales_i8.elements(); ++i)
    op.scales_i8.as<std::int8_t>()[i] = static_cast<std::int8_t>(draw.below(i, largest_scale + 1));
}

Product product_of(const QserveW4a8PerGroupGemm& op, const Tensor& weights) {
  Product product = qserve_product(op.in_feats, weights);
  product.epilogue.factors = {{column_term(op.wscales), row_term(op.ascales)}};
  return product;
}

template <QserveReading reading>
void golden(const QserveW4a8PerGroupGemm& op, const Exec& exec, Reference* reference) {
  const Tensor weights = qserve_weights(op.kernel, &op.scales_i8, &op.zeros, reading, exec);
  const Product product = product_of(op, weights);
  golden_products({&product, 1}, int32_exact, op.out_feats, reference, "out_feats", exec);
}

void hopper(const QserveW4a8PerGroupGemm& op, const Exec& exec) {
  const Tensor weights = qserve_weights(op.kernel, &op.scales_i8, &op.zeros, QserveReading::right, exec);
  const Product product = product_of(op, weights);
  gpu_products({&product, 1}, int32_exact, op.out_feats, exec);
}

std::optional<Refusal> unsupported(const QserveW4a8PerGroupGemm& op, Mode mode) {
  return qserve_unsupported(op.in_feats, op.kernel, mode);
}

double flops(const QserveW4a8PerGroupGemm& op) {
  return 2.0 * static_cast<double>(op.out_feats.elements()) * static_cast<double>(op.in_feats.size(1));
}

// ---- fast

I8Weights raw_weights(const QserveW4a8PerGroupGemm& op) {
  return {.codes = op.kernel.as<std::uint8_t>(),
          .scales = op.scales_i8.as<std::uint8_t>(),
          .n = op.kernel.size(0),
          .k = 2 * op.kernel.size(1),
          .zeros = op.zeros.as<std::uint8_t>()};
}

void multiply(const QserveW4a8PerGroupGemm& op, const I8Weights& weights, const Exec& exec) {
  const FloatVector columns(op.wscales, exec), rows(op.ascales, exec);
  qserve_multiply(I8Format::qserve_groups, op.in_feats, weights,
                  {.steps = {{.values = columns.data(), .column_stride = 1, .by = rows.data(), .by_row_stride = 1}}, .count = 1},
                  op.out_feats, exec);
}

void fast(const QserveW4a8PerGroupGemm& op, const Exec& exec) {
  multiply(op, raw_weights(op), exec);
}

void fast_prepared(const QserveW4a8PerGroupGemm& op, const Prepared& prepared, const Exec& exec) {
  const auto* const packed = reinterpret_cast<const std::uint8_t*>(prepared.part(0));
  multiply(op, {.packed = packed, .n = op.kernel.size(0), .k = 2 * op.kernel.size(1)}, exec);
}

std::int64_t packed_bytes(const QserveW4a8PerGroupGemm& op) {
  return i8_packed_bytes(I8Format::qserve_groups, op.kernel.size(0), 2 * op.kernel.size(1));
}

void pack(const QserveW4a8PerGroupGemm& op, std::byte* part, const Exec& exec) {
  check(op);
  i8_pack(I8Format::qserve_groups, raw_weights(op), part, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_qserve_w4a8_per_group_gemm() {
  using enum ops::QserveReading;
  return define<ops::QserveW4a8PerGroupGemm>({
      .contract = R"(
w = (kernel * scales_i8 + zeros) mod 256 as int8; acc = fl32(sum over k of in_feats * w), the sum exact in 32-bit integers; out_feats =
rn(fl32(acc * fl32(wscales[n] * ascales[m]))), to nearest even, overflow gives infinity. Budget: 2^-24 of acc where it is beyond 2^24, and
2^-24 relative for its product with the scales.)",
      .golden = ops::golden<right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .prepare = {{"kernel", "zeros", "scales_i8"}, false, ops::packed_bytes, ops::pack, ops::fast_prepared},
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .flops = ops::flops,
      .defects = {ops::unwritten_columns<ops::QserveW4a8PerGroupGemm>()},
      .mistakes = {{"nibbles-in-order", "weights are read two a byte along K, as other formats have them", ops::golden<nibbles_in_order>},
                   {"scales-in-order", "scales_i8 and zeros are taken in the order of the channels", ops::golden<scales_in_order>},
                   {"weights-saturate", "codes times scales plus zeros saturate at -128 and 127, where they have to wrap",
                    ops::golden<saturating>}},
      .customary = {{"*", CustomaryKind::close, 1e-3, 1e-5, "sgl-kernel/tests/test_qserve_w4a8_per_group_gemm.py"}},
      .cases = {"M=4 N=64 K=256", "M=7 N=128 K=128 --dist wide-exponent", "M=33 N=64 K=384 --dist outliers"},
      .bench_cases = {"M=1 N=4096 K=7168", "M=4 N=4096 K=7168", "M=16 N=4096 K=7168", "M=64 N=4096 K=7168", "M=256 N=4096 K=7168"},
  });
}
}  // namespace dodona
