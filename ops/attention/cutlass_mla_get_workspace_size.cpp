#include "ops/attention/cutlass_mla_get_workspace_size.h"

#include <algorithm>
#include <limits>

#include "ops/base/golden_output.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

using quant::ceil_div;

constexpr std::int64_t bytes_per_split = (4 * 512 + 4) * 128;
constexpr std::int64_t sm_count_of_b200 = 148;

std::int64_t splits_of(const CutlassMlaGetWorkspaceSize& op) {
  if (op.num_kv_splits >= 1) return op.num_kv_splits;
  const std::int64_t multiprocessors = op.sm_count > 0 ? op.sm_count : sm_count_of_b200;
  const std::int64_t tiles = ceil_div(op.max_seq_len, 128);
  const std::int64_t at_once = std::min(tiles, std::max<std::int64_t>(1, multiprocessors / op.num_batches));
  return ceil_div(tiles, ceil_div(tiles, at_once));
}

void check(const CutlassMlaGetWorkspaceSize& op) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / bytes_per_split / op.num_batches;
  if (splits_of(op) > most)
    throw Error(ErrorCode::bad_value, "", "num_kv_splits",
                "is " + std::to_string(op.num_kv_splits) + ", expected at most " + std::to_string(most) +
                    " with num_batches = " + std::to_string(op.num_batches) + ": the size would not fit 64 bits");
}

void fast(const CutlassMlaGetWorkspaceSize& op, const Exec&) {
  *op.out.as<std::int64_t>() = bytes_per_split * splits_of(op) * op.num_batches;
}

void golden(const CutlassMlaGetWorkspaceSize& op, const Exec& exec, Reference* reference) {
  fast(op, exec);
  record_exact(op.out, reference, "out");
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_cutlass_mla_get_workspace_size() {
  return define<ops::CutlassMlaGetWorkspaceSize>({
      .contract = R"(
Whole numbers, exact: (4*512 + 4) * 128 * S * num_batches, also for S = 1, where the kernel needs no workspace. This library's
cutlass_mla_decode takes its scratch memory from the execution context and none from the caller.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .check = ops::check,
      .cases = {"--attr max_seq_len=4096 --attr num_batches=1",
                "--attr max_seq_len=4096 --attr num_batches=8 --attr sm_count=148 --attr num_kv_splits=-1",
                "--attr max_seq_len=129 --attr num_batches=3 --attr sm_count=5 --attr num_kv_splits=0"},
      .bench_cases = {"--attr max_seq_len=4096 --attr num_batches=1"},
  });
}
}  // namespace dodona
