#include "ops/moe/combine/apply_shuffle_mul_sum.h"

#include <vector>

#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "ops/rows/sums/sum_rows.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

std::vector<float> widened_factors(const ApplyShuffleMulSum& op) {
  std::vector<float> factors;
  if (!op.factors.defined()) return factors;
  for (std::int64_t i = 0; i < op.factors.elements(); ++i) factors.push_back(static_cast<float>(quant::get(op.factors, i)));
  return factors;
}

/// Roundings of a term: topk - 1 additions (the first one, to zero, is exact) and, where a product of two significands outgrows fp32, the
/// product's for those that do not fuse it.
double roundings(const ApplyShuffleMulSum& op) {
  const bool product_rounds = op.factors.defined() && op.input.dtype() == f32;
  return static_cast<double>(op.topk() - 1 + (product_rounds ? op.topk() : 0));
}

/// A sum of terms, and the magnitudes of all of them, of the finite ones, and of those that a build which flushes denormals makes zero by
/// an operand.
struct TermSum {
  double sum = 0, magnitude = 0, finite = 0, flushable = 0;
};

bool is_denormal(double x) {
  return x != 0 && std::fabs(x) < flush_floor;
}

/// Slack: each rounding is of a number no larger than `magnitude`; each term and each partial sum below 2^-126 may be flushed; and so may
/// a denormal row or factor, with all of its product, which a large other factor makes as large as any.
void put_sum(const ApplyShuffleMulSum& op, const GoldenOutput& out, std::int64_t linear, const TermSum& terms) {
  const double relative = roundings(op) * f32_eps, sum = terms.sum, magnitude = terms.magnitude;
  // A partial sum may or may not overflow, by the order of the terms: beside an infinite term to an infinity of the other sign.
  const bool may_overflow = !std::isnan(sum) && terms.finite * (1.0 + relative) > std::numeric_limits<float>::max();
  // Infinity times a denormal is infinity, or NaN once the denormal is flushed.
  const bool may_be_nan = !std::isfinite(sum) && terms.flushable != 0;
  const double flushed = magnitude > 0 && magnitude < 0x1p-90 ? 2.0 * static_cast<double>(op.topk()) * flush_floor : 0.0;
  out.put(linear, {sum, magnitude * relative + flushed + terms.flushable, may_overflow || may_be_nan});
}

void golden(const ApplyShuffleMulSum& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.output, reference, "output");
  out.make_open();
  const std::int64_t width = op.input.size(1), topk = op.topk();
  const DType type = op.input.dtype();
  const auto* permutation = op.permutation.as<const std::int32_t>();
  parallel_for(exec.threads, op.output.size(0), static_cast<double>(width * topk), [&](std::int64_t t) {
    std::vector<double> x(static_cast<std::size_t>(width));
    std::vector<TermSum> terms(x.size());
    for (std::int64_t j = t * topk; j < (t + 1) * topk; ++j) {
      quant::to_f64(type, row_begin(op.input, permutation[j], bits(type) / 8), x.data(), width);
      const double factor = op.factors.defined() ? quant::get(op.factors, j) : 1.0;
      for (std::size_t d = 0; d < x.size(); ++d) {
        const double term = factor * x[d], magnitude = std::fabs(term);
        terms[d].sum += term;
        terms[d].magnitude += magnitude;
        if (std::isfinite(magnitude)) terms[d].finite += magnitude;
        if (is_denormal(factor) || is_denormal(x[d])) terms[d].flushable += magnitude;
      }
    }
    for (std::int64_t d = 0; d < width; ++d) put_sum(op, out, t * width + d, terms[static_cast<std::size_t>(d)]);
  });
}

