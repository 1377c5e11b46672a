#include "ops/attention/cutlass_mla_decode.h"

#include "ops/softmax/layouts/mla_decode.h"

namespace dodona::ops {
namespace {

/// [B, N, D] as [B, 1, N, D].
Tensor with_query_dim(const Tensor& t) {
  return {t.owner(),   t.data(), t.dtype(), {t.size(0), 1, t.size(1), t.size(2)}, {t.stride(0), t.stride(0), t.stride(1), t.stride(2)},
          t.writable()};
}

MlaDecode decode_of(const CutlassMlaDecode& op) {
  return {.q_nope = with_query_dim(op.q_nope),
          .q_pe = with_query_dim(op.q_pe),
          .cache = op.kv_c_and_k_pe_cache,
          .page_table = op.page_table,
          .seq_lens = op.seq_lens,
          .out = op.out,
          .lse = {},
          .scale = op.sm_scale};
}

void check(const CutlassMlaDecode& op) {
  const std::int64_t page_size = op.kv_c_and_k_pe_cache.size(1), width = op.page_table.size(1);
  if (width % (128 / page_size) != 0)
    throw Error(
        ErrorCode::bad_shape, "", "page_table",
        "has shape " + to_string(op.page_table.shape()) + ", expected W to be a multiple of 128 / P = " + std::to_string(128 / page_size));
  check_mla_scale(op.sm_scale, "sm_scale");
  check_mla_pages(decode_of(op), "page_table");
}

void golden(const CutlassMlaDecode& op, const Exec& exec, Reference* reference) {
  attention_golden(MlaAttention(decode_of(op)), WeightSum::unrounded, exec, reference);
}

void fast(const CutlassMlaDecode& op, const Exec& exec) {
  attention_fast(MlaAttention(decode_of(op)), exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_cutlass_mla_decode() {
  return define<ops::CutlassMlaDecode>({
      .contract = R"(
z[j] of a key is one fp32 sum of 576 exact products; softmax of sm_scale * z in fp32, about a running maximum; the weights (at
most 1) are rounded to the element type for their products with the latents, but their sum is taken over the unrounded ones;
output sums in fp32, times the reciprocal of the sum of the weights, one rounding (nearest even). Golden mode sums in double and
leaves the weights unrounded: where they are rounded depends on the maximum so far, and so on the kernel's tiles. Keys beyond a
sequence's end are ignored whatever they hold (upstream multiplies them by 0, so stale NaNs reach its output). Budget: with d[j]
= sm_scale * 576 units of 2^-24 of sum |q*k|, 4 units of the score and of the largest, and 2^-22 for exp2 and for every
rescaling (64 keys) or merging of splits, weights lie within exp(+-(d[j] + max d)) of the exact ones, which moves an output by
the sum of their differences times |c[j] - out|; rounded weights: 2^-8 (bf16), 2^-11 (f16, below 2^-14 at most 2^-25) of sum
p|c|, but none moves farther than to the largest, which is 1 and exact; 1.25 units of sum p|c| and 1 of the output per key for
sums, 24 for the rest. Heads whose scores may overflow fp32 are not judged. Here an error: a sequence of 0 tokens (upstream
leaves its output rows unwritten), one beyond the table, a page in use out of range (upstream reads wherever it points; the
table's rest is not looked at), sm_scale that is not positive (its running maximum is one of unscaled scores). Where the
magnitudes of the values add up beyond fp32, sums that are divided at last may be infinite: infinities and NaN pass. An extension of
this library, not upstream: f32 queries, cache and output, with unrounded weights.)",
      .contract_version = 4,
      .golden = ops::golden,
      .fast = ops::fast,
      .check = ops::check,
      .flops = [](const ops::CutlassMlaDecode& op) { return ops::attention_flops(ops::MlaAttention(ops::decode_of(op))); },
      .bytes_read = [](const ops::CutlassMlaDecode& op) { return ops::MlaAttention(ops::decode_of(op)).bytes_read(); },
      .cases = {"B=2 N=4 pages=36 P=16 W=16 --attr sm_scale=0.1352337788608801",
                "B=1 N=17 pages=70 P=4 W=64 --attr sm_scale=0.0721687836 --dtype q_nope=f16",
                "B=2 N=18 pages=9 P=64 W=4 workspace_bytes=64 --attr sm_scale=0.1352337788608801"},
      .bench_cases = {"B=1 N=128 pages=64 P=64 W=64 --attr sm_scale=0.1352337788608801",
                      "B=1 N=128 pages=16 P=64 W=16 --attr sm_scale=0.1352337788608801",
                      "B=16 N=128 pages=256 P=64 W=16 --attr sm_scale=0.1352337788608801",
                      "B=1 N=16 pages=64 P=64 W=64 --attr sm_scale=0.1352337788608801"},
  });
}
}  // namespace dodona
