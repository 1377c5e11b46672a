#include "ops/moe/align/get_cutlass_w4a8_moe_mm_data.h"

#include <vector>

#include "ops/base/expert_rows.h"
#include "ops/base/golden_output.h"

namespace dodona::ops {
namespace {

/// The rule itself, and mistakes of such kernels.
enum class Rule { right, sizes_m_first };

std::vector<std::int32_t> counts_of(const GetCutlassW4a8MoeMmData& op) {
  std::vector<std::int32_t> counts(static_cast<std::size_t>(op.num_experts), 0);
  for (const std::int32_t id : ints_of(op.topk_ids))
    if (id >= 0 && id < op.num_experts) ++counts[static_cast<std::size_t>(id)];
  return counts;
}

void write(const GetCutlassW4a8MoeMmData& op, Rule rule) {
  auto *offset = op.expert_offsets.as<std::int32_t>(), *first = op.problem_sizes1.as<std::int32_t>(),
       *second = op.problem_sizes2.as<std::int32_t>();
  const auto n = static_cast<std::int32_t>(op.n), k = static_cast<std::int32_t>(op.k);
  *offset = 0;
  for (const std::int32_t count : counts_of(op)) {
    offset[1] = *offset + count;
    first[0] = 2 * n;
    second[0] = k;
    first[1] = second[1] = count;
    if (rule == Rule::sizes_m_first) {
      std::swap(first[0], first[1]);
      std::swap(second[0], second[1]);
    }
    first[2] = k;
    second[2] = n;
    ++offset;
    first += 3;
    second += 3;
  }
}

template <Rule rule>
void golden(const GetCutlassW4a8MoeMmData& op, const Exec&, Reference* reference) {
  write(op, rule);
  record_exact(op.expert_offsets, reference, "expert_offsets");
  record_exact(op.problem_sizes1, reference, "problem_sizes1");
  record_exact(op.problem_sizes2, reference, "problem_sizes2");
  record_exact(op.input_permutation, reference, "input_permutation");
  record_exact(op.output_permutation, reference, "output_permutation");
}

void fast(const GetCutlassW4a8MoeMmData& op, const Exec&) {
  write(op, Rule::right);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_get_cutlass_w4a8_moe_mm_data() {
  const std::string sizes = " --attr num_experts=256 --attr n=2048 --attr k=7168";
  return define<ops::GetCutlassW4a8MoeMmData>({
      .contract = R"(
Whole numbers, nothing rounded: counts of the ids, their exclusive sums, and problem sizes as (N, M, K). Ids of no expert are not
counted. The permutations keep the bits that they had.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .mistakes = {{"sizes-m-first", "problem sizes are (M, N, K), as prepare_moe_input has them", ops::golden<ops::Rule::sizes_m_first>}},
      .customary = {{"*", CustomaryKind::unchecked, 0, 0, "sgl-kernel/tests/test_cutlass_w4a8_moe_mm.py (through the product)"}},
      .cases = {"M=5 topk=8" + sizes, "M=64 topk=8 --attr num_experts=32 --attr n=512 --attr k=1024",
                "M=33 topk=2 --attr num_experts=3 --attr n=64 --attr k=128"},
      .bench_cases = {"M=1 topk=8" + sizes, "M=4096 topk=8" + sizes},
  });
}
}  // namespace dodona
