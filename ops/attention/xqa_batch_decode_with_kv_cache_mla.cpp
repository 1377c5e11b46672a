#include "ops/attention/xqa_batch_decode_with_kv_cache_mla.h"

#include "ops/softmax/layouts/mla_decode.h"

namespace dodona::ops {
namespace {

using Call = XqaBatchDecodeWithKvCacheMla;

MlaDecode decode_of(const Call& op) {
  MlaDecode decode = trtllm_decode(op);
  decode.seq_lens = op.seq_lens;
  decode.scale = static_cast<double>(static_cast<float>(op.bmm1_scale)) * static_cast<float>(op.bmm2_scale);
  return decode;
}

void check(const Call& op) {
  check_mla_scale(op.bmm1_scale, "bmm1_scale");
  check_mla_scale(op.bmm2_scale, "bmm2_scale");
  check_mla_pages(decode_of(op), "block_tables");
}

void golden_with_one_scale_each(const Call& op, const Exec& exec, Reference* reference) {
  MlaDecode decode = decode_of(op);
  decode.scale = op.bmm1_scale;
  trtllm_golden(decode, exec, reference);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_xqa_batch_decode_with_kv_cache_mla() {
  auto op = ops::trtllm_mla<ops::XqaBatchDecodeWithKvCacheMla, ops::decode_of>();
  op.contract = R"(
As trtllm_batch_decode_with_kv_cache_mla, of which it has the budget, with the product of both scales, rounded to fp32, in the place of
bmm1_scale. Upstream adds up e4m3 weights after their rounding, in units of 1/448, and bf16 weights before it: either is open. Here an error: a
sequence of 0 tokens, one beyond the table, a page in use out of range, scales that are not positive. Sinks, several query tokens and scales
in tensors are not taken; upstream takes neither of the first two.)";
  op.check = ops::check;
  op.mistakes = {{"key-scale-left-out", "scores are multiplied by bmm1_scale alone", ops::golden_with_one_scale_each}};
  op.cases = {"B=2 N=5 pages=7 P=64 W=3 --attr bmm1_scale=0.1352337788608801 --attr bmm2_scale=0.5",
              "B=1 N=3 pages=2 P=32 W=1 workspace_bytes=64 --attr bmm1_scale=0.0005 --dtype query=f8_e4m3"};
  op.bench_cases = {"B=1 N=128 pages=64 P=64 W=64 --attr bmm1_scale=0.1352337788608801",
                    "B=1 N=128 pages=64 P=64 W=64 --attr bmm1_scale=0.0005 --dtype query=f8_e4m3"};
  return define<ops::XqaBatchDecodeWithKvCacheMla>(std::move(op));
}
}  // namespace dodona
