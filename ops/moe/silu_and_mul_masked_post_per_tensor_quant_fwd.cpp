#include "ops/moe/silu_and_mul_masked_post_per_tensor_quant_fwd.h"

#include <string>

#include "ops/rows/silu_fp8.h"

namespace dodona::ops {
namespace {

using Call = SiluAndMulMaskedPostPerTensorQuantFwd;

SiluFp8 rows_of(const Call& op) {
  return {.input = op.input,
          .output = op.output,
          .scale = op.scale,
          .counts = counts_of(op.masked_m),
          .round_activation = true,
          .clamps = true};
}

template <SiluFp8Mistake mistake>
void golden(const Call& op, const Exec& exec, Reference* reference) {
  golden_silu_fp8(rows_of(op), exec, reference, mistake);
}
/// One rounding, behind the product.
void golden_unrounded(const Call& op, const Exec& exec, Reference* reference) {
  SiluFp8 call = rows_of(op);
  call.round_activation = false;
  golden_silu_fp8(call, exec, reference);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_silu_and_mul_masked_post_per_tensor_quant_fwd() {
  using enum ops::SiluFp8Mistake;
  using Call = ops::SiluAndMulMaskedPostPerTensorQuantFwd;
  return define<Call>({
      .contract = std::string(R"(
silu = T(gate / (1 + exp(-gate))), T the input's type; times up, times r = 1 / scale, both in fp32; clamped to 448, one rounding to e4m3
(nearest even). What NaN becomes is left open by the clamp. Scales of experts, which upstream's documentation allows too, are not offered:
the kernel divides by the first of them whatever the expert.)") +
                  std::string(ops::silu_fp8_budget) +
                  R"( Hopper mode: division is `div.full`, exp the hardware's ex2, denormals are kept.)",
      .golden = ops::golden<none>,
      .fast = [](const Call& op, const Exec& exec) { ops::fast_silu_fp8(ops::rows_of(op), exec); },
      .hopper = [](const Call& op, const Exec& exec) { ops::hopper_silu_fp8(ops::rows_of(op), exec); },
      .mistakes = {{"scale-left-out", "products are not divided by the scale", ops::golden<scale_left_out>},
                   {"multiplied", "products are multiplied by the scale", ops::golden<multiplied>},
                   {"gate-and-up-swapped", "up goes through the activation", ops::golden<gate_and_up_swapped>},
                   {"activation-unrounded", "the activation is not rounded", ops::golden_unrounded, true}},
      .cases = {"E=2 M=5 N=256", "E=3 M=4 N=72 --dtype input=f16 --seed 2", "E=3 M=3 N=136 --dist wide-exponent --seed 3"},
      .bench_cases = {"E=8 M=64 N=2048"},
  });
}
}  // namespace dodona
