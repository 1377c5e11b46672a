#include "ops/attention/trtllm_batch_decode_with_kv_cache_mla.h"

#include <cmath>

#include "ops/softmax/layouts/mla_decode.h"

namespace dodona::ops {
namespace {

std::int64_t page_size_of(const TrtllmBatchDecodeWithKvCacheMla& op) {
  return op.kv_cache.size(-2);
}

MlaDecode decode_of(const TrtllmBatchDecodeWithKvCacheMla& op) {
  MlaDecode decode = trtllm_decode(op);
  decode.seq_lens = op.seq_lens;
  decode.lse = op.lse;
  return decode;
}

void check(const TrtllmBatchDecodeWithKvCacheMla& op) {
  if (op.page_size != 0 && op.page_size != page_size_of(op))
    throw Error(ErrorCode::bad_value, "", "page_size",
                "is " + std::to_string(op.page_size) + ", expected " + std::to_string(page_size_of(op)) + " as kv_cache " +
                    to_string(op.kv_cache.shape()) + " has");
  check_trtllm_output(op);
  check_mla_pages(decode_of(op), "block_tables");
}

void golden_without_mask(const TrtllmBatchDecodeWithKvCacheMla& op, const Exec& exec, Reference* reference) {
  MlaDecode decode = decode_of(op);
  decode.causal = false;
  trtllm_golden(decode, exec, reference);
}

/// How far a request's queries see is made of its first one.
void golden_as_first(const TrtllmBatchDecodeWithKvCacheMla& op, const Exec& exec, Reference* reference) {
  MlaDecode decode = decode_of(op);
  decode.as_first = true;
  trtllm_golden(decode, exec, reference);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_trtllm_batch_decode_with_kv_cache_mla() {
  auto op = ops::trtllm_mla<ops::TrtllmBatchDecodeWithKvCacheMla, ops::decode_of>();
  op.contract = R"(
As cutlass_mla_decode, with weights rounded to the cache's type, and open whether they are added up before or after it: fp32
scores and softmax, fp32 sums, times the reciprocal of the sum of the weights and bmm2_scale, one rounding to bf16 whatever the
inputs, or to f16 where queries and output have it. Budget as there, with the share 2^-4 for e4m3 (weights below 2^-6 of the largest: 2^-10 of that, and never more than
themselves; a scale that they are given is one that the type holds), and where |c - out| is more than |c| that for the rounded
weights. Fast mode counts the weights of e4m3 caches in units of 2^-8 and adds them up unrounded. lse is base 2: log2(e) * m +
log2 of the sum of exp(score - m), about m the largest score; budget: what the scores may be off, a unit of 2^-24 per key, 4 of
the value, 2^-21. A query before the first key (a sequence shorter than Q) gives zeros and -inf. Here an error: a sequence of 0
tokens (upstream's output is unspecified), one beyond the table, a page in use out of range (upstream reads wherever it points;
the table's rest is not looked at), bmm1_scale that is not positive. Sparse attention, sinks and scales in tensors are not
taken. An extension of this library, not upstream: f32 queries and cache, with unrounded weights, and f32 output.)";
  op.contract_version = 3;
  op.check = ops::check;
  op.mistakes = {{"mask-left-out", "every query sees all tokens of its request", ops::golden_without_mask},
                 {"extent-of-first-query", "every query of a request sees what its first query does", ops::golden_as_first}};
  op.cases = {"B=2 Q=2 N=4 pages=11 P=32 W=5 --attr bmm1_scale=0.1352337788608801 --attr bmm2_scale=0.5",
              "B=1 Q=1 N=3 pages=2 P=32 W=1 --attr bmm1_scale=0.0005 --dtype query=f8_e4m3",
              "B=2 Q=2 N=13 pages=11 P=32 W=5 workspace_bytes=64 --attr bmm1_scale=0.1352337788608801 --attr return_lse=true",
              "B=1 Q=2 N=2 pages=2 P=32 W=1 --attr bmm1_scale=0.0005 --attr return_lse=true --dtype query=f8_e4m3",
              "B=1 Q=1 N=192 pages=2 P=32 W=1 --attr bmm1_scale=0.1352337788608801"};
  op.bench_cases = {"B=1 Q=1 N=128 pages=64 P=64 W=64 --attr bmm1_scale=0.1352337788608801",
                    "B=1 Q=1 N=128 pages=64 P=64 W=64 --attr bmm1_scale=0.0005 --dtype query=f8_e4m3",
                    "B=4 Q=2 N=128 pages=64 P=64 W=16 --attr bmm1_scale=0.1352337788608801"};
  return define<ops::TrtllmBatchDecodeWithKvCacheMla>(std::move(op));
}
}  // namespace dodona
