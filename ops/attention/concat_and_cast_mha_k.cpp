#include "ops/attention/concat_and_cast_mha_k.h"

#include <cstring>
#include <vector>

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

/// `rows` rows of n elements, `stride` bytes apart, in k's type: as they lie, or at `space`.
struct CastRows {
  const std::byte* first;
  std::int64_t stride;

  static CastRows of(const Tensor& part, std::int64_t row, std::int64_t rows, const Tensor& k, std::byte* space, const Exec& exec) {
    const std::int64_t n = part.size(2), bytes = bits(part.dtype()) / 8, to_bytes = bits(k.dtype()) / 8;
    const std::byte* const first = row_begin(part, row, static_cast<int>(bytes));
    const std::int64_t stride = part.stride(1) * bytes;
    if (part.dtype() == k.dtype()) return {first, stride};
    // Short rows that lie one behind the other are one.
    const std::int64_t together = part.stride(1) == n ? rows : 1;
    for (std::int64_t i = 0; i < rows; i += together)
      cast_row(part.dtype(), first + i * stride, k.dtype(), space + i * n * to_bytes, together * n, exec);
    return {space, n * to_bytes};
  }
};

void fast(const ConcatAndCastMhaK& op, const Exec& exec) {
  if (op.k.elements() == 0) return;
  const std::int64_t heads = op.k.size(1), nope = op.k_nope.size(2), rope = op.k_rope.size(2), bytes = bits(op.k.dtype()) / 8;
  const auto nope_bytes = static_cast<std::size_t>(nope * bytes), rope_bytes = static_cast<std::size_t>(rope * bytes);
  parallel_for(exec.threads, op.k.size(0), static_cast<double>(heads * (nope + rope)), [&](std::int64_t t) {
    std::vector<std::byte> space(static_cast<std::size_t>(heads) * nope_bytes + rope_bytes);
    const CastRows own = CastRows::of(op.k_nope, t * heads, heads, op.k, space.data() + rope_bytes, exec),
                   shared = CastRows::of(op.k_rope, t, 1, op.k, space.data(), exec);
    for (std::int64_t h = 0; h < heads; ++h) {
      std::byte* const to = row_begin_mutable(op.k, t * heads + h, static_cast<int>(bytes));
      std::memcpy(to, own.first + h * own.stride, nope_bytes);
      std::memcpy(to + nope_bytes, shared.first, rope_bytes);
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
