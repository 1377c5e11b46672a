#include "ops/activation/gelu_and_mul.h"

#include "ops/rows/activation/gelu.h"

namespace dodona::ops {
namespace {

void golden(const GeluAndMul& op, const Exec& exec, Reference* reference) {
  golden_act_and_mul(act_and_mul(op), gelu, exec, reference);
}
void fast(const GeluAndMul& op, const Exec& exec) {
  fast_act_and_mul(act_and_mul(op), ActivationKind::gelu, exec);
}
void hopper(const GeluAndMul& op, const Exec& exec) {
  hopper_act_and_mul(act_and_mul(op), hopper_gelu, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_gelu_and_mul() {
  return define<ops::GeluAndMul>({
      .contract = R"(
gate and up widened to fp32; gelu = gate * (0.5 * (1 + erf(gate * 0.70710678))) in fp32, constant and products rounded to fp32,
not rounded to the type (round_activation=yes: rounded); times up in fp32; one rounding to the type (nearest even). Budget: |up|
* |gate|/2 times (2 ulp of erf + 2^-24 (|z| erf'(z) + 1 + erf(z))), absolute because 1 + erf cancels, plus 3 * 2^-24 relative
for products. Down to 0 where erf is -1 in fp32 (gate below -6.36) and where gelu, up or the product are denormal. Where up is
infinite and gelu may so vanish, nothing is compared.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported_act_and_mul<ops::GeluAndMul>,
      .defects = {ops::misaligned_half_row<ops::GeluAndMul>()},
      .mistakes = {ops::quick_gelu<ops::GeluAndMul>()},
      .customary = {{"*", CustomaryKind::close, 1e-3, 1e-3, "sgl-kernel/tests/test_activation.py test_fused_gelu_mul (f16)"}},
      .fib_names = {{"gelu_and_mul", "activation", "gelu_and_mul_h", {{"input", "input"}}, {{"out", "output"}}}},
      .cases = {"T=4 D=2048", "T=3 D=1408 --dtype input=f16", "T=5 D=37 --dtype input=f32", "T=2 D=512 --dialect deepseek",
                "T=2 D=512 --dialect trtllm"},
      .bench_cases = {"T=1 D=2048", "T=512 D=2048", "T=512 D=18432"},
  });
}
}  // namespace dodona
