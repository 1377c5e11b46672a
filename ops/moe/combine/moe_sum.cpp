#include "ops/moe/combine/moe_sum.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
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

/// Every sum is rounded to fp32 and to the type: nothing is open, but what is denormal may be flushed.
Bounded rounded_sum(DType type, const std::vector<float>& terms) {
  float sum = 0;
  bool flushable = false;
  for (const float x : terms) {
    sum = static_cast<float>(quant::round_to(type, sum + x));
    flushable = flushable || is_denormal(x) || is_denormal(sum);
  }
  return {sum, flushable ? 2.0 * static_cast<double>(terms.size()) * flush_floor : 0.0};
}

/// Calls put(d, terms) for every element of token t.
template <class Put>
void for_each_element(const MoeSum& op, std::int64_t t, const Put& put) {
  const std::int64_t topk = op.topk(), width = op.input_tensor.size(2);
  const DType type = op.input_tensor.dtype();
  std::vector<float> rows(static_cast<std::size_t>(topk * width)), terms(static_cast<std::size_t>(topk));
  for (std::int64_t j = 0; j < topk; ++j)
    quant::to_f32(type, row_begin(op.input_tensor, t * topk + j, bits(type) / 8), rows.data() + j * width, width);
  for (std::int64_t d = 0; d < width; ++d) {
    for (std::int64_t j = 0; j < topk; ++j) terms[static_cast<std::size_t>(j)] = rows[static_cast<std::size_t>(j * width + d)];
    put(t * width + d, terms);
  }
}

double cost_of_token(const MoeSum& op) {
  return static_cast<double>(op.topk() * op.input_tensor.size(2));
}

enum class Rule { right, never_rounded_between };

template <Rule rule>
void golden(const MoeSum& op, const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.output_tensor, reference, "output_tensor");
  out.make_open();
  const TermSums sums{.count = static_cast<double>(op.topk())};
  parallel_for(exec.threads, op.input_tensor.size(0), cost_of_token(op), [&](std::int64_t t) {
    for_each_element(op, t, [&](std::int64_t linear, const std::vector<float>& terms) {
      if (op.is_rounded_between() && rule == Rule::right) return out.put(linear, rounded_sum(op.input_tensor.dtype(), terms));
      TermSum sum;
      for (const float x : terms) sum.add(x);
      out.put(linear, sums.bounded(sum));
    });
  });
}

void fast(const MoeSum& op, const Exec& exec) {
  const std::int64_t topk = op.topk(), width = op.input_tensor.size(2);
  const int element_bytes = bits(op.input_tensor.dtype()) / 8;
  parallel_for_rows(exec.threads, op.input_tensor.size(0), cost_of_token(op), worth_streaming(op.output_tensor), width * element_bytes,
                    [&](std::int64_t t, Writing writing) {
                      const SumRows row{.input = op.input_tensor.as<const std::byte>() + t * op.input_tensor.stride(0) * element_bytes,
                                        .row_bytes = op.input_tensor.stride(1) * element_bytes,
                                        .permutation = nullptr,
                                        .factors = nullptr,
                                        .scale = 1.0f,
                                        .output = row_begin_mutable(op.output_tensor, t, element_bytes),
                                        .count = topk,
                                        .n = width,
                                        .type = op.input_tensor.dtype(),
                                        .writing = writing,
                                        .rounded_between = op.is_rounded_between(),
                                        .more = rows_follow(op.input_tensor, t)};
                      dispatch<SumRowsKernel>(exec.isa, row);
                    });
}

/// Upstream's kernel: one by one, flushed, each sum rounded to the type.
float sum_by_kernel(DType type, const std::vector<float>& terms) {
  float sum = 0;
  for (const float x : terms) sum = static_cast<float>(quant::round_to(type, quant::hopper::add(sum, x)));
  return sum;
}

/// Experts whose sum torch does not deal out to several threads, but for rows of one element.
constexpr std::int64_t most_experts = 16;

