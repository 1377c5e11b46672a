#include "ops/attention/trtllm_batch_decode_sparse_mla.h"

#include <algorithm>

#include "ops/softmax/layouts/mla_decode.h"

namespace dodona::ops {
namespace {

using Call = TrtllmBatchDecodeSparseMla;

MlaDecode decode_of(const Call& op) {
  MlaDecode decode = trtllm_decode(op);
  decode.lse = op.lse;
  decode.chosen = true;
  return decode;
}

void check(const Call& op) {
  if (op.sparse_mla_top_k != 0 && op.sparse_mla_top_k != op.block_tables.size(2))
    throw Error(ErrorCode::bad_value, "", "sparse_mla_top_k",
                "is " + std::to_string(op.sparse_mla_top_k) + ", expected " + std::to_string(op.block_tables.size(2)) +
                    " as block_tables " + to_string(op.block_tables.shape()) + " has");
  check_trtllm_output(op);
  check_mla_pages(decode_of(op), "block_tables");
}

/// A token that is named twice counts once.
void golden_with_tokens_once(const Call& op, const Exec& exec, Reference* reference) {
  MlaDecode decode = decode_of(op);
  decode.page_table = op.block_tables.clone();
  const std::int64_t count = op.block_tables.size(2);
  for (std::int64_t row = 0; row < op.block_tables.size(0) * op.block_tables.size(1); ++row) {
    auto* const tokens = decode.page_table.as<std::int32_t>() + row * count;
    for (std::int64_t i = 1; i < count; ++i)
      if (std::find(tokens, tokens + i, tokens[i]) != tokens + i) tokens[i] = -1;
  }
  trtllm_golden(decode, exec, reference);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_trtllm_batch_decode_sparse_mla() {
  auto op = ops::trtllm_mla<ops::TrtllmBatchDecodeSparseMla, ops::decode_of>();
  op.contract = R"(
As trtllm_batch_decode_with_kv_cache_mla, of which it has the budget, over the tokens of a list in the place of pages: there is no causal mask,
a token that is named twice counts twice, and a list without tokens gives zeros and -inf. What no list names has no effect. Here an error: a
token beyond the pool, bmm1_scale that is not positive. Sinks and scales in tensors are not taken.)";
  op.check = ops::check;
  op.mistakes = {{"tokens-once", "a token that the list names twice counts once", ops::golden_with_tokens_once}};
  op.cases = {"B=2 Q=2 N=4 pages=4 P=32 topk=9 --attr bmm1_scale=0.1352337788608801 --attr bmm2_scale=0.5",
              "B=1 Q=1 N=3 pages=2 P=64 topk=33 workspace_bytes=64 --attr bmm1_scale=0.0005 --attr return_lse=true --dtype query=f8_e4m3 "
              "--without seq_lens"};
  op.bench_cases = {"B=1 Q=1 N=128 pages=128 P=64 topk=2048 --attr bmm1_scale=0.1352337788608801"};
  return define<ops::TrtllmBatchDecodeSparseMla>(std::move(op));
}
}  // namespace dodona
