#include "ops/moe/combine/deepep_post_reorder_triton_kernel.h"

#include "ops/rows/sums/weighted_rows.h"

namespace dodona::ops {
namespace {

using Call = DeepepPostReorderTritonKernel;

WeightedRows sums_of(const Call& op) {
  WeightedRows sums{.rows = op.down_output, .output = op.output, .rounded_between = true};
  for (std::int64_t i = 0; i < op.src2dst.elements(); ++i)
    sums.add(static_cast<std::int64_t>(quant::get(op.src2dst, i)), quant::get(op.topk_weights, i));
  return sums;
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_deepep_post_reorder_triton_kernel() {
  auto op = ops::weighted_rows<ops::DeepepPostReorderTritonKernel, ops::sums_of>();
  op.contract = R"(
The weight is rounded to the type of the rows; from zero, slot by slot in order, sum = round(sum + row * weight), rounded once to that type.
No bit is open.)";
  op.cases = {"R=24 D=256 T=3 topk=8", "R=30 D=100 T=5 topk=6 --dtype down_output=f16 --with topk_ids",
              "R=16 D=37 T=4 topk=4 --dist wide-exponent"};
  op.bench_cases = {"R=512 D=7168 T=64 topk=8"};
  return define<ops::DeepepPostReorderTritonKernel>(std::move(op));
}
}  // namespace dodona
