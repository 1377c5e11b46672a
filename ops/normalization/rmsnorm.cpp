#include "ops/normalization/rmsnorm.h"

#include <algorithm>
#include <vector>

#include "core/threads.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "ops/rows/norms/rms_mistakes.h"
#include "ops/rows/norms/rms_row.h"
#include "ops/rows/norms/root_mean_square.h"
#include "quant/element.h"

namespace dodona::ops {
namespace {

template <RmsFactorOf factor, AddBias add_bias = bias_in_f32>
void golden_by(const Rmsnorm& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.output, reference, "output");
  out.make_open();
  const std::int64_t width = op.weight.size(0);
  const DType type = op.output.dtype();
  std::vector<double> weight(static_cast<std::size_t>(width));
  quant::to_f64(type, op.weight.data(), weight.data(), width);
  if (op.weight_bias != 0) add_bias(type, weight, op.weight_bias);
  parallel_for(exec.threads, row_count(op.input), static_cast<double>(width), [&](std::int64_t t) {
    // A copy of the row: the output may be the input's memory.
    std::vector<double> x(static_cast<std::size_t>(width));
    quant::to_f64(type, row_begin(op.input, t, bits(type) / 8), x.data(), width);
    golden_rms_row(out, type, t * width, x, {}, weight, op.eps, op.weight_order == "rounded", factor);
  });
}

void fast(const Rmsnorm& op, const Exec& exec) {
  const std::int64_t rows = row_count(op.input), width = op.weight.size(0);
  const int element_bytes = bits(op.input.dtype()) / 8;
  const bool stream = worth_streaming(op.output) && op.input.data() != op.output.data();
  parallel_for_rows(exec.threads, rows, static_cast<double>(width), stream, width * element_bytes, [&](std::int64_t t, Writing writing) {
    const RmsRow row{.input = row_begin(op.input, t, element_bytes),
                     .addend = nullptr,
                     .weight = op.weight.data(),
                     .output = row_begin_mutable(op.output, t, element_bytes),
                     .sum_output = nullptr,
                     .next_input = row_begin(op.input, std::min(t + 1, rows - 1), element_bytes),
                     .next_addend = nullptr,
                     .n = width,
                     .type = op.input.dtype(),
                     .eps = static_cast<float>(op.eps),
                     .weight_bias = static_cast<float>(op.weight_bias),
                     .writing = writing,
                     .sum_rounded = false,
                     .weight_rounded = op.weight_order == "rounded"};
    dispatch<RmsRowKernel>(exec.isa, row);
  });
}

std::optional<Refusal> unsupported(const Rmsnorm& op, Mode mode) {
  if (mode != Mode::hopper) return {};
  if ((op.weight_order == "rounded") != (op.kernel == "vllm"))
    return Refusal{"weight_order", "'" + op.weight_order + "' has no hopper mode with kernel=" + op.kernel + ": vllm's kernel rounds, " +
                                       "flashinfer's and triton's are fused"};
  if (op.weight_bias != 0 && op.kernel != "flashinfer") return no_bias_in(op.kernel);
  if (op.input.dtype() == f32) return Refusal{"input", "of dtype f32 has no hopper mode: the H200's kernel takes bf16 and f16"};
  return {};
}

void hopper(const Rmsnorm& op, const Exec& exec) {
  const std::int64_t width = op.weight.size(0);
  const DType type = op.input.dtype();
  const int element_bytes = bits(type) / 8;
  const RmsKernel kernel = op.kernel == "vllm"     ? RmsKernel::vllm
                           : op.kernel == "triton" ? RmsKernel::triton
                           : op.input.rank() == 3  ? RmsKernel::flashinfer_heads
                                                   : RmsKernel::flashinfer;
  std::vector<float> weight(static_cast<std::size_t>(width));
  quant::to_f32(type, op.weight.data(), weight.data(), width);
  parallel_for(exec.threads, row_count(op.input), static_cast<double>(width), [&](std::int64_t t) {
    std::vector<float> x(static_cast<std::size_t>(width));
    quant::to_f32(type, row_begin(op.input, t, element_bytes), x.data(), width);
    hopper_rms_row(kernel, x, weight, type, op.eps, op.weight_bias);
    quant::from_f32(type, x.data(), row_begin_mutable(op.output, t, element_bytes), width);
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_rmsnorm() {
  return define<ops::Rmsnorm>({
      .contract = R"(
x and weight widened to fp32; sum of squares, mean + eps and 1/sqrt in fp32; (x*r)*weight in fp32; one rounding to the output
type (nearest even). weight_order=rounded: x*r is rounded to the type first, and the product with the weight again. The order of
the sum is open: chains of at most max(64, H/128) additions, then a tree. A sum of squares that overflows fp32 gives r = 0.
Budget, relative: 0.5*(chain + log2 H + 5) + 6 units of 2^-24, twice 2^-126 over (mean + eps), and all of what denormals that
may be flushed carry (x, x*r, weight, y). With weight_order=rounded only values whose inner rounding may fall to a neighbour are
open. Under a weight of -0 the sign of y is open: FlashInfer's kernel, sgl-kernel's too, adds the weight to a bias of 0 first,
which makes it +0 (and hopper mode does), others do not. weight_bias is added to the weight in fp32, one rounding, before the product.
Hopper mode adds the squares of a row of heads, [T, heads, D], by one warp, as FlashInfer's kernel for them.)",
      .contract_version = 3,
      .golden = ops::golden_by<ops::rms_factor_of>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .mistakes = ops::rms_mistakes<ops::Rmsnorm>(
          []<ops::RmsFactorOf factor> { return ops::golden_by<factor>; },
          {{"bias-left-out", "weight_bias is not added to the weights", ops::golden_by<ops::rms_factor_of, ops::bias_left_out>, true},
           {"bias-in-type", "weight_bias is added to the weights in their own type", ops::golden_by<ops::rms_factor_of, ops::bias_in_type>,
            true}}),
      .customary = {{"*", CustomaryKind::close, 1e-3, 1e-3, "sgl-kernel/tests/test_norm.py test_norm (f16)"}},
      .fib_names = {{"rmsnorm", "rmsnorm", "rmsnorm_h", {{"input", "hidden_states"}, {"weight", "weight"}}, {{"output", "output"}}}},
      .cases = {"T=4 H=7168", "T=7 H=1536 --dtype input=f16", "T=3 H=111 --dtype input=f32", "T=2 H=512 --dialect deepseek",
                "T=3 H=1536 --attr kernel=vllm --attr weight_order=rounded", "T=3 H=576 --attr kernel=triton",
                "T=2 H=1024 --attr weight_bias=1"},
      .bench_cases = {"T=1 H=7168", "T=512 H=7168", "T=4096 H=7168"},
  });
}
}  // namespace dodona