void fast(const ApplyShuffleMulSum& op, const Exec& exec) {
  const std::int64_t width = op.input.size(1), topk = op.topk();
  const int element_bytes = bits(op.input.dtype()) / 8;
  const std::vector<float> factors = widened_factors(op);
  parallel_for_rows(exec.threads, op.output.size(0), static_cast<double>(width * topk), worth_streaming(op.output), width * element_bytes,
                    [&](std::int64_t t, Writing writing) {
                      const SumRows row{.input = op.input.data(),
                                        .row_bytes = op.input.stride(0) * element_bytes,
                                        .permutation = op.permutation.as<const std::int32_t>() + t * topk,
                                        .factors = factors.empty() ? nullptr : factors.data() + t * topk,
                                        .scale = 1.0f,
                                        .output = row_begin_mutable(op.output, t, element_bytes),
                                        .count = topk,
                                        .n = width,
                                        .type = op.input.dtype(),
                                        .writing = writing,
                                        .more = t + 1 < op.output.size(0)};
                      dispatch<SumRowsKernel>(exec.isa, row);
                    });
}

/// Upstream counts 16 columns for a thread, whatever the type.
constexpr std::int64_t columns_of_a_thread = 16;

bool explains_no_launch(const ApplyShuffleMulSum& actual, std::string_view output, std::int64_t) {
  return output == "output" && actual.input.size(1) < columns_of_a_thread;
}

/// fma over the experts in order, from zero; one rounding.
void hopper(const ApplyShuffleMulSum& op, const Exec& exec) {
  namespace hw = quant::hopper;
  const std::int64_t width = op.input.size(1), topk = op.topk();
  const DType type = op.input.dtype();
  const std::vector<float> factors = widened_factors(op);
  const auto* permutation = op.permutation.as<const std::int32_t>();
  parallel_for(exec.threads, op.output.size(0), static_cast<double>(width * topk), [&](std::int64_t t) {
    std::vector<float> x(static_cast<std::size_t>(width)), sum(x.size(), 0.0f);
    for (std::int64_t j = t * topk; j < (t + 1) * topk; ++j) {
      quant::to_f32(type, row_begin(op.input, permutation[j], bits(type) / 8), x.data(), width);
      const float factor = factors.empty() ? 1.0f : factors[static_cast<std::size_t>(j)];
      for (std::size_t d = 0; d < x.size(); ++d) sum[d] = hw::fma(factor, x[d], sum[d]);
    }
    quant::from_f32(type, sum.data(), row_begin_mutable(op.output, t, bits(type) / 8), width);
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_apply_shuffle_mul_sum() {
  return define<ops::ApplyShuffleMulSum>({
      .contract = R"(
Rows and factors widened to fp32; sum from zero over the experts of a token in order, in fp32 (products may be fused); one
rounding to the type (nearest even). No routed scaling factor. Budget: topk - 1 roundings of the sum of magnitudes, and for fp32
with factors topk more for products that are not fused; below 2^-90 two flushed denormals a term; and all of a term whose row or
factor is denormal, for builds that flush it (times infinity: open). Sums of magnitudes beyond fp32 leave the result open. Below 16
columns hopper mode has what upstream's kernel would give, which is not launched then.)",
      .contract_version = 3,
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .defects = {{"no-launch-below-16-columns", "output",
                   "fewer than 16 columns: the kernel is launched with no threads, without an error, and writes nothing (an H200)",
                   ops::explains_no_launch}},
      .customary = {{"*", CustomaryKind::close, 1.3e-6, 1e-5,
                     "sgl-kernel test_prepare_input_moe (as its XPU port has it), assert_allclose (f32, bf16, f16)"}},
      .cases = {"M=3 topk=8 R=24 D=7168", "M=5 topk=6 R=30 D=1024 --dtype input=f16", "M=4 topk=8 R=32 D=37 --dtype input=f32",
                "M=3 topk=1 R=2 D=100", "M=4 topk=6 R=24 D=65 --without factors",
                "M=3 topk=5 R=15 D=48 --dtype input=f32 --without factors"},
      .bench_cases = {"M=1 topk=8 R=8 D=7168", "M=64 topk=8 R=512 D=7168", "M=512 topk=8 R=4096 D=7168"},
  });
}
}  // namespace dodona
