#include "ops/moe/permute/deepep_permute_triton_kernel.h"

#include <algorithm>

#include "ops/rows/copies/permuted_rows.h"

namespace dodona::ops {
namespace {

using Call = DeepepPermuteTritonKernel;

PermutedRows rows_of(const Call& op) {
  PermutedRows rows{.input = op.input, .output = op.gateup_input, .topk = op.src2dst.size(1)};
  for (std::int64_t slot = 0; slot < op.src2dst.elements(); ++slot)
    rows.row_of.push_back(std::max<std::int64_t>(static_cast<std::int64_t>(quant::get(op.src2dst, slot)), -1));
  return rows;
}

void golden(const Call& op, const Exec& exec, Reference* reference) {
  golden_permuted_rows(rows_of(op), exec, reference);
}

void fast(const Call& op, const Exec& exec) {
  permute_rows(rows_of(op), exec);
}

void check(const Call& op) {
  rows_of(op).require_rows();
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_deepep_permute_triton_kernel() {
  return define<ops::DeepepPermuteTritonKernel>({
      .contract = R"(
Copies of bits where the types agree, else one rounding (nearest even), saturating for e4m3. Rows of no slot are unspecified.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::fast,
      .check = ops::check,
      .cases = {"T=3 H=256 topk=4 R=14", "T=5 H=72 topk=2 R=10 --dtype gateup_input=f8_e4m3 --dtype src2dst=i32",
                "T=2 H=64 topk=3 R=6 --dtype input=f8_e4m3 --dtype gateup_input=f8_e4m3"},
      .bench_cases = {"T=64 H=7168 topk=8 R=512"},
  });
}
}  // namespace dodona
