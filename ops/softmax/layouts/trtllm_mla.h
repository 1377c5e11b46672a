// What FlashInfer's attention by trtllm-gen's and XQA's kernels shares: the cache and the widths of the schema of absorbed MLA, and checks.
#pragma once

#include <cmath>
#include <string>

#include "core/define.h"
#include "ops/softmax/layouts/mla_decode.h"

namespace dodona::ops {

/// `Op` has kv_cache of the type of query, and workspace_buffer; `scratch` is what upstream has the latter for.
template <class Op>
void describe_trtllm_cache(auto& op, Op& fields, const char* scratch) {
  op.in("kv_cache", fields.kv_cache, same_as("query"), "pages P kv_lora_rank+qk_rope_head_dim | pages 1 P kv_lora_rank+qk_rope_head_dim")
      .layout(Layout::contiguous)
      .doc("a token's row is its latent (512), then its rotated key part (64)");
  op.in("workspace_buffer", fields.workspace_buffer, {DType::u8}, "workspace_bytes")
      .optional()
      .doc(std::string("upstream's ") + scratch + "; neither needed nor touched");
}
template <class Op>
void describe_trtllm_widths(auto& op, Op& fields) {
  op.attr("qk_nope_head_dim", fields.qk_nope_head_dim, at_least(0))
      .ignored()
      .doc("width of the key heads that were absorbed, without effect");
  op.attr("kv_lora_rank", fields.kv_lora_rank).doc("width of the latent part: 512");
  op.attr("qk_rope_head_dim", fields.qk_rope_head_dim).doc("width of the rope part: 64");
  op.attr("max_seq_len", fields.max_seq_len, at_least(0)).ignored().doc("bound of seq_lens for scheduling, without effect on values");
}

/// A call whose query and cache are whole rows of 576, with the scales of its attributes.
template <class Op>
MlaDecode trtllm_decode(const Op& op) {
  return {.q_nope = op.query.slice(3, 0, mla_latent),
          .q_pe = op.query.slice(3, mla_latent, mla_width),
          .cache = op.kv_cache.reshape({op.kv_cache.size(0), op.kv_cache.size(-2), mla_width}),
          .page_table = op.block_tables,
          .out = op.out,
          .scale = op.bmm1_scale,
          .out_scale = op.bmm2_scale};
}

/// Whether weights are added up before or after their rounding is open.
inline void trtllm_golden(const MlaDecode& decode, const Exec& exec, Reference* reference) {
  attention_golden(MlaAttention(decode), WeightSum::open, exec, reference);
}

/// What runs such calls, and what they cost; `decode_of` says what lies where.
template <class Op, MlaDecode (*decode_of)(const Op&)>
Implementation<Op> trtllm_mla() {
  Implementation<Op> all;
  all.golden = [](const Op& op, const Exec& exec, Reference* reference) { trtllm_golden(decode_of(op), exec, reference); };
  all.fast = [](const Op& op, const Exec& exec) { attention_fast(MlaAttention(decode_of(op)), exec); };
  all.flops = [](const Op& op) { return attention_flops(MlaAttention(decode_of(op))); };
  all.bytes_read = [](const Op& op) { return MlaAttention(decode_of(op)).bytes_read(); };
  return all;
}

/// The type of the output and both scales, where bmm2_scale is the output's.
template <class Op>
void check_trtllm_output(const Op& op) {
  if (const DType type = op.out.dtype(); type != DType::bf16 && type != op.query.dtype())
    throw Error(ErrorCode::bad_dtype, "", "out",
                "has dtype " + std::string(name(type)) + ", expected bf16" +
                    (bits(op.query.dtype()) > 8 && op.query.dtype() != DType::bf16 ? " or " + std::string(name(op.query.dtype())) : "") +
                    " as query is " + std::string(name(op.query.dtype())));
  check_mla_scale(op.bmm1_scale, "bmm1_scale");
  if (!std::isfinite(static_cast<float>(op.bmm2_scale)))
    throw Error(ErrorCode::bad_value, "", "bmm2_scale", "must be finite in fp32, got " + to_string(AttrValue(op.bmm2_scale)));
}

}  // namespace dodona::ops
