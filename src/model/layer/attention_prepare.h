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
/// Stores the new tokens' rows, k_nope and k_pe [T, 1, ...].
void set_mla_kv_buffer(const Pass& pass, const Tensor& k_nope, const Tensor& k_pe);
Tensor o_proj(const Pass& pass, Part part, const Tensor& o);

/// x [T, n] as [T, 1, n], whatever its row stride.
Tensor one_head(const Tensor& x);

}  // namespace dodona::model
