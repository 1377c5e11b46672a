#include "ops/quantization/silu_and_mul_scaled_fp4_grouped_quant.h"

namespace dodona::ops {
namespace {

template <Fp4Rule rule>
void golden(const SiluAndMulScaledFp4GroupedQuant& op, const Exec& exec, Reference* reference) {
  golden_grouped_fp4(grouped_fp4(op, true), exec, reference, rule);
}
void condition(const SiluAndMulScaledFp4GroupedQuant& actual, const Exec& exec, Reference& reference) {
  condition_grouped_fp4(grouped_fp4(actual, true), exec, reference);
}
void fast(const SiluAndMulScaledFp4GroupedQuant& op, const Exec& exec) {
  fast_grouped_fp4(grouped_fp4(op, true), exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_silu_and_mul_scaled_fp4_grouped_quant() {
  return define<ops::SiluAndMulScaledFp4GroupedQuant>({
      .contract = R"(
Row r of group l is there where r < mask[l]. x = T(fl32(silu(gate) * up)), gate the first half of the row, T the input type: one rounding.
x is quantized as scaled_fp4_quant does it with S = input_global_scale[l], its scales in tiles of 128 x 4 of the group. Budgets: of x what
silu_and_mul leaves open; scales lie between those of the least and of the largest magnitudes that the block may have; codes as in
scaled_fp4_quant from the scale that was stored, and the share of x that is open. Rows beyond the mask, and scales of no row, are unspecified.)",
      .golden = ops::golden<ops::Fp4Rule::right>,
      .fast = ops::fast,
      .condition = ops::condition,
      .mistakes = {{"maximum-without-magnitude", "the maximum is taken of values, not of magnitudes",
                    ops::golden<ops::Fp4Rule::maximum_without_magnitude>},
                   {"scale-not-rounded", "codes are made with the scale as it was before its own rounding",
                    ops::golden<ops::Fp4Rule::scale_not_rounded>}},
      .cases = {"L=4 M=33 K=80", "L=3 M=130 K=32 --dtype input_tensor=f16", "L=2 M=5 K=272 --dist wide-exponent"},
      .bench_cases = {"L=8 M=64 K=2048"},
  });
}
}  // namespace dodona
