// Weights in bf16.
#include "core/define.h"
#include "model/layer/linear/method.h"
#include "ops/gemm/dsv3_fused_a_gemm.h"
#include "ops/gemm/dsv3_router_gemm.h"
#include "ops/gemm/linear.h"

namespace dodona::model {
namespace {

Tensor apply(const Projection& projection, const Tensor& x, DType out, const Exec& exec) {
  return ops::run(ops::Linear{.input = x, .weight = projection.weight.weight, .out_dtype = out}, exec).output;
}

Tensor fused_a(const Projection& projection, const Tensor& x, const Exec& exec) {
  return ops::run(ops::Dsv3FusedAGemm{.mat_a = x, .mat_b = projection.weight.weight.transpose(0, 1)}, exec).output;
}

Tensor router(const Projection& projection, const Tensor& x, const Exec& exec) {
  return ops::run(ops::Dsv3RouterGemm{.hidden_states = x, .router_weights = projection.weight.weight, .out_dtype = DType::f32}, exec)
      .output;
}

}  // namespace

const LinearMethod bf16_method{.name = "bf16", .kernel = "linear", .prepare = [](Projection&, const Exec&) {}, .apply = apply};

const LowLatencyKernel fused_a_kernel{"dsv3_fused_a_gemm",
                                      [](std::int64_t rows, std::int64_t columns) { return rows == 2112 && columns == 7168; }, fused_a};
const LowLatencyKernel router_kernel{
    "dsv3_router_gemm", [](std::int64_t rows, std::int64_t columns) { return (rows == 256 || rows == 384) && columns == 7168; }, router};

const LowLatencyKernel* LowLatencyKernel::chosen(const Projection& projection, std::int64_t tokens, Rounding rounding) const {
  constexpr std::int64_t most_tokens = 16;
  const bool runs = projection.method == &bf16_method && rounding == Rounding::bf16 && tokens <= most_tokens &&
                    fits(projection.rows(), projection.columns());
  return runs ? this : nullptr;
}

}  // namespace dodona::model
