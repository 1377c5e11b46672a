#include "model/layer/attention.h"

#include <array>
#include <string>

#include "dodona/error.h"

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

/// What upstream's backends call; FA3's kernels, and FlashInfer's for keys of 192, are none of ours: those of their contract stand there.
constexpr std::array backends{
    AttentionBackend{"cutlass_mla", in_chunks_beyond_threshold, &ragged_kernel, &cutlass_decode_kernel, &paged_mla_kernel,
                     &paged_mla_kernel},
    AttentionBackend{"trtllm_mla", always_in_chunks, &ragged_kernel, &trtllm_decode_kernel, &trtllm_decode_kernel, &paged_mla_kernel},
    AttentionBackend{"fa3", in_one_shot_or_chunks, &ragged_kernel, &paged_mla_kernel, &paged_mla_kernel, &paged_mla_kernel},
    AttentionBackend{"flashinfer", in_one_shot_or_chunks, &ragged_kernel, &paged_mla_kernel, &paged_mla_kernel, &paged_mla_kernel},
    AttentionBackend{"flashmla", in_one_shot_or_chunks, &ragged_kernel, &flash_mla_kernel, &flash_mla_kernel, &paged_mla_kernel},
    AttentionBackend{"triton", without_prefix, &triton_extend_mha_kernel, &triton_decode_kernel, &triton_extend_mqa_kernel,
                     &triton_extend_mqa_kernel}};

[[noreturn]] void refuse(const std::string& message, ErrorCode code = ErrorCode::bad_option) {
  throw Error(code, "", "path", message);
}

AttentionPath path_of(const ModelConfig& config, const LayerSetting& setting, const AttentionBackend& backend, const Batch& batch) {
  if (setting.path != AttentionPath::by_backend) return setting.path;
  if (config.sparse() || batch.forward != Forward::extend) return AttentionPath::mla;
  return backend.extends(batch);
}

const MhaKernel& mha_kernel(const AttentionBackend& backend, AttentionPath path, Rounding rounding, const Batch& batch) {
  const MhaKernel& own = *backend.mha;
  const bool prefix = batch.prefixes() > 0;
  if (path == AttentionPath::mha && prefix)
    refuse("is mha, which sees no prefix, but requests have " + std::to_string(batch.prefixes()) + " cached tokens");
  if (rounding == Rounding::off && !own.in_f32) return ragged_kernel;
  if (prefix && !(own.sees_prefix && own.gives_lse))
    refuse("is " + std::string(name(path)) + ", but " + std::string(backend.name) + " has no kernel for expanded prefixes",
           ErrorCode::unsupported);
  return own;
}

const MqaKernel& mqa_kernel(const AttentionBackend& backend, Rounding rounding, const Batch& batch) {
  const MqaKernel& own = *(batch.forward == Forward::decode   ? backend.decode
                           : batch.forward == Forward::verify ? backend.verify
                                                              : backend.extend);
  // In fp32 one kernel serves all.
  if (rounding == Rounding::off && !own.in_f32) return cutlass_rows_kernel;
  if (const char* const what = own.refuses(batch); what != nullptr)
    refuse("is mla, but " + std::string(own.name) + " of " + std::string(backend.name) + " wants " + what, ErrorCode::unsupported);
  return own;
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

AttentionChoice choose_attention(const ModelConfig& config, const LayerSetting& setting, const Batch& batch) {
  batch.validate_tokens();
  const AttentionBackend& backend = attention_backend(setting.backend);
  const AttentionPath path = path_of(config, setting, backend, batch);
  const std::string named(name(path));
  if (config.sparse() && path != AttentionPath::mla)
    refuse("is " + named + ", but the indexer of sparse attention chooses among latents: expected mla");
  // What the indexer chose is attended to token by token, whatever the backend.
  if (config.sparse()) return {.path = path, .mqa = &cutlass_rows_kernel};
  if (path == AttentionPath::mla) return {.path = path, .mqa = &mqa_kernel(backend, setting.rounding, batch)};
  if (path != AttentionPath::mla_fused_rope) return {.path = path, .mha = &mha_kernel(backend, path, setting.rounding, batch)};
  if (!batch.one_token_each()) refuse("is mla-fused-rope, whose kernel takes one new token of each request");
  if (setting.rounding == Rounding::off)
    refuse("is mla-fused-rope, whose kernel rotates in bf16, but roundings are off", ErrorCode::unsupported);
  return {.path = path};
}

Tensor self_attn(const Pass& p, const Tensor& x) {
  p.trace.enter("self.self_attn()");
  const Trace::Scope attention(p.trace);
  Tensor out = entry_of(p.choices.attention.path).run(p, x);
  p.trace.gives({{"output", out}});
  return out;
}

}  // namespace dodona::model
