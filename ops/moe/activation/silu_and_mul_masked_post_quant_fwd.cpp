#include "ops/moe/activation/silu_and_mul_masked_post_quant_fwd.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "core/threads.h"
#include "dodona/error.h"
#include "ops/base/golden_output.h"
#include "ops/rows/quantize/group_quant.h"
#include "quant/hopper/triton.h"

namespace dodona::ops {
namespace {

using Call = SiluAndMulMaskedPostQuantFwd;

/// In fp32: Triton's maximum of bf16 numbers is one.
constexpr float least_amax = 1e-10f;

GroupQuant quant_of(const Call& op) {
  return {op.input, op.output, op.output_scale, &op.masked_m, op.quant_group_size, least_amax, -448.0, 448.0, false, true, false, false};
}

/// The quantizer's records under this op's names, and back.
void rename(const Reference& from, Reference& to, std::string_view name, std::string_view as) {
  const ReferenceOutput& record = *from.find(name);
  ReferenceOutput& copy = to.output(as, static_cast<std::int64_t>(record.exact.size()));
  copy.exact = record.exact;
  copy.slack = record.slack;
  copy.unspecified = record.unspecified;
}

enum class Rule { right, maximum_of_half };

template <Rule rule>
void golden(const Call& op, const Exec& exec, Reference* reference) {
  Reference quantized;
  golden_group_quant(quant_of(op), rule == Rule::maximum_of_half ? largest_of_half_group : quant::amax, exec, &quantized);
  if (reference == nullptr) return;
  rename(quantized, *reference, "output_q", "output");
  rename(quantized, *reference, "output_s", "output_scale");
}

void condition(const Call& actual, const Exec& exec, Reference& reference) {
  Reference quantized;
  rename(reference, quantized, "output", "output_q");
  condition_group_quant(quant_of(actual), exec, quantized);
  rename(quantized, reference, "output_q", "output");
}

void fast(const Call& op, const Exec& exec) {
  fast_group_quant(quant_of(op), exec);
}

/// Triton's: division and exponential are approximate; what is rounded to the input's type is rounded there.
void hopper(const Call& op, const Exec& exec) {
  namespace triton = quant::hopper::triton;
  const std::int64_t rows = op.input.size(0) * op.input.size(1), width = op.output.size(2), groups = op.output_scale.size(2);
  const auto narrow = [](float x) { return static_cast<float>(quant::round_to(bf16, static_cast<double>(x))); };
  const GroupQuant quant = quant_of(op);
  parallel_for(exec.threads, rows, static_cast<double>(8 * width), [&](std::int64_t row) {
    std::uint8_t* const codes = op.output.as<std::uint8_t>() + row * width;
    float* const scales = op.output_scale.as<float>() + row * groups;
    std::fill_n(codes, width, std::uint8_t{0});
    std::fill_n(scales, groups, 0.0f);
    if (!quant.has_row(row)) return;
    std::vector<float> x(static_cast<std::size_t>(2 * width));
    quant::to_f32(bf16, op.input.as<const std::byte>() + row * 4 * width, x.data(), 2 * width);
    for (std::int64_t k = 0; k < width; ++k) {
      float& gate = x[static_cast<std::size_t>(k)];
      gate = narrow(narrow(triton::div(gate, 1.0f + triton::exp(-gate))) * x[static_cast<std::size_t>(width + k)]);
    }
    for (std::int64_t g = 0; g < groups; ++g) {
      const auto group =
          std::span(x).subspan(static_cast<std::size_t>(g * op.quant_group_size), static_cast<std::size_t>(op.quant_group_size));
      const float scale = triton::div(std::max(quant::amax(group), least_amax), 448.0f);
      scales[g] = scale;
      for (std::size_t k = 0; k < group.size(); ++k)
        codes[static_cast<std::size_t>(g * op.quant_group_size) + k] =
            quant::to_e4m3_satfinite(quant::clamp_low_first(triton::div(group[k], scale), -448.0f, 448.0f));
    }
  });
}

void check(const Call& op) {
  if (op.output.size(2) % op.quant_group_size != 0 || op.quant_group_size % 16 != 0)
    throw Error(
        ErrorCode::bad_value, "", "quant_group_size",
        "is " + std::to_string(op.quant_group_size) + ", expected a multiple of 16 that divides N = " + std::to_string(op.output.size(2)));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_silu_and_mul_masked_post_quant_fwd() {
  return define<ops::SiluAndMulMaskedPostQuantFwd>({
      .contract = R"(
x = T(T(silu(gate)) * up) with T the input's type; of each group amax = max(1e-10, max |x|) in fp32, s = fl32(amax / 448), code = e4m3(x / s),
clamped to 448. Budgets as in version 1 of sgl_per_token_group_quant_8bit behind silu: the scale's is that of the group's largest x, codes
follow from the scale that was stored. Groups that hold infinities are open. Rows that masked_m leaves out are unspecified (here 0).)",
      .contract_version = 2,
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .check = ops::check,
      .condition = ops::condition,
      .mistakes = {{"maximum-of-half", "the scale is that of the first half of each group", ops::golden<ops::Rule::maximum_of_half>}},
      .cases = {"E=2 M=5 N=256 --seed 1", "E=3 M=4 N=128 --attr quant_group_size=64", "E=2 M=7 N=384 --dist wide-exponent --seed 4"},
      .bench_cases = {"E=8 M=64 N=2048"},
  });
}
}  // namespace dodona
