#include "ops/gemm/int8_scaled_mm.h"

#include "ops/sums/products_gpu.h"
#include "ops/tiles/panel_i8/panel_i8.h"

namespace dodona::ops {
namespace {

template <bool scaled_bias>
void golden(const Int8ScaledMm& op, const Exec& exec, Reference* reference) {
  const Product product = scaled_product(op, scaled_bias);
  golden_products({&product, 1}, int32_exact, op.out, reference, "out", exec);
}

void hopper(const Int8ScaledMm& op, const Exec& exec) {
  const Product product = scaled_product(op);
  gpu_products({&product, 1}, int32_exact, op.out, exec);
}

// ---- fast

I8Weights raw_weights(const Int8ScaledMm& op) {
  return {.codes = op.mat_b.as<std::uint8_t>(), .n = op.mat_b.size(1), .k = op.mat_b.size(0)};
}

void multiply(const Int8ScaledMm& op, const I8Weights& weights, const Exec& exec) {
  const FloatVector bias(op.bias, exec);
  const I8Group group{0, op.mat_a.size(0), 0, weights, scaled_epilogue(op, bias)};
  i8_multiply({.format = I8Format::i8, .groups = {&group, 1}, .rows = group.rows, .k = weights.k, .codes = op.mat_a.as<std::uint8_t>()},
              exec);
}

void fast(const Int8ScaledMm& op, const Exec& exec) {
  multiply(op, raw_weights(op), exec);
}

void fast_prepared(const Int8ScaledMm& op, const Prepared& prepared, const Exec& exec) {
  const auto* const packed = reinterpret_cast<const std::uint8_t*>(prepared.part(0));
  multiply(op, {.packed = packed, .n = op.mat_b.size(1), .k = op.mat_b.size(0)}, exec);
}

std::int64_t packed_bytes(const Int8ScaledMm& op) {
  return i8_packed_bytes(I8Format::i8, op.mat_b.size(1), op.mat_b.size(0));
}

void pack(const Int8ScaledMm& op, std::byte* part, const Exec& exec) {
  i8_pack(I8Format::i8, raw_weights(op), part, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_int8_scaled_mm() {
  return define<ops::Int8ScaledMm>({
      .contract = "acc = fl32(sum over k of A*B), the sum exact in 32-bit integers. " + ops::scaled_mm_contract +
                  "2^-24 of acc where it is beyond 2^24.",
      .contract_version = 2,
      .golden = ops::golden<false>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .prepare = {{"mat_b"}, false, ops::packed_bytes, ops::pack, ops::fast_prepared},
      .flops = ops::scaled_mm_flops<ops::Int8ScaledMm>,
      .mistakes = {{"bias-before-scale", "the bias is added before the product with scales_a", ops::golden<true>}},
      .cases = {"M=4 N=64 K=512", "M=7 N=40 K=304 --with bias --dist wide-exponent", "M=33 N=24 K=48 --attr out_dtype=f16 --with bias"},
      .bench_cases = {"M=1 N=4096 K=7168", "M=4 N=4096 K=7168", "M=16 N=4096 K=7168", "M=64 N=4096 K=7168", "M=256 N=4096 K=7168"},
  });
}
}  // namespace dodona
