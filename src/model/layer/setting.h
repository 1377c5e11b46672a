// How a layer is run: what its choices follow from, beside the configuration and the batch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dodona/dtype.h"

namespace dodona::model {

/// Whether what passes from op to op is rounded to bf16, as on the GPU, or stays in fp32: a way to compare a composition with another
/// implementation without the noise of the roundings. With roundings off, quantized weights keep their values and activations are not
/// quantized.
enum class Rounding { bf16, off };
inline DType activation_type(Rounding rounding) {
  return rounding == Rounding::bf16 ? DType::bf16 : DType::f32;
}

/// How the residual meets the norms: fused_add_rmsnorm normalizes the fp32 sum (one device, or tensor parallelism); with pre-added
/// residuals the sum is rounded first, then normalized by rmsnorm (data-parallel attention). Source: sglang `LayerCommunicator`.
enum class Residual { fused, pre_added };

/// In which form the routed experts' weights are multiplied: as they are stored, or as blocks of fp8 made of that.
enum class ExpertWeights { stored, fp8 };

/// Ways through attention, as upstream's AttnForwardMethod names them.
enum class AttentionPath {
  by_backend,      ///< upstream's own choice for the backend and the batch
  mha,             ///< keys and values expanded from the new tokens' latents; no request has a prefix
  mha_one_shot,    ///< expanded from all cached tokens, attended to at once
  mha_chunked,     ///< new tokens first, then the prefix in chunks, merged by their log-sum-exps
  mla,             ///< kv_b_proj absorbed into queries and outputs, attention over the latents
  mla_fused_rope,  ///< the same for one new token each, rotated by the attention kernel
};

/// The element type of the cache of latents. e4m3: rows are cast as they are stored, without a scale; those of sparse attention have
/// one for each 128 elements, and the key part in bf16.
enum class KvCacheType { activations, e4m3 };

/// A model op's kernel by name, in the place of the one that configuration, backend and batch lead to; see kernel_use.h.
struct KernelUse {
  std::string op, kernel;     ///< "q_b_proj", "int8_scaled_mm"
  std::string asked_of = {};  ///< another op's name by which it was asked for: "attn_mha" of what merges its chunks

  /// As it was asked for: "q_b_proj=int8_scaled_mm".
  std::string text() const { return (asked_of.empty() ? op : asked_of) + "=" + kernel; }
};

struct LayerSetting {
  std::int64_t layer = 0;
  Rounding rounding = Rounding::bf16;
  Residual residual = Residual::fused;
  bool fused_shared = false;  ///< the shared expert is expert E, chosen by every token: K + 1 columns, E + 1 experts
  std::string experts = {};   ///< which backend runs the routed experts; empty: the first that takes their weights
  ExpertWeights expert_weights = ExpertWeights::stored;
  std::string backend = {};  ///< of attention, see attention_backend.h; empty: cutlass_mla
  AttentionPath path = AttentionPath::by_backend;
  /// The order in which upstream starts two streams: the shared expert, then router and experts. The sum is of the same two terms.
  bool dual_stream = false;
  std::int64_t prefix_chunk = 131072;  ///< cached tokens of all requests that one chunk of mha_chunked expands
  bool low_latency = true;             ///< kernels for few tokens run where there are few; their results differ from those of the others
  /// Activations that bmm_fp8 multiplies have a scale for each token; else upstream's one for the whole call, so that what a token gives
  /// depends on those that go with it.
  bool scale_by_token = false;
  KvCacheType kv_cache = KvCacheType::activations;
  std::vector<KernelUse> use = {};  ///< as apply_uses leaves them
  /// Of ranks that share heads and columns: what the layer gives as `hidden` is this rank's term, which the first norm of the next layer
  /// adds to the others; see norms_over_layers.
  bool hands_on_terms = false;

  DType cache_type() const { return kv_cache == KvCacheType::e4m3 ? DType::f8_e4m3 : activation_type(rounding); }
};

/// "mha", "mha-one-shot"...
std::string_view name(AttentionPath path);
/// "mha-one-shot" and the like, as the command line has them; "by_backend" is no name. Throws Error (bad_option).
AttentionPath parse_path(std::string_view text);
/// "mha, mha-one-shot..."
std::string path_names();

}  // namespace dodona::model
