#include "ops/attention/xqa_batch_decode_with_kv_cache_mla.h"

#include "ops/softmax/layouts/mla_decode.h"

namespace dodona::ops {
namespace {

using Call = XqaBatchDecodeWithKvCacheMla;

MlaDecode decode_of(const Call& op) {
  return {.q_nope = op.query.slice(3, 0, mla_latent),
          .q_pe = op.query.slice(3, mla_latent, mla_width),
          .cache = op.kv_cache.reshape({op.kv_cache.size(0), op.kv_cache.size(-2), mla_width}),
          .page_table = op.block_tables,
          .seq_lens = op.seq_lens,
          .out = op.out,
          .lse = {},
          .scale = static_cast<double>(static_cast<float>(op.bmm1_scale)) * static_cast<float>(op.bmm2_scale),
          .out_scale = op.bmm2_scale};
}

void check(const Call& op) {
  check_mla_scale(op.bmm1_scale, "bmm1_scale");
  check_mla_scale(op.bmm2_scale, "bmm2_scale");
  check_mla_pages(decode_of(op), "block_tables");
}

void golden(const Call& op, const Exec& exec, Reference* reference) {
  attention_golden(MlaAttention(decode_of(op)), WeightSum::open, exec, reference);
}

void golden_with_one_scale_each(const Call& op, const Exec& exec, Reference* reference) {
  MlaDecode decode = decode_of(op);
  decode.scale = op.bmm1_scale;
  attention_golden(MlaAttention(decode), WeightSum::open, exec, reference);
}

void fast(const Call& op, const Exec& exec) {
  attention_fast(MlaAttention(decode_of(op)), exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_xqa_batch_decode_with_kv_cache_mla() {
  return define<ops::XqaBatchDecodeWithKvCacheMla>({
      .contract = R"(
As trtllm_batch_decode_with_kv_cache_mla, of which it has the budget, with the product of both scales, rounded to fp32, in the place of
bmm1_scale. Upstream adds up e4m3 weights after their rounding, in units of 1/448, and bf16 weights before it: either is open. Here an error: a
sequence of 0 tokens, one beyond the table, a page in use out of range, scales that are not positive. Sinks, several query tokens and scales
in tensors are not taken; upstream takes neither of the first two.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .check = ops::check,
      .flops = [](const ops::XqaBatchDecodeWithKvCacheMla& op) { return ops::attention_flops(ops::MlaAttention(ops::decode_of(op))); },
      .bytes_read = [](const ops::XqaBatchDecodeWithKvCacheMla& op) { return ops::MlaAttention(ops::decode_of(op)).bytes_read(); },
      .mistakes = {{"key-scale-left-out", "scores are multiplied by bmm1_scale alone", ops::golden_with_one_scale_each}},
      .cases = {"B=2 N=5 pages=7 P=64 W=3 --attr bmm1_scale=0.1352337788608801 --attr bmm2_scale=0.5",
                "B=1 N=3 pages=2 P=32 W=1 workspace_bytes=64 --attr bmm1_scale=0.0005 --dtype query=f8_e4m3"},
      .bench_cases = {"B=1 N=128 pages=64 P=64 W=64 --attr bmm1_scale=0.1352337788608801",
                      "B=1 N=128 pages=64 P=64 W=64 --attr bmm1_scale=0.0005 --dtype query=f8_e4m3"},
  });
}
}  // namespace dodona
