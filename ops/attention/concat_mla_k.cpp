#include "ops/attention/concat_mla_k.h"

#include "ops/base/golden_output.h"
#include "ops/rows/copies/concat_heads.h"

namespace dodona::ops {
namespace {

void check(const ConcatMlaK& op) {
  const std::pair<const char*, const Tensor*> strided[] = {{"k_nope", &op.k_nope}, {"k", &op.k}};
  for (const auto& [name, tensor] : strided)
    if (tensor->stride(1) % 4 != 0)
      throw Error(ErrorCode::bad_stride, "", name,
                  "has strides " + to_string(tensor->strides()) + " for shape " + to_string(tensor->shape()) +
                      ", expected heads a multiple of 4 elements apart");
}

void golden(const ConcatMlaK& op, const Exec& exec, Reference* reference) {
  concat_elements(op.k_nope, op.k_rope, op.k, exec);
  record_exact(op.k, reference, "k");
}

void fast(const ConcatMlaK& op, const Exec& exec) {
  concat_heads(op.k_nope, op.k_rope, op.k, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_concat_mla_k() {
  return define<ops::ConcatMlaK>({
      .contract = R"(
A copy of bits: k[t,h,0:128] = k_nope[t,h], k[t,h,128:192] = k_rope[t,0]. Nothing is rounded; NaNs keep their payload.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::fast,
      .check = ops::check,
      .customary = {{"*", CustomaryKind::close, 0, 0, "sglang jit_kernel tests of concat_mla (bf16)"}},
      .cases = {"T=2 Nh=128 Dn=128 Dr=64", "T=3 Nh=128 Dn=128 Dr=64 --dtype k_nope=f16", "T=1 Nh=128 Dn=128 Dr=64 --dtype k_nope=f8_e4m3",
                "T=2 Nh=128 Dn=128 Dr=64 --dtype k_nope=f8_e5m2"},
      .bench_cases = {"T=1 Nh=128 Dn=128 Dr=64", "T=512 Nh=128 Dn=128 Dr=64", "T=4096 Nh=128 Dn=128 Dr=64"},
  });
}
}  // namespace dodona
