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
