#include "ops/gemm/fp8_scaled_mm.h"

#include "ops/sums/products_gpu.h"
#include "ops/tiles/panel/panel.h"

namespace dodona::ops {
namespace {

template <bool scaled_bias>
void golden(const Fp8ScaledMm& op, const Exec& exec, Reference* reference) {
  const Product product = scaled_product(op, scaled_bias);
  golden_products({&product, 1}, op.accumulator == "fp32" ? fp32_in_any_order : hopper_fp8, op.out, reference, "out", exec);
}

std::optional<Refusal> unsupported(const Fp8ScaledMm& op, Mode mode) {
  if (mode == Mode::hopper && op.accumulator == "fp32")
    return Refusal{"accumulator", "'fp32' has no hopper mode: the H200's kernel does not promote its sums"};
  return {};
}

void hopper(const Fp8ScaledMm& op, const Exec& exec) {
  const Product product = scaled_product(op);
  gpu_products({&product, 1}, hopper_fp8, op.out, exec);
}

void blackwell(const Fp8ScaledMm& op, const Exec& exec) {
  Product product = scaled_product(op);
  product.epilogue.keeps_denormals = true;
  gpu_products({&product, 1}, hopper_fp8, op.out, exec);
}

// ---- fast

PanelOperand raw_weights(const Fp8ScaledMm& op) {
  return {op.mat_b.as<std::byte>(), op.mat_b.size(0), 0, f8_e4m3};
}

void multiply(const Fp8ScaledMm& op, const PanelOperand& weights, const Exec& exec) {
  const std::int64_t m = op.mat_a.size(0), k = op.mat_a.size(1), n = op.mat_b.size(1);
  const FloatVector bias(op.bias, exec);
  panel_multiply(
      {.m = m, .n = n, .k = k, .a = {op.mat_a.as<std::byte>(), k, 0, f8_e4m3}, .b = weights, .epilogue = scaled_epilogue(op, bias)}, exec);
}

void fast(const Fp8ScaledMm& op, const Exec& exec) {
  multiply(op, raw_weights(op), exec);
}

void fast_prepared(const Fp8ScaledMm& op, const Prepared& prepared, const Exec& exec) {
  multiply(op, packed_operand(f8_e4m3, prepared.part(0), op.mat_b.size(0)), exec);
}

std::int64_t packed_bytes(const Fp8ScaledMm& op) {
  return panel_packed_bytes(op.mat_b.size(1), op.mat_b.size(0));
}

void pack(const Fp8ScaledMm& op, std::byte* part, const Exec& exec) {
  panel_pack(raw_weights(op), op.mat_b.size(1), op.mat_b.size(0), part, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_fp8_scaled_mm() {
  return define<ops::Fp8ScaledMm>({
      .contract =
          "acc = sum over k of A*B (products are exact), all of K in one accumulator. NaN and infinities follow IEEE. " +
          ops::scaled_mm_contract +
          "that of acc is bmm_fp8's: with accumulator=hopper_fp8 what the fp8 tensor core of an H200 loses in steps of 32 products "
          "without promotion, rows that saturate lose percents; with accumulator=fp32, and at least, K units of 2^-24 of the sum of "
          "|A*B|. Blackwell mode: all of K in one chain of tcgen05.mma kind::f8f6f4, 32 products a step, as CUTLASS's persistent kernels "
          "have "
          "it, without split; the epilogue as above, denormals kept.",
      .contract_version = 2,
      .golden = ops::golden<false>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .blackwell = ops::blackwell,
      .unsupported = ops::unsupported,
      .prepare = {{"mat_b"}, false, ops::packed_bytes, ops::pack, ops::fast_prepared},
      .flops = ops::scaled_mm_flops<ops::Fp8ScaledMm>,
      .mistakes = {{"bias-before-scale", "the bias is added before the product with scales_a", ops::golden<true>}},
      .customary = {{"*", CustomaryKind::close, 2e-2, 1, "sgl-kernel/tests/test_fp8_gemm.py"}},
      .cases = {"M=4 N=64 K=512", "M=7 N=40 K=48 --attr out_dtype=f16 --with bias", "M=33 N=24 K=1040 --with bias --dist wide-exponent",
                "M=1 N=8 K=2064 --dialect trtllm"},
      .bench_cases = {"M=1 N=4096 K=7168", "M=4 N=4096 K=7168", "M=16 N=4096 K=7168", "M=64 N=4096 K=7168", "M=256 N=4096 K=7168"},
  });
}
}  // namespace dodona
