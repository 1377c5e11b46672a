// Multi-head latent attention of a batch.
#pragma once

#include "model/layer/attention/kernels.h"
#include "model/layer/pass.h"

namespace dodona::model {

/// x [T, H], normalised, to [T, H]; writes the new tokens' rows to the cache. `self.self_attn()` of the execution graph.
Tensor self_attn(const Pass& pass, const Tensor& x);

/// Which way the batch goes, whether or not it can: by setting.path, or a kernel that has a way of its own, else as upstream dispatches.
/// Throws Error (bad_option) for an unknown backend.
AttentionPath attention_path(const ModelConfig& config, const LayerSetting& setting, const Batch& batch);

/// Which way the batch goes, and with which kernels: by setting.path, else as upstream dispatches for setting.backend. Throws Error
/// (bad_option for an unknown backend and a path that does not take the batch, unsupported where the backend has no kernel for it).
AttentionChoice choose_attention(const ModelConfig& config, const LayerSetting& setting, const Batch& batch);

/// The ways.
Tensor attend_mha(const Pass& pass, const Tensor& x);
Tensor attend_mha_one_shot(const Pass& pass, const Tensor& x);
Tensor attend_mha_chunked(const Pass& pass, const Tensor& x);
Tensor attend_mla(const Pass& pass, const Tensor& x);
Tensor attend_mla_fused_rope(const Pass& pass, const Tensor& x);

}  // namespace dodona::model
