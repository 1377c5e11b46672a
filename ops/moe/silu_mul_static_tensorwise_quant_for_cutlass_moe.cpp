#include "ops/moe/silu_mul_static_tensorwise_quant_for_cutlass_moe.h"

#include <string>

#include "ops/rows/silu_fp8.h"

namespace dodona::ops {
namespace {

using Call = SiluMulStaticTensorwiseQuantForCutlassMoe;

SiluFp8 rows_of(const Call& op) {
  return {.input = op.input, .output = op.output, .scale = op.scale, .counts = counts_of(op.num_tokens_tensor)};
}

template <SiluFp8Mistake mistake>
void golden(const Call& op, const Exec& exec, Reference* reference) {
  golden_silu_fp8(rows_of(op), exec, reference, mistake);
}
/// The activation is rounded before its product with up, as the kernel for masked rows does it.
void golden_rounded(const Call& op, const Exec& exec, Reference* reference) {
  SiluFp8 call = rows_of(op);
  call.round_activation = true;
  golden_silu_fp8(call, exec, reference);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_silu_mul_static_tensorwise_quant_for_cutlass_moe() {
  using enum ops::SiluFp8Mistake;
  using Call = ops::SiluMulStaticTensorwiseQuantForCutlassMoe;
  return define<Call>({
      .contract = std::string(R"(
gate and up widened to fp32; silu = gate / (1 + exp(-gate)), times up, times r = 1 / scale, all in fp32; one rounding to e4m3 (nearest even).)") +
                  std::string(ops::silu_fp8_budget) +
                  R"( Hopper mode: division is `div.full`, exp the hardware's ex2, denormals are kept.)",
      .golden = ops::golden<none>,
      .fast = [](const Call& op, const Exec& exec) { ops::fast_silu_fp8(ops::rows_of(op), exec); },
      .hopper = [](const Call& op, const Exec& exec) { ops::hopper_silu_fp8(ops::rows_of(op), exec); },
      .mistakes = {{"scale-left-out", "products are not divided by the scale", ops::golden<scale_left_out>},
                   {"multiplied", "products are multiplied by the scale", ops::golden<multiplied>},
                   {"gate-and-up-swapped", "up goes through the activation", ops::golden<gate_and_up_swapped>},
                   {"activation-rounded", "the activation is rounded to the input's type", ops::golden_rounded, true}},
      .cases = {"R=6 N=256", "R=9 N=72 --dtype input=f16 --seed 2", "R=5 N=33 --dtype input=f32 --dist wide-exponent"},
      .bench_cases = {"R=8 N=2048", "R=512 N=2048"},
  });
}
}  // namespace dodona
