#include "ops/activation/silu_and_mul.h"

#include "ops/rows/activation/silu.h"

namespace dodona::ops {
namespace {

void golden(const SiluAndMul& op, const Exec& exec, Reference* reference) {
  golden_act_and_mul(act_and_mul(op), golden_silu(exec), exec, reference);
}
void fast(const SiluAndMul& op, const Exec& exec) {
  fast_act_and_mul(act_and_mul(op), ActivationKind::silu, exec);
}
void hopper(const SiluAndMul& op, const Exec& exec) {
  hopper_act_and_mul(act_and_mul(op), hopper_silu, exec);
}

/// sglang's Triton kernel rounds the activation.
std::optional<Refusal> unsupported(const SiluAndMul& op, Mode mode) {
  ActAndMul call = act_and_mul(op);
  call.round_activation = false;
  return act_and_mul_unsupported(call, mode);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_silu_and_mul() {
  return define<ops::SiluAndMul>({
      .contract = R"(
gate and up widened to fp32; silu = gate / (1 + exp(-gate)) in fp32, not rounded to the type (round_activation=yes: rounded);
times up in fp32; one rounding to the type (nearest even). exp(-gate) overflows beyond 88.72, which gives -0. Budget, relative,
in units of 2^-24: 2*(2 + 1.173|gate|) weighted with exp(-gate)/(1 + exp(-gate)) for the exponential, 1 for the sum, 4 for an
approximate division, 2 for products. Down to 0 where 1 + exp(-gate) exceeds 2^126 (gate below -87.33) and where silu, up or the
product are denormal: fast-math builds lose those. Where up is infinite and silu may so vanish, nothing is compared.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .defects = {ops::misaligned_half_row<ops::SiluAndMul>()},
      .mistakes = {ops::quick_gelu<ops::SiluAndMul>()},
      .customary = {{"*", CustomaryKind::close, 1e-3, 1e-3, "sgl-kernel/tests/test_activation.py test_fused_silu_mul (f16)"}},
      .fib_names = {{"silu_and_mul", "activation", "silu_and_mul_h", {{"input", "input"}}, {{"out", "output"}}}},
      .cases = {"T=4 D=2048", "T=3 D=1408 --dtype input=f16", "T=5 D=37 --dtype input=f32", "T=2 D=512 --dialect deepseek",
                "T=2 D=512 --dialect trtllm"},
      .bench_cases = {"T=1 D=2048", "T=512 D=2048", "T=512 D=18432", "T=4096 D=2048"},
  });
}
}  // namespace dodona
