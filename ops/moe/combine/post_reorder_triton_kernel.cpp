#include "ops/moe/combine/post_reorder_triton_kernel.h"

#include <cmath>

#include "ops/rows/sums/weighted_rows.h"

namespace dodona::ops {
namespace {

using Call = PostReorderTritonKernel;

WeightedRows sums_of(const Call& op) {
  WeightedRows sums{.rows = op.down_output, .output = op.output, .rounded_between = true};
  for (std::int64_t i = 0; i < op.src2dst.elements(); ++i)
    sums.add(static_cast<std::int64_t>(quant::get(op.topk_ids, i) < 0 ? -1 : quant::get(op.src2dst, i)), quant::get(op.topk_weights, i));
  return sums;
}

std::optional<Refusal> unsupported(const Call& op, Mode mode) {
  for (std::int64_t i = 0; i < op.topk_ids.elements(); ++i)
    if (mode == Mode::hopper && quant::get(op.topk_ids, i) == 0)
      return Refusal{"topk_ids", "names expert 0, whose rows an H100's kernel leaves out"};
  return {};
}

/// Whether the token of this element chose expert 0, and the element is what the other slots add up to.
bool explains_expert_0(const Call& actual, std::string_view output, std::int64_t linear) {
  const std::int64_t topk = actual.topk_ids.size(1), width = actual.down_output.size(1), first = linear / width * topk;
  const DType type = actual.down_output.dtype();
  bool chosen = false;
  WeightedRows others{.rows = Tensor(type, {topk, 1}), .output = Tensor(type, {1, 1}), .rounded_between = true};
  for (std::int64_t slot = 0; slot < topk; ++slot) {
    const auto expert = quant::get(actual.topk_ids, first + slot);
    const auto row = static_cast<std::int64_t>(quant::get(actual.src2dst, first + slot));
    if (expert > 0) quant::set_bits(others.rows, slot, quant::get_bits(actual.down_output, row * width + linear % width));
    others.add(expert > 0 ? slot : -1, quant::get(actual.topk_weights, first + slot));
    chosen = chosen || expert == 0;
  }
  if (output != "output" || !chosen) return false;
  add_weighted_rows(others, Exec{});
  const double is = quant::get(actual.output, linear), left = quant::get(others.output, 0);
  return std::isnan(left) ? std::isnan(is) : quant::get_bits(actual.output, linear) == quant::get_bits(others.output, 0);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_post_reorder_triton_kernel() {
  auto op = ops::weighted_rows<ops::PostReorderTritonKernel, ops::sums_of>();
  op.contract = R"(
The weight is rounded to the type of the rows; from zero, slot by slot in order, sum = round(sum + row * weight), rounded once to that type.
No bit is open.)";
  op.unsupported = ops::unsupported;
  op.defects = {{"expert-0-left-out", "output", "rows of expert 0 are not added: the kernel asks for ids above 0, not from 0 on",
                 ops::explains_expert_0}};
  op.cases = {"R=24 D=256 T=3 topk=8", "R=30 D=100 T=5 topk=6 --dtype down_output=f16", "R=16 D=37 T=4 topk=4 --dist wide-exponent"};
  op.bench_cases = {"R=512 D=7168 T=64 topk=8"};
  return define<ops::PostReorderTritonKernel>(std::move(op));
}
}  // namespace dodona
