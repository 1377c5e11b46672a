#include "ops/attention/concat_and_cast_mha_k.h"

#include "core/threads.h"
#include "ops/base/rows.h"
#include "ops/rows/copies/cast_row.h"

namespace dodona::ops {
namespace {

void golden(const ConcatAndCastMhaK& op, const Exec&, Reference* reference) {
  const std::int64_t heads = op.k.size(1), nope = op.k_nope.size(2), rope = op.k_rope.size(2);
  const GoldenOutput out(op.k, reference, "k");
  for (std::int64_t row = 0; row < op.k.size(0) * heads; ++row) {
    const std::int64_t begin = row * (nope + rope);
    for (std::int64_t d = 0; d < nope; ++d) cast_element(op.k_nope, row * nope + d, op.k, out, begin + d);
    for (std::int64_t d = 0; d < rope; ++d) cast_element(op.k_rope, row / heads * rope + d, op.k, out, begin + nope + d);
  }
  // Parts of k's own type, which are copied, are recorded as the others.
  record_exact(op.k, reference, "k");
  for (std::int64_t row = 0; row < op.k.size(0) * heads; ++row) {
    const std::int64_t begin = row * (nope + rope);
    open_cast_nans(op.k_nope, row * nope, op.k, reference, "k", begin, nope);
    open_cast_nans(op.k_rope, row / heads * rope, op.k, reference, "k", begin + nope, rope);
  }
}

void fast(const ConcatAndCastMhaK& op, const Exec& exec) {
  const std::int64_t heads = op.k.size(1), nope = op.k_nope.size(2), rope = op.k_rope.size(2);
  const int nope_bytes = bits(op.k_nope.dtype()) / 8, rope_bytes = bits(op.k_rope.dtype()) / 8, bytes = bits(op.k.dtype()) / 8;
  parallel_for(exec.threads, op.k.size(0), static_cast<double>(heads * (nope + rope)), [&](std::int64_t t) {
    const std::byte* const shared = row_begin(op.k_rope, t, rope_bytes);
    for (std::int64_t row = t * heads; row < (t + 1) * heads; ++row) {
      std::byte* const to = row_begin_mutable(op.k, row, bytes);
      cast_row(op.k_nope.dtype(), row_begin(op.k_nope, row, nope_bytes), op.k.dtype(), to, nope, exec);
      cast_row(op.k_rope.dtype(), shared, op.k.dtype(), to + nope * bytes, rope, exec);
    }
  });
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_concat_and_cast_mha_k() {
  return define<ops::ConcatAndCastMhaK>({
      .contract = R"(
k[t,h] is k_nope[t,h] and behind it k_rope[t,0]: bits where the types agree, else one rounding to nearest even, to fp8 with
saturation (infinities too), as Triton's stores do; NaN stays NaN, of a cast any NaN (on sm_90 bf16 keeps its pattern in f32, and f16
gives 7fffffff, without its sign). Any number of heads and any widths; upstream's kernel wants
powers of two.)",
      .contract_version = 2,
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::fast,
      .cases = {"T=2 Nh=4 Dn=128 Dr=64", "T=3 Nh=3 Dn=37 Dr=5 --attr dst_dtype=f8_e4m3 --dist outliers",
                "T=1 Nh=16 Dn=128 Dr=64 --dtype k_rope=f32 --attr dst_dtype=f8_e5m2", "T=2 Nh=2 Dn=64 Dr=32 --dtype k_nope=f16"},
      .bench_cases = {"T=1 Nh=128 Dn=128 Dr=64", "T=1024 Nh=128 Dn=128 Dr=64", "T=1024 Nh=128 Dn=128 Dr=64 --attr dst_dtype=f8_e4m3"},
  });
}
}  // namespace dodona
