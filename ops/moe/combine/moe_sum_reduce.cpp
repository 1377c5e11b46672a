#include "ops/moe/combine/moe_sum_reduce.h"

#include <cmath>
#include <vector>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "ops/rows/sums/sum_rows.h"
#include "ops/rows/sums/term_sums.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

TermSums sums_of(const MoeSumReduce& op) {
  return {.factor = static_cast<float>(op.routed_scaling_factor),
          .count = static_cast<double>(op.input_tensor.size(1)),
          .flushes = op.kernel == "sgl_kernel",
          .any_order = op.order == "any"};
}

template <bool rounded_between>
void golden_by(const MoeSumReduce& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.output_tensor, reference, "output_tensor");
  out.make_open();
  const TermSums sums = sums_of(op);
  const std::int64_t topk = op.input_tensor.size(1), width = op.input_tensor.size(2);
  const DType type = op.input_tensor.dtype();
  parallel_for(exec.threads, op.input_tensor.size(0), static_cast<double>(width * topk), [&](std::int64_t t) {
    std::vector<double> x(static_cast<std::size_t>(width));
    std::vector<TermSum> terms(x.size());
    for (std::int64_t j = 0; j < topk; ++j) {
      quant::to_f64(type, row_begin(op.input_tensor, t * topk + j, bits(type) / 8), x.data(), width);
      for (std::size_t d = 0; d < x.size(); ++d) {
        terms[d].add(x[d]);
        if (rounded_between) terms[d].sum = terms[d].in_order = static_cast<float>(quant::round_to(type, terms[d].sum));
      }
    }
    for (std::int64_t d = 0; d < width; ++d) out.put(t * width + d, sums.bounded(terms[static_cast<std::size_t>(d)]));
  });
}

void fast(const MoeSumReduce& op, const Exec& exec) {
  const std::int64_t topk = op.input_tensor.size(1), width = op.input_tensor.size(2);
  const int element_bytes = bits(op.input_tensor.dtype()) / 8;
  parallel_for_rows(exec.threads, op.input_tensor.size(0), static_cast<double>(width * topk), worth_streaming(op.output_tensor),
                    width * element_bytes, [&](std::int64_t t, Writing writing) {
                      const SumRows row{.input = op.input_tensor.as<const std::byte>() + t * op.input_tensor.stride(0) * element_bytes,
                                        .row_bytes = op.input_tensor.stride(1) * element_bytes,
                                        .permutation = nullptr,
                                        .factors = nullptr,
                                        .scale = static_cast<float>(op.routed_scaling_factor),
                                        .output = row_begin_mutable(op.output_tensor, t, element_bytes),
                                        .count = topk,
                                        .n = width,
                                        .type = op.input_tensor.dtype(),
                                        .writing = writing,
                                        .more = rows_follow(op.input_tensor, t)};
                      dispatch<SumRowsKernel>(exec.isa, row);
                    });
}

/// Upstream's vectorized kernel takes 16 columns at a time, and is chosen where there are 8 more.
bool leaves_a_tail(const MoeSumReduce& op) {
  return op.kernel == "sgl_kernel" && op.input_tensor.dtype() == bf16 && op.input_tensor.size(0) > 256 && op.input_tensor.size(2) % 16 == 8;
}

std::optional<Refusal> unsupported(const MoeSumReduce& op, Mode mode) {
  if (mode == Mode::hopper && leaves_a_tail(op))
    return Refusal{"input_tensor", "has more than 256 tokens and " + std::to_string(op.input_tensor.size(2)) +
                                       " columns, of which the kernel never writes the last 8: there is no hopper mode for that"};
  return {};
}

void hopper(const MoeSumReduce& op, const Exec& exec) {
  namespace hw = quant::hopper;
  const std::int64_t topk = op.input_tensor.size(1), width = op.input_tensor.size(2);
  const DType type = op.input_tensor.dtype();
  const auto factor = static_cast<float>(op.routed_scaling_factor);
  const bool flushes = op.kernel == "sgl_kernel";
  parallel_for(exec.threads, op.input_tensor.size(0), static_cast<double>(width * topk), [&](std::int64_t t) {
    std::vector<float> x(static_cast<std::size_t>(width)), sum(x.size(), 0.0f);
    for (std::int64_t j = 0; j < topk; ++j) {
      quant::to_f32(type, row_begin(op.input_tensor, t * topk + j, bits(type) / 8), x.data(), width);
      for (std::size_t d = 0; d < x.size(); ++d) sum[d] = flushes ? hw::add(sum[d], x[d]) : sum[d] + x[d];
    }
    for (float& value : sum) {
      value = flushes ? hw::mul(value, factor) : value * factor;
      if (std::isnan(value)) value = hw::canonical_nan();
    }
    quant::from_f32(type, sum.data(), row_begin_mutable(op.output_tensor, t, bits(type) / 8), width);
  });
}

bool explains_tail(const MoeSumReduce& actual, std::string_view, std::int64_t linear) {
  const std::int64_t width = actual.input_tensor.size(2);
  return leaves_a_tail(actual) && linear % width >= width - 8;
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_moe_sum_reduce() {
  return define<ops::MoeSumReduce>({
      .contract = R"(
Rows widened to fp32; sum from zero over the experts of a token, in fp32; its product with the factor, in fp32; one rounding to
the type (nearest even). Both kernels add in order, each sum and the product rounded to fp32: order=ascending holds to these
bits, and fast mode has them. Budget of order=any: topk - 1 roundings of the sum of magnitudes and, unless the factor is 1, one of
the product; sums of magnitudes beyond fp32 leave the result open, as does an infinite factor where the sum's budget reaches 0; where the factor is 0 and the sum's budget reaches 0, a zero of either
sign passes. kernel=sgl_kernel flushes denormals: below 2^-90 two a term
times the factor and, where that is 0, the result's sign, all of a denormal result, all where the factor is denormal (times infinity: open); with order=ascending the
budget is 0 but behind a term or partial sum that is denormal, where it is that of any order.)",
      .contract_version = 2,
      .golden = ops::golden_by<false>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .defects = {{"unwritten-tail", "output_tensor",
                   "bf16, more than 256 tokens, hidden size a multiple of 8 but not of 16: the last 8 columns are never written",
                   ops::explains_tail}},
      .mistakes = {{"sums-rounded", "each sum is rounded to the type, as moe_sum does for few experts", ops::golden_by<true>, true}},
      .cases = {"T=3 topk=8 D=512 --attr routed_scaling_factor=2.5",
                "T=4 topk=6 D=100 --dtype input_tensor=f16 --attr routed_scaling_factor=1",
                "T=3 topk=9 D=37 --dtype input_tensor=f32 --attr routed_scaling_factor=2.5",
                "T=5 topk=8 D=64 --attr routed_scaling_factor=2.5 --attr kernel=triton --attr order=ascending",
                "T=2 topk=2 D=65 --dtype input_tensor=f32 --attr routed_scaling_factor=1 --attr order=ascending"},
      .bench_cases = {"T=1 topk=8 D=7168 --attr routed_scaling_factor=2.5", "T=64 topk=8 D=7168 --attr routed_scaling_factor=2.5",
                      "T=512 topk=8 D=7168 --attr routed_scaling_factor=2.5"},
  });
}
}  // namespace dodona
