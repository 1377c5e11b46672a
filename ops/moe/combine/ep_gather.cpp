#include "ops/moe/combine/ep_gather.h"

#include "ops/rows/sums/weighted_rows.h"

namespace dodona::ops {
namespace {

using Call = EpGather;

WeightedRows sums_of(const Call& op) {
  WeightedRows sums{.rows = op.input_tensor, .output = op.output_tensor, .rows_from = "input_index", .output_name = "output_tensor"};
  for (std::int64_t i = 0; i < op.input_index.elements(); ++i)
    sums.add(static_cast<std::int64_t>(quant::get(op.recv_topk_ids, i) < 0 ? -1 : quant::get(op.input_index, i)),
             quant::get(op.recv_topk_weight, i));
  return sums;
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_ep_gather() {
  auto op = ops::weighted_rows<ops::EpGather, ops::sums_of>();
  op.contract = R"(
Rows widened to fp32, times their weights, summed from zero over the slots of a token in order (products may be fused); one rounding to the
type. Budget: two roundings a row of the sum of
magnitudes; below 2^-90 two flushed denormals a row; all of a term whose row or weight is denormal. Sums of magnitudes beyond fp32 leave
the result open. Hopper mode: by fma, denormals kept.)";
  op.cases = {"R=24 D=256 T=3 topk=8", "R=30 D=128 T=5 topk=6 --dtype input_tensor=f16",
              "R=16 D=1024 T=4 topk=4 --dtype recv_topk_ids=i32 --dtype input_index=i32"};
  op.bench_cases = {"R=512 D=7168 T=64 topk=8"};
  return define<ops::EpGather>(std::move(op));
}
}  // namespace dodona
