#include "ops/moe/permute/pre_reorder_for_cutlass_moe.h"

#include "ops/rows/copies/permuted_rows.h"

namespace dodona::ops {
namespace {

using Call = PreReorderForCutlassMoe;

PermutedRows rows_of(const Call& op) {
  PermutedRows rows{.input = op.input, .output = op.gateup_input, .topk = op.topk_ids.size(1)};
  for (std::int64_t slot = 0; slot < op.topk_ids.elements(); ++slot) {
    const bool none = quant::get(op.topk_ids, slot) == static_cast<double>(op.num_local_experts);
    rows.row_of.push_back(none ? -1 : static_cast<std::int64_t>(quant::get(op.src2dst, slot)));
  }
  if (op.a1_scales.defined()) rows.divisor = static_cast<float>(quant::get(op.a1_scales, 0));
  return rows;
}

template <PermutedRowsMistake mistake>
void golden(const Call& op, const Exec& exec, Reference* reference) {
  golden_permuted_rows(rows_of(op), exec, reference, mistake);
}

void check(const Call& op) {
  const PermutedRows rows = rows_of(op);
  for (std::size_t slot = 0; slot < rows.row_of.size(); ++slot)
    if (rows.row_of[slot] < 0 && quant::get(op.topk_ids, static_cast<std::int64_t>(slot)) != static_cast<double>(op.num_local_experts))
      throw Error(
          ErrorCode::bad_value, "", "src2dst",
          "holds " + std::to_string(rows.row_of[slot]) + " at element " + std::to_string(slot) + ", expected a row of gateup_input");
  rows.require_rows();
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_pre_reorder_for_cutlass_moe() {
  return define<ops::PreReorderForCutlassMoe>({
      .contract = R"(
r = 1 / a1_scales in fp32; x widened to fp32, times r, in fp32; one rounding to the type (nearest even), saturating for e4m3. Without
a1_scales x is rounded alone. Budget with a scale: 5 units of 2^-24 of the product (4 for the reciprocal, 1 for the product) and 2^-126,
or all of it where r is denormal. Rows of no slot are unspecified. Hopper mode: the reciprocal is `div.full`, denormals are kept.)",
      .golden = ops::golden<ops::PermutedRowsMistake::none>,
      .fast = [](const ops::PreReorderForCutlassMoe& op, const Exec& exec) { ops::permute_rows(ops::rows_of(op), exec); },
      .hopper = [](const ops::PreReorderForCutlassMoe& op, const Exec& exec) { ops::hopper_permute_rows(ops::rows_of(op), exec); },
      .check = ops::check,
      .mistakes = {{"scale-left-out", "tokens are not divided by the scale", ops::golden<ops::PermutedRowsMistake::scale_left_out>},
                   {"multiplied", "tokens are multiplied by the scale", ops::golden<ops::PermutedRowsMistake::multiplied>}},
      .cases = {"T=3 H=256 topk=8 R=24 --attr num_local_experts=4",
                "T=5 H=72 topk=2 R=12 --dtype input=f16 --dtype gateup_input=bf16 --attr num_local_experts=9",
                "T=4 H=65 topk=3 R=12 --attr num_local_experts=2 --without a1_scales"},
      .bench_cases = {"T=64 H=7168 topk=8 R=512 --attr num_local_experts=256"},
  });
}
}  // namespace dodona
