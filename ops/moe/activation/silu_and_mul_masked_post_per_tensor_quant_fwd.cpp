#include "ops/moe/activation/silu_and_mul_masked_post_per_tensor_quant_fwd.h"

#include <string>
#include <utility>

#include "ops/rows/activation/silu_fp8.h"

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

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_silu_and_mul_masked_post_per_tensor_quant_fwd() {
  using Call = ops::SiluAndMulMaskedPostPerTensorQuantFwd;
  Implementation<Call> all = ops::silu_fp8<Call, ops::rows_of>();
  all.contract = std::string(R"(
silu = T(gate / (1 + exp(-gate))), T the input's type; times up, times r = 1 / scale, both in fp32; clamped to 448, one rounding to e4m3
(nearest even). What NaN becomes is left open by the clamp. Upstream's function takes a scale for each expert too, and its kernel divides by the
first of them whatever the expert: dodona.compat does so, the op takes that one.)") +
                 std::string(ops::silu_fp8_budget) + R"( Hopper mode: division is `div.full`, exp the hardware's ex2, denormals are kept.)";
  all.mistakes.push_back(
      {"activation-unrounded", "the activation is not rounded", ops::golden_silu_fp8_rounded_otherwise<Call, ops::rows_of>, true});
  all.cases = {"E=2 M=5 N=256", "E=3 M=4 N=72 --dtype input=f16 --seed 2", "E=3 M=3 N=136 --dist wide-exponent --seed 3"};
  all.bench_cases = {"E=8 M=64 N=2048"};
  return define<Call>(std::move(all));
}
}  // namespace dodona
