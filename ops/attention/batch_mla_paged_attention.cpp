#include "ops/attention/batch_mla_paged_attention.h"

#include <algorithm>

#include "core/random.h"
#include "ops/softmax/mla_decode.h"
#include "ops/softmax/paged_mla.h"
#include "quant/sizes.h"

namespace dodona::ops {
namespace {

using Call = BatchMlaPagedAttention;

PagedMlaAttention attention_of(const Call& op) {
  PagedMlaAttention attention({.q_nope = op.q_nope,
                               .q_pe = op.q_pe,
                               .ckv = op.ckv_cache,
                               .kpe = op.kpe_cache,
                               .query_offsets = op.qo_indptr,
                               .page_offsets = op.kv_indptr,
                               .pages = op.kv_indices,
                               .lengths = op.kv_len_arr,
                               .out = op.out,
                               .lse = op.lse,
                               .scale = op.sm_scale,
                               .causal = op.causal});
  attention.natural_lse = op.return_lse_base_on_e;
  attention.partials_rounded = true;
  return attention;
}

void make_inputs(Call& op, std::uint64_t seed) {
  const InputDraw draw(seed, "kv_len_arr");
  const std::int64_t requests = op.kv_len_arr.elements(), page_size = op.ckv_cache.size(1);
  const std::int64_t most = page_size * (op.kv_indices.elements() / requests);
  std::int64_t end = 0;
  for (std::int64_t b = 0; b < requests; ++b) {
    const auto length = b == 0 ? most : static_cast<std::int64_t>(draw.below(b, static_cast<std::uint64_t>(most + 1)));
    op.kv_len_arr.as<std::int32_t>()[b] = static_cast<std::int32_t>(length);
    op.kv_indptr.as<std::int32_t>()[b] = static_cast<std::int32_t>(end);
    end += quant::ceil_div(length, page_size);
  }
  op.kv_indptr.as<std::int32_t>()[requests] = static_cast<std::int32_t>(end);
}

void check(const Call& op) {
  check_mla_scale(op.sm_scale, "sm_scale");
  const auto falls = [](const Tensor& offsets, const char* name, std::int64_t end, bool whole) {
    const auto* const at = offsets.as<const std::int32_t>();
    for (std::int64_t b = 0; b < offsets.size(0); ++b) {
      const bool last = b + 1 == offsets.size(0);
      if (at[b] < (b == 0 ? 0 : at[b - 1]) || at[b] > (b == 0 ? 0 : end) || (whole && last && at[b] != end))
        throw Error(ErrorCode::bad_value, "", name,
                    "holds " + std::to_string(at[b]) + " at element " + std::to_string(b) +
                        ", expected offsets that begin at 0, do not fall and " + (whole ? "end at " : "stay within ") +
                        std::to_string(end));
    }
  };
  falls(op.qo_indptr, "qo_indptr", op.q_nope.size(0), true);
  falls(op.kv_indptr, "kv_indptr", op.kv_indices.size(0), false);
  const auto* const pages = op.kv_indptr.as<const std::int32_t>();
  const std::int64_t page_size = op.ckv_cache.size(1);
  for (std::int64_t b = 0; b < op.kv_len_arr.size(0); ++b)
    if (const std::int64_t length = op.kv_len_arr.as<const std::int32_t>()[b], room = (pages[b + 1] - pages[b]) * page_size; length > room)
      throw Error(ErrorCode::bad_value, "", "kv_len_arr",
                  "holds " + std::to_string(length) + " at element " + std::to_string(b) + ", expected at most the " +
                      std::to_string(room) + " tokens of the pages that kv_indptr gives the request");
}

void golden(const Call& op, const Exec& exec, Reference* reference) {
  attention_golden(attention_of(op), WeightSum::open, exec, reference);
}

void fast(const Call& op, const Exec& exec) {
  attention_fast(attention_of(op), exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_batch_mla_paged_attention() {
  return define<ops::BatchMlaPagedAttention>({
      .contract = R"(
As trtllm_batch_decode_with_kv_cache_mla, of which it has the budget: upstream adds up the weights after their rounding to the queries' type.
Beside that outputs of splits may be rounded to the output's type before they are merged: a unit of it of sum of p * |ckv|. lse is base 2, or natural:
the same times ln 2, rounded once more. A query that sees no token gives zeros and -inf. What lies behind a request's tokens has no effect. Here errors: offsets
that fall, lengths beyond the pages, pages out of range. Caches of 8 bits with scales are not taken, nor the cutlass backend, which
takes no scale at all.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .flops = [](const ops::BatchMlaPagedAttention& op) { return ops::attention_flops(ops::attention_of(op)); },
      .bytes_read =
          [](const ops::BatchMlaPagedAttention& op) {
            double tokens = static_cast<double>(op.q_nope.size(0) * op.q_nope.size(1));
            for (std::int64_t b = 0; b < op.kv_len_arr.size(0); ++b) tokens += op.kv_len_arr.as<const std::int32_t>()[b];
            return tokens * static_cast<double>(bytes_for(op.ckv_cache.dtype(), ops::mla_width));
          },
      .cases = {"T=5 N=4 pages=9 P=16 B=2 n=6 --attr causal=true --attr sm_scale=0.1352337788608801 --attr return_lse=true",
                "T=3 N=2 pages=60 P=1 B=3 n=50 --attr sm_scale=0.0721687836 --dtype q_nope=f16",
                "T=2 N=3 pages=2 P=64 B=1 n=2 --attr sm_scale=0.0721687836 --attr return_lse=true --attr return_lse_base_on_e=true"},
      .bench_cases = {"T=1 N=128 pages=64 P=64 B=1 n=64 --attr sm_scale=0.1352337788608801"},
  });
}
}  // namespace dodona
