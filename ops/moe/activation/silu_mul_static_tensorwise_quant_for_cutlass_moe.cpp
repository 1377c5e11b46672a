#include "ops/moe/activation/silu_mul_static_tensorwise_quant_for_cutlass_moe.h"

#include <string>
#include <utility>

#include "ops/rows/activation/silu_fp8.h"

namespace dodona::ops {
namespace {

using Call = SiluMulStaticTensorwiseQuantForCutlassMoe;

SiluFp8 rows_of(const Call& op) {
  return {.input = op.input, .output = op.output, .scale = op.scale, .counts = counts_of(op.num_tokens_tensor)};
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_silu_mul_static_tensorwise_quant_for_cutlass_moe() {
  using Call = ops::SiluMulStaticTensorwiseQuantForCutlassMoe;
  Implementation<Call> all = ops::silu_fp8<Call, ops::rows_of>();
  all.contract = std::string(R"(
gate and up widened to fp32; silu = gate / (1 + exp(-gate)), times up, times r = 1 / scale, all in fp32; one rounding to e4m3 (nearest even).)") +
                 std::string(ops::silu_fp8_budget) + R"( Hopper mode: division is `div.full`, exp the hardware's ex2, denormals are kept.)";
  all.mistakes.push_back({"activation-rounded", "the activation is rounded to the input's type",
                          ops::golden_silu_fp8_rounded_otherwise<Call, ops::rows_of>, true});
  all.cases = {"R=6 N=256", "R=9 N=72 --dtype input=f16 --seed 2", "R=5 N=33 --dtype input=f32 --dist wide-exponent"};
  all.bench_cases = {"R=8 N=2048", "R=512 N=2048"};
  return define<Call>(std::move(all));
}
}  // namespace dodona
