#include "ops/moe/align/cutlass_w4_run_moe_ep_preproess.h"

#include "ops/base/golden_output.h"
#include "ops/schemes/slots_by_expert.h"

namespace dodona::ops {
namespace {

using Call = CutlassW4RunMoeEpPreproess;

void fast(const Call& op, const Exec&) {
  const SlotsByExpert sorted(op.topk_ids);
  for (std::size_t row = 0; row < sorted.order.size(); ++row)
    op.src2dst.as<std::int32_t>()[sorted.order[row]] = static_cast<std::int32_t>(row);
}

/// The rule itself, and a mistake of such kernels.
enum class Rule { right, inverse };

template <Rule rule>
void golden(const Call& op, const Exec& exec, Reference* reference) {
  fast(op, exec);
  if (rule == Rule::inverse) {
    const SlotsByExpert sorted(op.topk_ids);
    for (std::size_t row = 0; row < sorted.order.size(); ++row)
      op.src2dst.as<std::int32_t>()[row] = static_cast<std::int32_t>(sorted.order[row]);
  }
  record_exact(op.src2dst, reference, "src2dst");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_cutlass_w4_run_moe_ep_preproess() {
  return define<ops::CutlassW4RunMoeEpPreproess>({
      .contract = R"(
Whole numbers: the position of each slot when all are sorted by their ids, stably.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .mistakes = {{"inverse", "the slot of each row instead of the row of each slot", ops::golden<ops::Rule::inverse>}},
      .cases = {"T=9 topk=4", "T=5 topk=3 --dtype topk_ids=i64"},
      .bench_cases = {"T=64 topk=8", "T=4096 topk=8"},
  });
}
}  // namespace dodona
