// What all paths of attention begin with.
#pragma once

#include "model/layer/pass.h"

namespace dodona::model {

struct Latents {
  Tensor q;       ///< [T, Nh, Dq]
  Tensor q_lora;  ///< [T, Lq], behind its norm; with a low rank
  Tensor kv_a;    ///< [T, Lkv], behind its norm
  Tensor k_pe;    ///< [T, 1, Dr], a view of the buffer that the projection wrote
};

/// From x [T, H] to q and the latents; `part` is the book's.
Latents project_latents(const Pass& pass, Part part, const Tensor& x);
/// Rotates q_pe [T, Nh, Dr] and k_pe where they lie.
void rotary_emb(const Pass& pass, Part part, const Tensor& q_pe, const Tensor& k_pe);
/// With a cache of e4m3 that trtllm_mla's kernels read: what goes on as queries and as rows.
struct QuantizedParts {
  Tensor q_nope, q_pe;  ///< e4m3 [T, Nh, Lkv], [T, Nh, Dr], columns of one tensor
  Tensor k_nope, k_pe;  ///< e4m3 [T, 1, Lkv], [T, 1, Dr]
};
QuantizedParts rotary_emb_in_fp8(const Pass& pass, Part part, const Tensor& q_nope, const Tensor& q_pe, const Tensor& k_nope,
                                 const Tensor& k_pe);
/// Stores the new tokens' rows, cast where the cache is of another type, k_nope and k_pe [T, 1, ...].
void set_mla_kv_buffer(const Pass& pass, const Tensor& k_nope, const Tensor& k_pe);
Tensor o_proj(const Pass& pass, Part part, const Tensor& o);

/// x [T, n] as [T, 1, n], whatever its row stride.
Tensor one_head(const Tensor& x);

}  // namespace dodona::model
