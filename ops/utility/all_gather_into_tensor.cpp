#include "ops/utility/all_gather_into_tensor.h"

#include <cstring>

#include "core/threads.h"
#include "ops/base/golden_output.h"

namespace dodona::ops {
namespace {

/// output row of rank r's row t <- row t of rank (r + turn) mod R.
void gather(const AllGatherIntoTensor& op, const Exec& exec, std::int64_t turn) {
  const std::int64_t ranks = op.input.size(0), rows = op.input.size(1), bytes = op.input.size(2) * bits(op.input.dtype()) / 8;
  if (bytes == 0) return;
  parallel_for(exec.threads, ranks * rows, static_cast<double>(bytes), [&](std::int64_t i) {
    const std::int64_t r = i / rows, t = i % rows, to = op.dim == 0 ? i : t * ranks + r;
    std::memcpy(op.output.as<std::byte>() + to * bytes, op.input.as<const std::byte>() + ((r + turn) % ranks * rows + t) * bytes,
                static_cast<std::size_t>(bytes));
  });
}

template <std::int64_t turn>
void golden(const AllGatherIntoTensor& op, const Exec& exec, Reference* reference) {
  gather(op, exec, turn);
  record_exact(op.output, reference, "output");
}

void fast(const AllGatherIntoTensor& op, const Exec& exec) {
  gather(op, exec, 0);
}

void make_outputs(AllGatherIntoTensor& op) {
  if (op.output.defined() || !op.input.defined() || op.input.rank() != 3) return;
  const std::int64_t ranks = op.input.size(0), rows = op.input.size(1), width = op.input.size(2);
  op.output = op.dim == 0 ? Tensor(op.input.dtype(), {ranks * rows, width}) : Tensor(op.input.dtype(), {rows, ranks, width});
}

void check(const AllGatherIntoTensor& op) {
  if (op.output.rank() != (op.dim == 0 ? 2 : 3))
    throw Error(ErrorCode::bad_shape, "", "output",
                "has shape " + to_string(op.output.shape()) + ", expected " + (op.dim == 0 ? "[R*T, H]" : "[T, R, H]") + " with dim " +
                    std::to_string(op.dim));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_all_gather_into_tensor() {
  return define<ops::AllGatherIntoTensor>({
      .contract = "Copies: no bit is open.",
      .golden = ops::golden<0>,
      .fast = ops::fast,
      .hopper = ops::fast,
      .make_outputs = ops::make_outputs,
      .check = ops::check,
      .mistakes = {{"parts-turned", "every part stands where that of the rank before it belongs", ops::golden<1>}},
      .cases = {"R=4 T=3 H=256", "R=2 T=5 H=33 --attr dim=1", "R=3 T=2 H=48 --dtype input=f8_e4m3"},
      .bench_cases = {"R=8 T=16 H=7168", "R=8 T=64 H=16160 --attr dim=1"},
  });
}
}  // namespace dodona
