// attn_mha: attention to expanded keys and values.
#include <algorithm>
#include <cmath>

#include "core/define.h"
#include "model/layer/attention/kernels.h"
#include "model/layer/pass.h"
#include "model/layer/values.h"
#include "ops/attention/batch_prefill_with_ragged_kv_cache.h"
#include "ops/attention/extend_attention_fwd.h"
#include "ops/attention/trtllm_ragged_attention_deepseek.h"

namespace dodona::model {
namespace {

std::vector<std::int64_t> counts_of(const std::vector<std::int64_t>& starts) {
  std::vector<std::int64_t> counts;
  for (std::size_t r = 0; r + 1 < starts.size(); ++r) counts.push_back(starts[r + 1] - starts[r]);
  return counts;
}

/// The kernels' logarithms are in base 2; merge_state_v2 takes natural ones.
Tensor to_merge(const Pass& p, const Tensor& base_2) {
  constexpr float ln_2 = 0x1.62e43p-1f;
  if (p.choices.attention.merges_in_base_2) return base_2;
  for (std::int64_t i = 0; i < base_2.elements(); ++i) base_2.as<float>()[i] *= ln_2;
  return base_2;
}

/// FlashInfer `trtllm_ragged_attention_deepseek`; its contract is that of the ragged prefill of other backends too.
MhaResult ragged(const Pass& p, const MhaCall& c) {
  // Of an fp8 cache's backend. Source: sglang `_quantize_fp8_qkv`, without scales: checkpoints have none for attn_mha.
  const auto operand = [&](const Tensor& x) { return p.choices.attention.multiplies_expanded_fp8 ? cast_to_e4m3(x) : x; };
  const auto run = ops::run(ops::TrtllmRaggedAttentionDeepseek{.query = operand(c.q),
                                                               .key = operand(c.k),
                                                               .value = operand(c.v),
                                                               .seq_lens = int32_tensor(counts_of(c.key_starts)),
                                                               .cum_seq_lens_q = p.batch.starts_tensor(),
                                                               .cum_seq_lens_kv = int32_tensor(c.key_starts),
                                                               .out = Tensor(c.q.dtype(), {c.q.size(0), c.q.size(1), c.v.size(2)}),
                                                               .bmm1_scale = p.config().softmax_scale(),
                                                               .is_causal = c.causal,
                                                               .return_lse = c.wants_lse},
                            p.exec());
  return {run.out, c.wants_lse ? to_merge(p, run.lse) : Tensor()};
}

/// FlashInfer `BatchPrefillWithRaggedKVCacheWrapper`.
MhaResult flashinfer_ragged(const Pass& p, const MhaCall& c) {
  const auto run = ops::run(ops::BatchPrefillWithRaggedKvCache{.q = c.q,
                                                               .k = c.k,
                                                               .v = c.v,
                                                               .qo_indptr = p.batch.starts_tensor(),
                                                               .kv_indptr = int32_tensor(c.key_starts),
                                                               .causal = c.causal,
                                                               .return_lse = c.wants_lse,
                                                               .sm_scale = p.config().softmax_scale()},
                            p.exec());
  return {run.out, c.wants_lse ? to_merge(p, run.lse) : Tensor()};
}

/// SGLang's Triton prefill without a prefix.
MhaResult triton(const Pass& p, const MhaCall& c) {
  const Tensor no_keys(c.k.dtype(), {1, c.k.size(1), c.k.size(2)}), no_values(c.v.dtype(), {1, c.v.size(1), c.v.size(2)});
  return {ops::run(ops::ExtendAttentionFwd{.q_extend = c.q,
                                           .k_extend = c.k,
                                           .v_extend = c.v,
                                           .k_buffer = no_keys,
                                           .v_buffer = no_values,
                                           .qo_indptr = p.batch.starts_tensor(),
                                           .kv_indptr = int32_tensor(std::vector<std::int64_t>(c.key_starts.size(), 0)),
                                           .kv_indices = Tensor(DType::i64, {0}),
                                           .sm_scale = p.config().softmax_scale(),
                                           .is_causal = c.causal},
                   p.exec())
              .o_extend,
          {}};
}

/// Heads of 192 with values of 128; of those sizes with values as wide.
bool paired(const ModelConfig& c, std::initializer_list<std::int64_t> sizes) {
  if (c.qk_head_dim() == 192) return c.v_head_dim == 128;
  return c.v_head_dim == c.qk_head_dim() && std::find(sizes.begin(), sizes.end(), c.v_head_dim) != sizes.end();
}
const char* wants_sizes_of_trtllm(const ModelConfig& c) {
  return paired(c, {128, 256}) ? nullptr
                               : "qk_nope_head_dim + qk_rope_head_dim and v_head_dim of 192 and 128, of 128 and 128, or of 256 and 256";
}
const char* wants_sizes_of_flashinfer(const ModelConfig& c) {
  return paired(c, {64, 128, 256}) ? nullptr
                                   : "qk_nope_head_dim + qk_rope_head_dim and v_head_dim of 192 and 128, or both of 64, 128 or 256";
}
const char* wants_blocks_of_triton(const ModelConfig& c) {
  const bool fits = c.qk_head_dim() % 16 == 0 && c.v_head_dim % 16 == 0 && c.qk_head_dim() <= 576 && c.v_head_dim <= 512;
  return fits ? nullptr : "qk_nope_head_dim + qk_rope_head_dim and v_head_dim in multiples of 16, up to 576 and 512";
}

}  // namespace

const MhaKernel ragged_kernel{.name = "trtllm_ragged_attention_deepseek", .wants_sizes = wants_sizes_of_trtllm, .run = ragged};
const MhaKernel flashinfer_ragged_kernel{
    .name = "batch_prefill_with_ragged_kv_cache", .in_f32 = false, .wants_sizes = wants_sizes_of_flashinfer, .run = flashinfer_ragged};
const MhaKernel triton_extend_mha_kernel{.name = "extend_attention_fwd",
                                         .sees_prefix = false,
                                         .gives_lse = false,
                                         .in_f32 = false,
                                         .wants_sizes = wants_blocks_of_triton,
                                         .run = triton};

Work attending_to_keys(const Batch& batch, const MhaCall& c) {
  double pairs = 0;
  for (std::int64_t r = 0; r < batch.size(); ++r) {
    const auto queries = static_cast<double>(batch.tokens_of(r));
    const auto keys = static_cast<double>(c.key_starts[static_cast<std::size_t>(r) + 1] - c.key_starts[static_cast<std::size_t>(r)]);
    pairs += c.causal ? queries * (keys - (queries - 1) / 2) : queries * keys;
  }
  return reading({c.q, c.k, c.v}, 2 * pairs * static_cast<double>(c.q.size(1) * (c.q.size(2) + c.v.size(2))));
}

}  // namespace dodona::model
