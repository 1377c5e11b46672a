#include "ops/moe/align/deepep_ll_get_cutlass_w4a8_moe_mm_data.h"

#include <utility>

#include "ops/base/golden_output.h"

namespace dodona::ops {
namespace {

using Call = DeepepLlGetCutlassW4a8MoeMmData;

/// The rule itself, and a mistake of such kernels.
enum class Rule { right, sizes_m_first };

void write(const Call& op, Rule rule) {
  const auto n = static_cast<std::int32_t>(op.n), k = static_cast<std::int32_t>(op.k);
  auto *first = op.problem_sizes1.as<std::int32_t>(), *second = op.problem_sizes2.as<std::int32_t>();
  for (std::int64_t e = 0; e < op.num_experts; ++e, first += 3, second += 3) {
    first[0] = 2 * n;
    second[0] = k;
    first[1] = second[1] = op.masked_m.as<const std::int32_t>()[e];
    if (rule == Rule::sizes_m_first) {
      std::swap(first[0], first[1]);
      std::swap(second[0], second[1]);
    }
    first[2] = k;
    second[2] = n;
  }
}

void fast(const Call& op, const Exec&) {
  write(op, Rule::right);
}

template <Rule rule>
void golden(const Call& op, const Exec&, Reference* reference) {
  write(op, rule);
  record_exact(op.problem_sizes1, reference, "problem_sizes1");
  record_exact(op.problem_sizes2, reference, "problem_sizes2");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_deepep_ll_get_cutlass_w4a8_moe_mm_data() {
  return define<ops::DeepepLlGetCutlassW4a8MoeMmData>({
      .contract = R"(Whole numbers, nothing rounded.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .mistakes = {{"sizes-m-first", "sizes are (M, N, K), as prepare_moe_input has them", ops::golden<ops::Rule::sizes_m_first>}},
      .cases = {"--attr num_experts=8 --attr n=2048 --attr k=7168", "--attr num_experts=3 --attr n=64 --attr k=128"},
      .bench_cases = {"--attr num_experts=32 --attr n=2048 --attr k=7168"},
  });
}
}  // namespace dodona
