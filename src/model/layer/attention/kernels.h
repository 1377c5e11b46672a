// The kernels that attention paths end in: attn_mha over expanded keys and values, attn_mqa over the latents in the cache.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/layer/setting.h"
#include "model/layer/work.h"

namespace dodona::model {

struct ModelConfig;
struct Pass;
struct Batch;

/// Queries [T, Nh, Dq] of the batch against keys [n, Nh, Dq] and values [n, Nh, Dv]; request r has keys[r] to keys[r + 1] - 1.
struct MhaCall {
  Tensor q, k, v;
  std::vector<std::int64_t> key_starts;  ///< [R + 1]
  bool causal = true;                    ///< the last query of a request sees all its keys, each before it one less
  bool wants_lse = false;
};
struct MhaResult {
  Tensor out;  ///< [T, Nh, Dv]
  Tensor lse;  ///< f32 [T, Nh], logarithms in the base of what merges them; where they are wanted
};
/// What sizes of heads a kernel takes, where those of the configuration are others: "kv_lora_rank 512 and qk_rope_head_dim 64"; nullptr
/// where it takes them.
using SizesText = const char* (*)(const ModelConfig&);

struct MhaKernel {
  std::string_view name;
  bool sees_prefix = true;  ///< takes keys beyond the queries' own tokens
  bool gives_lse = true;
  bool in_f32 = true;
  SizesText wants_sizes = nullptr;
  MhaResult (*run)(const Pass&, const MhaCall&) = nullptr;
};
extern const MhaKernel ragged_kernel, triton_extend_mha_kernel, flashinfer_ragged_kernel;

/// Absorbed queries of the batch, whose tokens lie in the cache.
struct MqaCall {
  Tensor q_nope, q_pe;   ///< [T, Nh, Lkv], [T, Nh, Dr]
  Tensor k_nope, k_pe;   ///< [T, 1, Lkv], [T, 1, Dr]: the new tokens' rows
  Tensor selected = {};  ///< i32 [T, Ki], with sparse attention: the slots that each token attends to, -1 behind the last
};
struct MqaKernel {
  std::string_view name;
  bool in_f32 = false;
  bool reads_e4m3 = false;  ///< of the cache
  /// What of the batch it does not take; nullptr where it takes it.
  const char* (*refuses)(const Batch&) = nullptr;
  SizesText wants_sizes = nullptr;
  Tensor (*run)(const Pass&, const MqaCall&) = nullptr;
};
/// sgl-kernel `cutlass_mla_decode`; the second has each token of the batch as a request of its own.
extern const MqaKernel cutlass_decode_kernel, cutlass_rows_kernel;
extern const MqaKernel trtllm_decode_kernel, flash_mla_kernel, paged_mla_kernel, triton_decode_kernel, triton_extend_mqa_kernel,
    xqa_decode_kernel;
/// Of the slots that sparse attention's indexer chose: cutlass_mla_decode, to which pages of one token are the slots themselves; FlashMLA's
/// sparse prefill, upstream's `flashmla_sparse`, which it runs for decoding too; of scaled rows of fp8 FlashMLA's kernel, upstream's
/// `flashmla_kv`.
extern const MqaKernel selected_rows_kernel, flash_mla_sparse_rows_kernel, flash_mla_sparse_kernel;
/// Of these the setting's: by its cache, and of bf16 by its backend.
const MqaKernel& kernel_of_selected(const LayerSetting& setting);
/// Of kernels that are made for DeepSeek's latents.
const char* wants_deepseek_latents(const ModelConfig& config);
/// Rotates queries and new keys itself.
inline constexpr std::string_view fused_rope_kernel = "decode_attention_fwd_grouped_rope";

/// A backend of attention: upstream's dispatch, and what it calls.
struct AttentionBackend {
  std::string_view name;
  AttentionPath (*extends)(const Batch&);  ///< the way of a batch that is neither decoded nor verified
  const MhaKernel* mha;
  const MqaKernel *decode, *verify, *extend;
};
/// Throws Error (bad_option) for an unknown name; the empty one is cutlass_mla.
const AttentionBackend& attention_backend(std::string_view name);
/// "trtllm_mla, cutlass_mla..."
std::string attention_backend_names();

/// What was chosen for a batch.
struct AttentionChoice {
  AttentionPath path = AttentionPath::mla;
  const MhaKernel* mha = nullptr;
  const MqaKernel* mqa = nullptr;
  std::string_view asked = {};           ///< the kernel of attn_mqa that was asked for: this one, or one that it calls beside
  bool merges_in_base_2 = false;         ///< merge_state in the place of merge_state_v2
  bool quantizes_with_rope = false;      ///< mla_rope_quantize_fp8: queries and new rows become e4m3 where they are rotated
  bool multiplies_expanded_fp8 = false;  ///< expanded queries, keys and values are cast to e4m3

  bool expands() const { return mha != nullptr; }
  std::string_view kernel() const {
    if (!asked.empty()) return asked;
    return mha != nullptr ? mha->name : mqa != nullptr ? mqa->name : fused_rope_kernel;
  }
};

/// Kernels by name, for `--use`: those of attn_mha; those of attn_mqa and what they call beside.
std::vector<std::string_view> mha_kernel_names();
std::vector<std::string_view> mqa_kernel_names();
/// Why it does not run a batch (nullptr: some batch) of that setting; empty where it does.
std::string attn_mha_refusal(std::string_view kernel, const LayerSetting& setting, const Batch* batch);
std::string attn_mqa_refusal(std::string_view kernel, const LayerSetting& setting, const Batch* batch);

/// What attending takes: flops of every query with every key that it sees.
Work attending_to_keys(const Batch& batch, const MhaCall& call);
Work attending_to_latents(const Pass& pass, const Tensor& q_nope, const Tensor& q_pe);

}  // namespace dodona::model
