#include "ops/moe/combine/post_reorder_for_cutlass_moe.h"

#include "ops/rows/sums/weighted_rows.h"

namespace dodona::ops {
namespace {

using Call = PostReorderForCutlassMoe;

WeightedRows sums_of(const Call& op) {
  WeightedRows sums{.rows = op.down_output, .output = op.output, .scale = static_cast<float>(op.routed_scaling_factor)};
  for (std::int64_t i = 0; i < op.src2dst.elements(); ++i)
    sums.add(static_cast<std::int64_t>(quant::get(op.topk_ids, i) == static_cast<double>(op.num_local_experts) ? -1.0
                                                                                                               : quant::get(op.src2dst, i)),
             quant::get(op.topk_weights, i));
  return sums;
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_post_reorder_for_cutlass_moe() {
  auto op = ops::weighted_rows<ops::PostReorderForCutlassMoe, ops::sums_of>();
  op.contract = R"(
Rows widened to fp32, times their weights, summed from zero over the slots of a token in order (products may be fused); the product with
routed_scaling_factor; one rounding to the type. Budget: two roundings a row and one of the product, of the sum of
magnitudes; below 2^-90 two flushed denormals a row; all of a term whose row or weight is denormal. Sums of magnitudes beyond fp32 leave
the result open. Hopper mode: by fma, denormals kept.)";
  op.mistakes.push_back(
      {"scale-left-out", "sums are not multiplied by routed_scaling_factor",
       ops::golden_weighted_rows_of<ops::PostReorderForCutlassMoe, ops::sums_of, ops::WeightedRowsMistake::scale_left_out>, true});
  op.cases = {"R=24 D=256 T=3 topk=8 --attr num_local_experts=4 --attr routed_scaling_factor=2.5",
              "R=30 D=100 T=5 topk=6 --dtype down_output=f16 --attr num_local_experts=9 --attr routed_scaling_factor=1"};
  op.bench_cases = {"R=512 D=7168 T=64 topk=8 --attr num_local_experts=256 --attr routed_scaling_factor=2.5"};
  return define<ops::PostReorderForCutlassMoe>(std::move(op));
}
}  // namespace dodona
