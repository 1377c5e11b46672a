#include "model/layer/attention/attention.h"

#include <algorithm>
#include <array>
#include <string>

#include "dodona/error.h"
#include "model/layer/kernel_use.h"

namespace dodona::model {
namespace {

struct PathEntry {
  AttentionPath path;
  std::string_view name;
  Tensor (*run)(const Pass&, const Tensor&);
};
constexpr std::array paths{
    PathEntry{AttentionPath::mha, "mha", attend_mha}, PathEntry{AttentionPath::mha_one_shot, "mha-one-shot", attend_mha_one_shot},
    PathEntry{AttentionPath::mha_chunked, "mha-chunked", attend_mha_chunked}, PathEntry{AttentionPath::mla, "mla", attend_mla},
    PathEntry{AttentionPath::mla_fused_rope, "mla-fused-rope", attend_mla_fused_rope}};

const PathEntry& entry_of(AttentionPath path) {
  for (const PathEntry& entry : paths)
    if (entry.path == path) return entry;
  throw std::logic_error("attention: no such path");
}

std::int64_t total(const Batch& batch) {
  return batch.prefixes() + batch.tokens();
}

/// Upstream's thresholds: a prefix below the first is not worth expanding, and beyond the second not all at once.
constexpr std::int64_t least_prefix = 8192, most_at_once = 131072;

AttentionPath in_one_shot_or_chunks(const Batch& batch) {
  if (batch.prefixes() > 0 && batch.prefixes() < least_prefix) return AttentionPath::mla;
  return total(batch) <= most_at_once ? AttentionPath::mha_one_shot : AttentionPath::mha_chunked;
}
AttentionPath in_chunks_beyond_threshold(const Batch& batch) {
  return batch.prefixes() > 0 && batch.prefixes() < least_prefix ? AttentionPath::mla : AttentionPath::mha_chunked;
}
AttentionPath always_in_chunks(const Batch&) {
  return AttentionPath::mha_chunked;
}
AttentionPath without_prefix(const Batch& batch) {
  return batch.prefixes() == 0 ? AttentionPath::mha : AttentionPath::mla;
}

/// What upstream's backends call; FA3's kernels are none of ours: those of their contract stand there, of fp8 none. flashmla prefills as
/// flashinfer does.
constexpr std::array backends{
    AttentionBackend{"cutlass_mla", in_chunks_beyond_threshold, &ragged_kernel, &cutlass_decode_kernel, &paged_mla_kernel,
                     &paged_mla_kernel},
    AttentionBackend{"trtllm_mla", always_in_chunks, &ragged_kernel, &trtllm_decode_kernel, &trtllm_decode_kernel, &paged_mla_kernel},
    AttentionBackend{"fa3", in_one_shot_or_chunks, &flashinfer_ragged_kernel, &paged_mla_kernel, &paged_mla_kernel, &paged_mla_kernel},
    AttentionBackend{"flashinfer", in_one_shot_or_chunks, &flashinfer_ragged_kernel, &paged_mla_kernel, &paged_mla_kernel,
                     &paged_mla_kernel},
    AttentionBackend{"flashmla", in_one_shot_or_chunks, &flashinfer_ragged_kernel, &flash_mla_kernel, &flash_mla_kernel, &paged_mla_kernel},
    AttentionBackend{"triton", without_prefix, &triton_extend_mha_kernel, &triton_decode_kernel, &triton_extend_mqa_kernel,
                     &triton_extend_mqa_kernel}};

constexpr std::array mha_kernels{&ragged_kernel, &flashinfer_ragged_kernel, &triton_extend_mha_kernel};

/// A kernel that attn_mqa may be asked for: the one that attends, and one that is called beside it.
struct MqaName {
  std::string_view name;
  const MqaKernel* kernel;  ///< nullptr: of path mla-fused-rope
};
constexpr std::array mqa_names{MqaName{"cutlass_mla_decode", &cutlass_rows_kernel},
                               MqaName{"cutlass_mla_get_workspace_size", &cutlass_rows_kernel},
                               MqaName{"trtllm_batch_decode_with_kv_cache_mla", &trtllm_decode_kernel},
                               MqaName{"concat_mla_absorb_q", &trtllm_decode_kernel},
                               MqaName{"flash_mla_with_kvcache", &flash_mla_kernel},
                               MqaName{"get_mla_metadata", &flash_mla_kernel},
                               MqaName{"batch_mla_paged_attention", &paged_mla_kernel},
                               MqaName{"decode_attention_fwd", &triton_decode_kernel},
                               MqaName{"extend_attention_fwd", &triton_extend_mqa_kernel},
                               MqaName{"xqa_batch_decode_with_kv_cache_mla", &xqa_decode_kernel},
                               MqaName{fused_rope_kernel, nullptr}};
const MqaName& mqa_named(std::string_view name) {
  return *std::find_if(mqa_names.begin(), mqa_names.end(), [&](const MqaName& each) { return each.name == name; });
}
const MhaKernel& mha_named(std::string_view name) {
  return **std::find_if(mha_kernels.begin(), mha_kernels.end(), [&](const MhaKernel* each) { return each->name == name; });
}

[[noreturn]] void refuse(const std::string& message, ErrorCode code = ErrorCode::bad_option) {
  throw Error(code, "", "path", message);
}

/// What of the setting a kernel of latents does not take.
const char* unread(const MqaKernel& kernel, const LayerSetting& setting) {
  if (setting.rounding == Rounding::off && !kernel.in_f32) return "activations in bf16";
  if (setting.kv_cache == KvCacheType::e4m3 && !kernel.reads_e4m3) return "a cache in bf16";
  return nullptr;
}

const MhaKernel& mha_kernel(const AttentionBackend& backend, AttentionPath path, const LayerSetting& setting, const Batch& batch) {
  const std::string_view asked = used_kernel(setting, "attn_mha");
  const MhaKernel& own = asked.empty() ? *backend.mha : mha_named(asked);
  const bool prefix = batch.prefixes() > 0;
  if (path == AttentionPath::mha && prefix)
    refuse("is mha, which sees no prefix, but requests have " + std::to_string(batch.prefixes()) + " cached tokens");
  if (setting.rounding == Rounding::off && !own.in_f32) return ragged_kernel;
  if (prefix && !(own.sees_prefix && own.gives_lse))
    refuse("is " + std::string(name(path)) + ", but " + std::string(backend.name) + " has no kernel for expanded prefixes",
           ErrorCode::unsupported);
  return own;
}

const MqaKernel& mqa_kernel(const AttentionBackend& backend, const LayerSetting& setting, const Batch& batch) {
  const std::string_view asked = used_kernel(setting, "attn_mqa");
  const MqaKernel& own = !asked.empty() && mqa_named(asked).kernel != nullptr ? *mqa_named(asked).kernel
                         : batch.forward == Forward::decode                   ? *backend.decode
                         : batch.forward == Forward::verify                   ? *backend.verify
                                                                              : *backend.extend;
  // In fp32 one kernel serves all.
  if (setting.rounding == Rounding::off && !own.in_f32) return cutlass_rows_kernel;
  const auto wants = [&](const char* option, const std::string& is, const char* what) {
    throw Error(ErrorCode::unsupported, "", option, "is " + is + ", but " + std::string(own.name) + " wants " + what);
  };
  if (const char* const what = unread(own, setting); what != nullptr)
    wants("kv_cache_dtype", "fp8_e4m3 behind backend " + std::string(backend.name), what);
  if (const char* const what = own.refuses(batch); what != nullptr) wants("backend", std::string(backend.name), what);
  return own;
}

/// "--use attn_mqa=extend_attention_fwd": kernels that take sizes, setting and batch, of those that either op may be asked for.
std::string kernels_that_fit(const ModelConfig& config, const LayerSetting& setting, const Batch& batch, bool latents) {
  std::string text;
  const auto add = [&](std::string_view op, std::string_view name, SizesText wants, const std::string& refusal) {
    if (refusal.empty() && wants(config) == nullptr)
      text += (text.empty() ? "" : ", ") + std::string("--use ") + std::string(op) + "=" + std::string(name);
  };
  for (const MqaName& each : mqa_names)
    if (latents && each.kernel != nullptr)
      add("attn_mqa", each.name, each.kernel->wants_sizes, attn_mqa_refusal(each.name, setting, &batch));
  for (const MhaKernel* each : mha_kernels)
    if (!latents) add("attn_mha", each->name, each->wants_sizes, attn_mha_refusal(each->name, setting, &batch));
  return text;
}

/// Sizes that the kernel at the end of the way does not take.
AttentionChoice sized(const AttentionChoice& choice, const ModelConfig& config, const LayerSetting& setting, const Batch& batch) {
  const SizesText wants = choice.mha != nullptr   ? choice.mha->wants_sizes
                          : choice.mqa != nullptr ? choice.mqa->wants_sizes
                                                  : wants_deepseek_latents;
  const char* const text = wants(config);
  if (text == nullptr) return choice;
  const auto number = [](std::int64_t size) { return std::to_string(size); };
  const std::string other = kernels_that_fit(config, setting, batch, choice.mha == nullptr),
                    sizes = choice.mha == nullptr ? number(config.kv_lora_rank) + " and " + number(config.qk_rope_head_dim)
                                                  : number(config.qk_head_dim()) + " and " + number(config.v_head_dim);
  refuse("is " + std::string(name(choice.path)) + ", whose kernel " + std::string(choice.kernel()) + " takes " + text + ", but " +
             config.name + " has " + sizes +
             (other.empty() ? "; no other kernel takes these here" : "; dodona layer can run them with " + other),
         ErrorCode::unsupported);
}

/// A cache of fp8 that nothing here reads as upstream does. Sparse attention has rows and kernels of its own.
void check_cache(const ModelConfig& config, const LayerSetting& setting, const AttentionBackend& backend) {
  if (setting.kv_cache != KvCacheType::e4m3) return;
  const auto no = [](const std::string& why) { throw Error(ErrorCode::unsupported, "", "kv_cache_dtype", "is fp8_e4m3, but " + why); };
  if (setting.rounding == Rounding::off) no("roundings are off");
  if (config.sparse()) return;
  if (backend.name == "fa3") no("fa3 multiplies e4m3, by kernels that are none of ours");
}

}  // namespace

std::string_view name(AttentionPath path) {
  return entry_of(path).name;
}

AttentionPath parse_path(std::string_view text) {
  for (const PathEntry& entry : paths)
    if (entry.name == text) return entry.path;
  refuse("is '" + std::string(text) + "', expected one of " + path_names());
}

std::string path_names() {
  std::string text;
  for (const PathEntry& entry : paths) text += (text.empty() ? "" : ", ") + std::string(entry.name);
  return text;
}

std::string attention_backend_names() {
  std::string text;
  for (const AttentionBackend& backend : backends) text += (text.empty() ? "" : ", ") + std::string(backend.name);
  return text;
}

const AttentionBackend& attention_backend(std::string_view name) {
  if (name.empty()) return backends.front();
  for (const AttentionBackend& backend : backends)
    if (backend.name == name) return backend;
  throw Error(ErrorCode::bad_option, "", "backend", "is '" + std::string(name) + "', expected one of " + attention_backend_names());
}

const MqaKernel& kernel_of_selected(const LayerSetting& setting) {
  if (setting.kv_cache == KvCacheType::e4m3) return flash_mla_sparse_kernel;
  return setting.backend == "flashmla" ? flash_mla_sparse_rows_kernel : selected_rows_kernel;
}

AttentionPath attention_path(const ModelConfig& config, const LayerSetting& setting, const Batch& batch) {
  if (setting.path != AttentionPath::by_backend) return setting.path;
  if (used_kernel(setting, "attn_mqa") == fused_rope_kernel) return AttentionPath::mla_fused_rope;
  if (config.sparse() || batch.forward != Forward::extend) return AttentionPath::mla;
  return attention_backend(setting.backend).extends(batch);
}

AttentionChoice choose_attention(const ModelConfig& config, const LayerSetting& setting, const Batch& batch) {
  batch.validate_tokens();
  const AttentionBackend& backend = attention_backend(setting.backend);
  check_cache(config, setting, backend);
  const AttentionPath path = attention_path(config, setting, batch);
  const std::string named(name(path));
  if (config.sparse() && batch.trees())
    refuse("is mla, but the indexer of sparse attention chooses among the tokens of a chain, not of a draft tree", ErrorCode::unsupported);
  if (batch.trees() && path != AttentionPath::mla)
    refuse("is " + named + ", which knows no draft trees: expected mla", ErrorCode::unsupported);
  if (config.sparse() && path != AttentionPath::mla)
    refuse("is " + named + ", but the indexer of sparse attention chooses among latents: expected mla");
  const bool e4m3 = setting.kv_cache == KvCacheType::e4m3;
  if (config.sparse()) return sized({.path = path, .mqa = &kernel_of_selected(setting)}, config, setting, batch);
  AttentionChoice choice{.path = path};
  if (path == AttentionPath::mla) {
    choice.mqa = &mqa_kernel(backend, setting, batch);
    choice.asked = used_kernel(setting, "attn_mqa");
    choice.quantizes_with_rope = e4m3 && choice.mqa == &trtllm_decode_kernel;
    return sized(choice, config, setting, batch);
  }
  if (path != AttentionPath::mla_fused_rope) {
    choice.mha = &mha_kernel(backend, path, setting, batch);
    choice.merges_in_base_2 = used_kernel(setting, "merge_state_v2") == "merge_state";
    choice.multiplies_expanded_fp8 = e4m3 && backend.name == "trtllm_mla" && choice.mha == &ragged_kernel;
    return sized(choice, config, setting, batch);
  }
  if (!batch.one_token_each()) refuse("is mla-fused-rope, whose kernel takes one new token of each request");
  if (setting.rounding == Rounding::off)
    refuse("is mla-fused-rope, whose kernel rotates in bf16, but roundings are off", ErrorCode::unsupported);
  if (e4m3) refuse("is mla-fused-rope, whose kernel wants a cache in bf16", ErrorCode::unsupported);
  return sized(choice, config, setting, batch);
}

std::vector<std::string_view> mha_kernel_names() {
  std::vector<std::string_view> names;
  names.reserve(std::size(mha_kernels));
  for (const MhaKernel* kernel : mha_kernels) names.push_back(kernel->name);
  return names;
}
std::vector<std::string_view> mqa_kernel_names() {
  std::vector<std::string_view> names;
  names.reserve(std::size(mqa_names));
  for (const MqaName& each : mqa_names) names.push_back(each.name);
  return names;
}

std::string attn_mha_refusal(std::string_view kernel, const LayerSetting& setting, const Batch* batch) {
  const MhaKernel& own = mha_named(kernel);
  if (setting.rounding == Rounding::off && !own.in_f32) return "roundings are off";
  if (batch != nullptr && batch->prefixes() > 0 && !(own.sees_prefix && own.gives_lse))
    return "requests have a prefix, which it does not see";
  return {};
}

std::string attn_mqa_refusal(std::string_view kernel, const LayerSetting& setting, const Batch* batch) {
  const MqaName& named = mqa_named(kernel);
  if (named.kernel == nullptr) {
    if (setting.rounding == Rounding::off) return "roundings are off";
    if (setting.kv_cache == KvCacheType::e4m3) return "it wants a cache in bf16";
    if (setting.path != AttentionPath::by_backend && setting.path != AttentionPath::mla_fused_rope) return "it is path mla-fused-rope's";
    return batch != nullptr && !batch->one_token_each() ? "it wants one new token of each request" : "";
  }
  const char* what = unread(*named.kernel, setting);
  if (what == nullptr && batch != nullptr) what = named.kernel->refuses(*batch);
  return what == nullptr ? std::string() : "it wants " + std::string(what);
}

Tensor self_attn(const Pass& p, const Tensor& x) {
  p.trace.enter("self.self_attn()");
  const Trace::Scope attention(p.trace);
  Tensor out = entry_of(p.choices.attention.path).run(p, x);
  p.trace.gives({{"output", out}});
  return out;
}

}  // namespace dodona::model
