#include "ops/attention/trtllm_ragged_attention_deepseek.h"

#include <utility>

#include "ops/softmax/layouts/offsets.h"
#include "ops/softmax/layouts/ragged.h"
#include "ops/softmax/layouts/trtllm_mla.h"

namespace dodona::ops {
namespace {

using Call = TrtllmRaggedAttentionDeepseek;

RaggedAttention attention_of(const Call& op, CausalMask mask = CausalMask::right) {
  const auto *const q = op.cum_seq_lens_q.as<const std::int32_t>(), *const kv = op.cum_seq_lens_kv.as<const std::int32_t>();
  std::vector<RaggedRequest> requests;
  for (std::int64_t b = 0; b < op.seq_lens.size(0); ++b)
    requests.push_back({q[b], q[b + 1] - q[b], kv[b], op.seq_lens.as<const std::int32_t>()[b], op.is_causal});
  return {{.query = op.query,
           .key = op.key,
           .value = op.value,
           .out = op.out,
           .lse = op.lse,
           .scale = op.bmm1_scale,
           .out_scale = op.bmm2_scale},
          masked_by(mask, std::move(requests))};
}

void make_inputs(Call& op, std::uint64_t) {
  const auto* const ends = op.cum_seq_lens_kv.as<const std::int32_t>();
  for (std::int64_t b = 0; b < op.seq_lens.elements(); ++b) op.seq_lens.as<std::int32_t>()[b] = ends[b + 1] - ends[b];
}

void check(const Call& op) {
  const std::int64_t width = op.query.size(2), value_width = op.value.size(2);
  if (value_width != (width == 192 ? 128 : width))
    throw Error(ErrorCode::bad_shape, "", "value",
                "has shape " + to_string(op.value.shape()) + ", expected heads of " + std::to_string(width == 192 ? 128 : width) +
                    " beside those of " + std::to_string(width) + " of query " + to_string(op.query.shape()));
  if (op.query.size(1) % op.key.size(1) != 0)
    throw Error(
        ErrorCode::bad_shape, "", "key",
        "has shape " + to_string(op.key.shape()) + ", expected heads that divide the " + std::to_string(op.query.size(1)) + " of query");
  if (op.batch_size != 0 && op.batch_size != op.seq_lens.size(0))
    throw Error(ErrorCode::bad_value, "", "batch_size",
                "is " + std::to_string(op.batch_size) + ", expected " + std::to_string(op.seq_lens.size(0)) + " as seq_lens has");
  check_trtllm_output(op);
  check_offsets(op.cum_seq_lens_q, "cum_seq_lens_q", op.query.size(0), tokens_of("query", op.query), true);
  check_offsets(op.cum_seq_lens_kv, "cum_seq_lens_kv", op.key.size(0), tokens_of("key", op.key), false);
  for (std::int64_t b = 0; b < op.seq_lens.size(0); ++b) {
    const auto* const ends = op.cum_seq_lens_kv.as<const std::int32_t>();
    if (const std::int32_t keys = op.seq_lens.as<const std::int32_t>()[b]; keys > ends[b + 1] - ends[b])
      throw Error(ErrorCode::bad_value, "", "seq_lens",
                  "holds " + std::to_string(keys) + " at element " + std::to_string(b) + ", expected at most the " +
                      std::to_string(ends[b + 1] - ends[b]) + " keys that cum_seq_lens_kv gives the request");
  }
}

template <CausalMask mask>
void golden(const Call& op, const Exec& exec, Reference* reference) {
  attention_golden(attention_of(op, mask), WeightSum::open, exec, reference);
}

void fast(const Call& op, const Exec& exec) {
  attention_fast(attention_of(op), exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_trtllm_ragged_attention_deepseek() {
  return define<ops::TrtllmRaggedAttentionDeepseek>({
      .contract = R"(
As trtllm_batch_decode_with_kv_cache_mla, of which it has the budget: fp32 scores and softmax, weights rounded to the type of the values,
fp32 sums, times the reciprocal of the sum of the weights (rounded or not) and bmm2_scale, one rounding to bf16 whatever the inputs, or to
f16 where queries and output have it; lse in base 2. The keys are those that a query sees; what others hold has no effect. A query that sees
none (a request without keys, or with is_causal one of more queries than keys) gives zeros and -inf. Keys of a request are the first
seq_lens[b] from cum_seq_lens_kv[b] on. Fast mode keeps scores of 64 queries and 128 keys at a time. Here errors: offsets that fall or lead
outside, bmm1_scale that is not positive. Windows, sinks, FP4 outputs and scales in tensors are not taken. An extension of this
library, not upstream: f32 queries, keys and values, with unrounded weights, and f32 output.)",
      .golden = ops::golden<ops::CausalMask::right>,
      .fast = ops::fast,
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .flops = [](const ops::TrtllmRaggedAttentionDeepseek& op) { return ops::attention_flops(ops::attention_of(op)); },
      .mistakes = {{"causal-mask-from-first-key", "the causal mask is aligned to the first key, not to the last",
                    ops::golden<ops::CausalMask::from_first_key>},
                   {"own-key-hidden", "the causal mask hides a query's own key", ops::golden<ops::CausalMask::own_key_hidden>},
                   {"next-key-seen", "the causal mask shows a query the key behind its own", ops::golden<ops::CausalMask::next_key_seen>}},
      .cases = {"Tq=5 Tk=9 N=4 Nk=4 D=192 Dv=128 B=2 --attr bmm1_scale=0.0721687836 --attr return_lse=true",
                "Tq=3 Tk=40 N=2 Nk=1 D=192 Dv=128 B=2 --attr bmm1_scale=0.1352337788608801 --attr is_causal=false --attr bmm2_scale=0.5",
                "Tq=4 Tk=6 N=2 Nk=2 D=128 Dv=128 B=3 workspace_bytes=64 --attr bmm1_scale=0.09 --dtype query=f16",
                "Tq=2 Tk=3 N=1 Nk=1 D=256 Dv=256 B=1 --attr bmm1_scale=0.0002 --attr return_lse=true --dtype query=f8_e4m3"},
      .bench_cases = {"Tq=1024 Tk=1024 N=16 Nk=16 D=192 Dv=128 B=1 --attr bmm1_scale=0.1352337788608801",
                      "Tq=256 Tk=2048 N=16 Nk=16 D=192 Dv=128 B=1 --attr bmm1_scale=0.1352337788608801 --attr is_causal=false"},
  });
}
}  // namespace dodona
