#include "ops/attention/flash_mla_with_kvcache.h"

#include <cmath>

#include "ops/softmax/flash_mla.h"
#include "ops/softmax/mla_decode.h"

namespace dodona::ops {
namespace {

double scale_of(const FlashMlaWithKvcache& op) {
  return op.softmax_scale == 0 ? 1 / std::sqrt(static_cast<double>(mla_width)) : op.softmax_scale;
}

MlaDecode decode_of(const FlashMlaWithKvcache& op) {
  return {.q_nope = op.q.slice(3, 0, mla_latent),
          .q_pe = op.q.slice(3, mla_latent, mla_width),
          .cache = op.k_cache.reshape({op.k_cache.size(0), flash_mla_block, mla_width}),
          .page_table = op.block_table,
          .seq_lens = op.cache_seqlens,
          .out = op.out,
          .lse = op.softmax_lse,
          .scale = scale_of(op),
          .causal = op.causal,
          .flash_mla = true};
}

FlashMla call_of(const FlashMlaWithKvcache& op) {
  return {.q = op.q,
          .cache = op.k_cache,
          .block_table = op.block_table,
          .seq_lens = op.cache_seqlens,
          .metadata = op.tile_scheduler_metadata,
          .num_splits = op.num_splits,
          .out = op.out,
          .lse = op.softmax_lse,
          .scale = scale_of(op),
          .causal = op.causal};
}

void make_inputs(FlashMlaWithKvcache& op, std::uint64_t) {
  write_flash_mla_schedule(op.cache_seqlens, op.tile_scheduler_metadata, op.num_splits);
}

void check(const FlashMlaWithKvcache& op) {
  if (op.is_fp8_kvcache)
    throw Error(ErrorCode::unsupported, "", "is_fp8_kvcache", "is true, expected false: caches of 16 bits are offered");
  check_mla_scale(scale_of(op), "softmax_scale");
  check_mla_pages(decode_of(op), "block_table");
  check_flash_mla_schedule(call_of(op));
}

/// The largest score is rounded before it is taken from a fused product: weights exceed 1 by 2 to the power of its rounding, which
/// overflows the element type, or fp32, for very large scores.
ScoreErrors errors_of(const FlashMlaWithKvcache& op) {
  constexpr double log2_e = 1.4426950408889634;
  const double scale = std::fabs(scale_of(op)), most = op.q.dtype() == f16 ? 0x1p27 : 0x1p30;
  ScoreErrors errors = ScoreErrors::of_fp32(mla_width);
  errors.limit = std::fmin(errors.limit, most / (scale * log2_e) * std::fmax(1.0, 2 * scale));
  return errors;
}

void golden(const FlashMlaWithKvcache& op, const Exec& exec, Reference* reference) {
  MlaAttention attention(decode_of(op));
  attention.lse_name = "softmax_lse";
  attention.score_errors = errors_of(op);
  attention_golden(attention, WeightSum::unrounded, exec, reference);
}

void fast(const FlashMlaWithKvcache& op, const Exec& exec) {
  attention_fast(MlaAttention(decode_of(op)), exec);
}

void hopper(const FlashMlaWithKvcache& op, const Exec& exec) {
  flash_mla_hopper(call_of(op), exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_flash_mla_with_kvcache() {
  return define<ops::FlashMlaWithKvcache>({
      .contract = R"(
As cutlass_mla_decode, of which it has the budget: z[j] one fp32 sum of 576 exact products; softmax about a running maximum; weights rounded to
the element type for their products with the latents, their sum taken over the unrounded ones; fp32 sums, times the reciprocal of the sum of
the weights, one rounding. softmax_lse is the natural logarithm, a product with ln 2 of that in base 2: one unit of 2^-24 more. A query that
sees no key gives zeros and +inf. Heads are not judged whose scores may come to 2^27 (f16) or 2^30 (bf16), for the kernel's weights may
then overflow: the maximum that is taken from a score is rounded, the score is not. How the work is cut shows in the H200's bits alone: hopper mode takes blocks of 64 keys in pairs by
tile_scheduler_metadata, and combines splits as FlashMLA does. Keys beyond a sequence's end are ignored. Here errors: a page in use out of range,
metadata that do not cut every request into the splits that num_splits has, a scale that is not positive.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .flops = [](const ops::FlashMlaWithKvcache& op) { return ops::attention_flops(ops::MlaAttention(ops::decode_of(op))); },
      .bytes_read = [](const ops::FlashMlaWithKvcache& op) { return ops::MlaAttention(ops::decode_of(op)).bytes_read(); },
      .cases = {"B=2 Q=1 N=4 pages=5 W=2 parts=4 --attr softmax_scale=0.1352337788608801",
                "B=2 Q=2 N=3 pages=6 W=3 parts=7 --attr softmax_scale=0.07 --attr causal=true --dtype q=f16"},
      .bench_cases = {"B=1 Q=1 N=128 pages=64 W=64 parts=66 --attr softmax_scale=0.1352337788608801",
                      "B=8 Q=1 N=128 pages=128 W=16 parts=66 --attr softmax_scale=0.1352337788608801"},
  });
}
}  // namespace dodona
