#include "ops/moe/align/deepep_run_moe_deep_preprocess.h"

#include "ops/base/golden_output.h"
#include "ops/schemes/slots_by_expert.h"

namespace dodona::ops {
namespace {

using Call = DeepepRunMoeDeepPreprocess;

/// The rule itself, and a mistake of such kernels.
enum class Rule { right, inverse };

void write(const Call& op, Rule rule) {
  const SlotsByExpert sorted(op.topk_ids);
  const std::int64_t nobody = sorted.below(0);
  for (std::int64_t e = 0; e <= op.num_experts; ++e) op.seg_indptr.as<std::int64_t>()[e] = sorted.below(e) - nobody;
  for (std::int64_t row = 0; row < op.src2dst.elements(); ++row) {
    const std::int64_t slot = sorted.order[static_cast<std::size_t>(row)];
    (rule == Rule::inverse ? op.src2dst.as<std::int64_t>()[row] : op.src2dst.as<std::int64_t>()[slot]) =
        rule == Rule::inverse ? slot : row - nobody;
  }
  for (std::int64_t row = 0; row < op.reorder_topk_ids.elements(); ++row) {
    const std::int64_t from = row + nobody;
    const bool there = from < op.reorder_topk_ids.elements();
    quant::set(op.reorder_topk_ids, row,
               there ? static_cast<double>(sorted.ids[static_cast<std::size_t>(sorted.order[static_cast<std::size_t>(from)])]) : 0.0);
  }
}

void fast(const Call& op, const Exec&) {
  write(op, Rule::right);
}

template <Rule rule>
void golden(const Call& op, const Exec&, Reference* reference) {
  write(op, rule);
  record_exact(op.src2dst, reference, "src2dst");
  record_exact(op.seg_indptr, reference, "seg_indptr");
  record_exact(op.reorder_topk_ids, reference, "reorder_topk_ids");
  const GoldenOutput ids(op.reorder_topk_ids, reference, "reorder_topk_ids");
  ids.make_open();
  for (std::int64_t row = op.seg_indptr.as<const std::int64_t>()[op.num_experts]; row < op.reorder_topk_ids.elements(); ++row)
    ids.leave_open(row);
}

void check(const Call& op) {
  require_ids(op.topk_ids, -1, op.num_experts - 1, ("-1 or an expert below " + std::to_string(op.num_experts)).c_str());
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_deepep_run_moe_deep_preprocess() {
  return define<ops::DeepepRunMoeDeepPreprocess>({
      .contract = R"(
Whole numbers. Slots sorted by their ids, stably; those of no expert stand before row 0. src2dst is the row of each slot, seg_indptr the first
row of each expert and the number of rows, reorder_topk_ids the expert of each row, unspecified behind the last one (here 0).)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .check = ops::check,
      .mistakes = {{"inverse", "the slot of each row instead of the row of each slot", ops::golden<ops::Rule::inverse>}},
      .cases = {"T=9 topk=4 --attr num_experts=8", "T=5 topk=3 --dtype topk_ids=i32 --attr num_experts=4"},
      .bench_cases = {"T=64 topk=8 --attr num_experts=32", "T=4096 topk=8 --attr num_experts=32"},
  });
}
}  // namespace dodona