/// torch's reduction where a token's terms lie side by side, rows of one element: a lane for each, of which halves are added to each other.
float sum_of_lanes(const std::vector<float>& terms) {
  std::array<float, most_experts> lanes{};
  for (std::size_t j = 0; j < terms.size(); ++j) lanes[j] += terms[j];
  for (std::size_t apart = lanes.size() / 2; apart > 0; apart /= 2)
    for (std::size_t j = 0; j < apart; ++j) lanes[j] += lanes[j + apart];
  return lanes[0];
}

/// torch's reduction else: four running sums, dealt out in turn, added up in order. Denormals are kept in both.
float sum_by_torch(const std::vector<float>& terms) {
  std::array<float, 4> sums{};
  for (std::size_t j = 0; j < terms.size(); ++j) sums[j % 4] += terms[j];
  return ((sums[0] + sums[1]) + sums[2]) + sums[3];
}

void hopper(const MoeSum& op, const Exec& exec) {
  constexpr std::uint32_t nan_of_the_gpu = 0x7FFFFFFF;
  const DType type = op.input_tensor.dtype();
  const auto sum_of = [&](const std::vector<float>& terms) {
    if (op.is_rounded_between()) return sum_by_kernel(type, terms);
    return op.input_tensor.size(2) == 1 ? sum_of_lanes(terms) : sum_by_torch(terms);
  };
  parallel_for(exec.threads, op.input_tensor.size(0), cost_of_token(op), [&](std::int64_t t) {
    for_each_element(op, t, [&](std::int64_t linear, const std::vector<float>& terms) {
      const float sum = sum_of(terms);
      if (std::isnan(sum) && type == f32) return quant::set_bits(op.output_tensor, linear, nan_of_the_gpu);
      quant::set(op.output_tensor, linear, std::isnan(sum) ? std::numeric_limits<double>::quiet_NaN() : sum);
    });
  });
}

/// torch deals more experts out to several threads.
std::optional<Refusal> unsupported(const MoeSum& op, Mode mode) {
  if (mode == Mode::hopper && op.topk() > most_experts)
    return Refusal{"input_tensor", "has " + std::to_string(op.topk()) + " rows a token: the order of more than 16 is torch's affair"};
  return {};
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_moe_sum() {
  return define<ops::MoeSum>({
      .contract = R"(
Two, three or four experts: rows widened to fp32 and added in order, each sum rounded to fp32 and then to the type (nearest even);
no bit is open, but builds that flush denormals may lose two for each term where a term or a sum is one. Other numbers are torch's
sum: fp32 in any order, one rounding to the type; topk - 1 roundings of the sum of magnitudes, and below 2^-90 two flushed
denormals a term; sums of magnitudes beyond fp32 leave the result open. Hopper mode, to 16 experts: four running sums, dealt out in
turn and added up in order; of rows of one element halves, terms 8 apart, then 4, 2 and 1. A NaN in f32 is 7fffffff.
Upstream hands other numbers than two, three and four to torch, which sums f64 and integers too; its callers have none, and neither has
this.)",
      .contract_version = 2,
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .mistakes = {{"sums-not-rounded", "few experts are summed in fp32 too, and rounded once",
                    ops::golden<ops::Rule::never_rounded_between>}},
      .customary = {{"*", CustomaryKind::close, 0, 2e-2, "sgl-kernel/tests/test_moe_sum.py"}},
      .cases = {"T=3 topk=8 D=512", "T=4 topk=2 D=100 --dtype input_tensor=f16", "T=3 topk=3 D=37 --dtype input_tensor=f32",
                "T=5 topk=4 D=264", "T=2 topk=9 D=65 --dtype input_tensor=f32", "T=2 topk=1 D=48"},
      .bench_cases = {"T=1 topk=8 D=7168", "T=512 topk=8 D=7168", "T=512 topk=4 D=7168"},
  });
}
}  // namespace dodona
