#include "ops/activation/gelu_tanh_and_mul.h"

#include "ops/rows/activation/gelu.h"

namespace dodona::ops {
namespace {

void golden(const GeluTanhAndMul& op, const Exec& exec, Reference* reference) {
  const auto measured = [](double g) { return gelu_tanh(g, tanh_error_measured); };
  const auto documented = [](double g) { return gelu_tanh(g, tanh_error_documented); };
  golden_act_and_mul(act_and_mul(op), op.tanh_error == "measured" ? +measured : +documented, exec, reference);
}
void fast(const GeluTanhAndMul& op, const Exec& exec) {
  fast_act_and_mul(act_and_mul(op), ActivationKind::gelu_tanh, exec);
}
void hopper(const GeluTanhAndMul& op, const Exec& exec) {
  hopper_act_and_mul(act_and_mul(op), hopper_gelu_tanh, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_gelu_tanh_and_mul() {
  return define<ops::GeluTanhAndMul>({
      .contract = R"(
gate and up widened to fp32; gelu = gate * (0.5 * (1 + tanh(0.79788456 * (gate + 0.044715 gate^3)))) in fp32, not rounded to the
type (round_activation=yes: rounded); times up in fp32; one rounding to the type (nearest even). Budget: |up| * |gate|/2 times
(tanh_error * |tanh| + 2^-24 (5 |z| (1 - tanh^2) + 1 + tanh)), absolute because 1 + tanh cancels, plus 3 * 2^-24 relative for
products. tanh_error is 2^-16 by default: the approximate tanh of an H200 is within 1.12e-5 of the exact one for all arguments;
tanh_error=documented allows the instruction's documented 2^-11. Down to 0 where tanh is -1 and where gelu, up or the product
are denormal. Where up is infinite and gelu may so vanish, nothing is compared.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported_act_and_mul<ops::GeluTanhAndMul>,
      .defects = {ops::misaligned_half_row<ops::GeluTanhAndMul>()},
      .mistakes = {ops::quick_gelu<ops::GeluTanhAndMul>()},
      .customary = {{"*", CustomaryKind::close, 1e-3, 1e-3, "sgl-kernel/tests/test_activation.py test_fused_gelu_tanh_mul (f16)"}},
      .fib_names = {{"gelu_tanh_and_mul", "activation", "gelu_tanh_and_mul_h", {{"input", "input"}}, {{"out", "output"}}}},
      .cases = {"T=4 D=2048", "T=3 D=1408 --dtype input=f16", "T=5 D=37 --dtype input=f32", "T=2 D=512 --dialect deepseek",
                "T=2 D=512 --dialect trtllm"},
      .bench_cases = {"T=1 D=2048", "T=512 D=2048", "T=512 D=18432"},
  });
}
}  // namespace dodona
