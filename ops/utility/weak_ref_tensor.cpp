#include "ops/utility/weak_ref_tensor.h"

#include "ops/base/golden_output.h"

namespace dodona::ops {
namespace {

// The call itself has made the view: nothing is computed or moved.
void golden(const WeakRefTensor& op, const Exec&, Reference* reference) {
  record_exact(op.output, reference, "output");
}

void fast(const WeakRefTensor&, const Exec&) {}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_weak_ref_tensor() {
  return define<ops::WeakRefTensor>({
      .contract = R"(
No numerics: output is tensor's memory, with its pointer, sizes, strides and type, and does not keep it alive.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::fast,
      .cases = {"S=24", "S=7 --dtype tensor=i64", "S=16 --dtype tensor=f4_e2m1", "S=0"},
      .bench_cases = {"S=3670016"},
  });
}
}  // namespace dodona
