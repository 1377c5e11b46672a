#include "ops/normalization/fused_add_rmsnorm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/threads.h"
#include "ops/base/rows.h"
#include "ops/rows/norms/rms_mistakes.h"
#include "ops/rows/norms/rms_row.h"
#include "ops/rows/norms/root_mean_square.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

/// x itself where a build that flushes denormals has zero in its place, else 0.
double lost_if_flushed(double x) {
  return std::fabs(x) < flush_floor ? std::fabs(x) : 0.0;
}

template <RmsFactorOf factor, AddBias add_bias = bias_in_f32>
void golden_by(const FusedAddRmsnorm& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.input, reference, "input"), sum_out(op.residual, reference, "residual");
  out.make_open();
  const std::int64_t width = op.weight.size(0);
  const DType type = op.input.dtype();
  const int element_bytes = bits(type) / 8;
  const bool sum_rounded = op.normalize == "rounded";
  std::vector<double> weight(static_cast<std::size_t>(width));
  quant::to_f64(type, op.weight.data(), weight.data(), width);
  if (op.weight_bias != 0) add_bias(type, weight, op.weight_bias);
  parallel_for(exec.threads, row_count(op.input), static_cast<double>(width), [&](std::int64_t t) {
    std::vector<double> h(static_cast<std::size_t>(width)), addend(h.size()), lost(h.size());
    quant::to_f64(type, row_begin(op.input, t, element_bytes), h.data(), width);
    quant::to_f64(type, row_begin(op.residual, t, element_bytes), addend.data(), width);
    for (std::size_t i = 0; i < h.size(); ++i) {
      const double flushed = lost_if_flushed(h[i]) + lost_if_flushed(addend[i]);
      h[i] = static_cast<float>(h[i]) + static_cast<float>(addend[i]);
      lost[i] = flushed + lost_if_flushed(h[i]);
      sum_out.put(t * width + static_cast<std::int64_t>(i), {h[i], lost[i]});
      if (!sum_rounded) continue;
      const Bounded sum = rounded_to(type, {h[i], lost[i]});
      h[i] = sum.exact;
      lost[i] = sum.slack;
    }
    golden_rms_row(out, type, t * width, h, lost, weight, op.eps, op.weight_order == "rounded", factor);
  });
}

void fast(const FusedAddRmsnorm& op, const Exec& exec) {
  const std::int64_t rows = row_count(op.input), width = op.weight.size(0);
  const int element_bytes = bits(op.input.dtype()) / 8;
  parallel_for(exec.threads, rows, static_cast<double>(width), [&](std::int64_t t) {
    std::byte* const input = row_begin_mutable(op.input, t, element_bytes);
    std::byte* const residual = row_begin_mutable(op.residual, t, element_bytes);
    const std::int64_t next = std::min(t + 1, rows - 1);
    const RmsRow row{.input = input,
                     .addend = residual,
                     .weight = op.weight.data(),
                     .output = input,
                     .sum_output = residual,
                     .next_input = row_begin(op.input, next, element_bytes),
                     .next_addend = row_begin(op.residual, next, element_bytes),
                     .n = width,
                     .type = op.input.dtype(),
                     .eps = static_cast<float>(op.eps),
                     .weight_bias = static_cast<float>(op.weight_bias),
                     .writing = Writing::cached,
                     .sum_rounded = op.normalize == "rounded",
                     .weight_rounded = op.weight_order == "rounded"};
    dispatch<RmsRowKernel>(exec.isa, row);
  });
}

std::optional<Refusal> unsupported(const FusedAddRmsnorm& op, Mode mode) {
  if (mode != Mode::hopper) return {};
  const bool rounds = op.kernel != "flashinfer";
  const auto refusal = [&](const char* attr, const std::string& value) {
    return Refusal{attr, "'" + value + "' has no hopper mode with kernel=" + op.kernel + ": vllm's kernel rounds the sum and its product " +
                             "with the factor, flashinfer's neither"};
  };
  if ((op.normalize == "rounded") != rounds) return refusal("normalize", op.normalize);
  if ((op.weight_order == "rounded") != rounds) return refusal("weight_order", op.weight_order);
  if (rounds && op.weight_bias != 0) return no_bias_in(op.kernel);
  if (rounds && (op.input.dtype() == f32 || op.weight.size(0) % 8 != 0))
    return Refusal{"input", "has no hopper mode with kernel=" + op.kernel + " but in bf16 and f16, in rows of a multiple of 8"};
  return {};
}

