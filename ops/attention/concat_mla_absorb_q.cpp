#include "ops/attention/concat_mla_absorb_q.h"

#include "ops/base/golden_output.h"
#include "ops/rows/copies/concat_heads.h"

namespace dodona::ops {
namespace {

void golden(const ConcatMlaAbsorbQ& op, const Exec& exec, Reference* reference) {
  concat_elements(op.a, op.b, op.out, exec);
  record_exact(op.out, reference, "out");
}

void fast(const ConcatMlaAbsorbQ& op, const Exec& exec) {
  concat_heads(op.a, op.b, op.out, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_concat_mla_absorb_q() {
  return define<ops::ConcatMlaAbsorbQ>({
      .contract = R"(
A copy of bits: out[x,n,0:512] = a[x,n], out[x,n,512:576] = b[x,n]. Nothing is rounded; NaNs keep their payload.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::fast,
      .customary = {{"*", CustomaryKind::close, 0, 0, "sglang jit_kernel tests of concat_mla (bf16)"}},
      .cases = {"X=2 N=128 Da=512 Db=64", "X=5 N=16 Da=512 Db=64", "X=3 N=1 Da=512 Db=64"},
      .bench_cases = {"X=1 N=128 Da=512 Db=64", "X=512 N=128 Da=512 Db=64"},
  });
}
}  // namespace dodona