void hopper(const FusedAddRmsnorm& op, const Exec& exec) {
  const std::int64_t width = op.weight.size(0);
  const DType type = op.input.dtype();
  const int element_bytes = bits(type) / 8;
  const RmsKernel kernel = op.kernel == "vllm"       ? RmsKernel::vllm_vectors
                           : op.kernel == "vllm_256" ? RmsKernel::vllm_vectors_256
                                                     : RmsKernel::flashinfer;
  std::vector<float> weight(static_cast<std::size_t>(width));
  quant::to_f32(type, op.weight.data(), weight.data(), width);
  parallel_for(exec.threads, row_count(op.input), static_cast<double>(width), [&](std::int64_t t) {
    std::byte* const input = row_begin_mutable(op.input, t, element_bytes);
    std::byte* const residual = row_begin_mutable(op.residual, t, element_bytes);
    std::vector<float> h(static_cast<std::size_t>(width)), addend(h.size());
    quant::to_f32(type, input, h.data(), width);
    quant::to_f32(type, residual, addend.data(), width);
    for (std::size_t i = 0; i < h.size(); ++i) h[i] = quant::hopper::add(h[i], addend[i]);
    quant::from_f32(type, h.data(), residual, width);
    if (op.normalize == "rounded") quant::to_f32(type, residual, h.data(), width);
    hopper_rms_row(kernel, h, weight, type, op.eps, op.weight_bias);
    quant::from_f32(type, h.data(), input, width);
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_fused_add_rmsnorm() {
  return define<ops::FusedAddRmsnorm>({
      .contract = R"(
h = input + residual in fp32. residual is h rounded once to the type (nearest even): nothing is open but what builds that flush
denormals lose of input, residual and h. input becomes h*r*weight as in rmsnorm, from the unrounded fp32 h: it differs from
rmsnorm(residual) by up to one last place. normalize=rounded takes the rounded h for squares and product alike. Budget of input:
that of rmsnorm, plus r*weight times what h lost. weight_bias as in rmsnorm.)",
      .golden = ops::golden_by<ops::rms_factor_of>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .mistakes = ops::rms_mistakes<ops::FusedAddRmsnorm>(
          []<ops::RmsFactorOf factor> { return ops::golden_by<factor>; },
          {{"bias-left-out", "weight_bias is not added to the weights", ops::golden_by<ops::rms_factor_of, ops::bias_left_out>, true},
           {"bias-in-type", "weight_bias is added to the weights in their own type", ops::golden_by<ops::rms_factor_of, ops::bias_in_type>,
            true}}),
      .customary = {{"*", CustomaryKind::close, 1e-3, 1e-3, "sgl-kernel/tests/test_norm.py test_fused_add_rmsnorm (f16)"}},
      .fib_names = {{"fused_add_rmsnorm",
                     "rmsnorm",
                     "fused_add_rmsnorm_h",
                     {{"input", "hidden_states"}, {"residual", "residual"}, {"weight", "weight"}},
                     {{"input", "output"}, {"residual", "residual"}}}},
      .cases = {"T=4 H=7168", "T=7 H=1536 --dtype input=f16", "T=3 H=111 --dtype input=f32", "T=2 H=512 --dialect deepseek",
                "T=3 H=576 --dialect trtllm", "T=3 H=1024 --dialect deepseek --attr kernel=vllm", "T=2 H=1024 --attr weight_bias=1"},
      .bench_cases = {"T=1 H=7168", "T=512 H=7168", "T=4096 H=7168"},
  });
}
}  // namespace dodona
