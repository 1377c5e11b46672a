// The indexer of sparse attention (DeepSeek V3.2): which cached tokens each new
// token attends to, and attention over those alone.
#pragma once

#include <cstdint>
#include <vector>

#include "dodona/exec.h"
#include "dodona/tensor.h"
#include "model/config/config.h"
#include "model/layer/linear/method.h"

namespace dodona::model {

struct IndexerWeights {
  Projection wq_b;      ///< [heads * 128, q_lora_rank]
  Projection wk;        ///< [128, hidden]
  Tensor k_norm;        ///< f32 [128], the layer norm's weight
  Tensor k_norm_bias;   ///< f32 [128]
  Tensor weights_proj;  ///< bf16 [heads, hidden], multiplied in fp32
};

/// New tokens, one row each whatever requests they belong to: a request's
/// tokens stand with their own positions.
struct IndexerStep {
  Tensor x;       ///< bf16 [T, hidden], what attention takes
  Tensor q_lora;  ///< bf16 [T, q_lora_rank], behind its norm
  std::vector<std::int64_t> positions;
  Tensor slots;        ///< i64 [T]: where the tokens' keys go
  Tensor pages;        ///< i32 [T, W]: pages of 64 slots of the token's request
  Tensor token_slots;  ///< i32 [T, n]: slots of the tokens of its request
};

/// What is chosen, and what led to it.
struct Indexed {
  Tensor q, k;          ///< bf16 [T, heads, 128] and [T, 128], rotated
  Tensor q_codes;       ///< e4m3 [T, heads, 128]
  Tensor q_scales;      ///< f32 [T, heads, 1]
  Tensor k_codes;       ///< e4m3 [T, 128]
  Tensor k_scales;      ///< f32 [T, 1]
  Tensor head_weights;  ///< f32 [T, heads]
  Tensor logits;        ///< f32 [T, 64 W]; what is behind a token's position is not said
  Tensor selected;      ///< i32 [T, 2048]: slots of the chosen tokens, then -1
};

/// Whether a GPU's bits of weights_proj, an fp32 product of cuBLAS's, are known for so many new tokens.
bool head_weights_are_known(Mode gpu, std::int64_t tokens, std::int64_t heads, std::int64_t hidden);

/// q and k from their projections, k normalised; rope (pairs of halves) over
/// the first qk_rope_head_dim of each head; the Hadamard transform; e4m3 with
/// scales that are powers of two; keys stored in `index_k` (u8 [pages, 8448])
/// before scoring, so that a token may choose itself; weights of heads times
/// the queries' scales; scores of positions 0 to the token's own; the 2048
/// largest, by way of the table. Source: sglang
/// `nsa_indexer.Indexer.forward_cuda`, for decode and for tokens that are
/// verified, with one row for each token.
Indexed index_tokens(const ModelConfig& config, const IndexerWeights& weights, const IndexerStep& step, const Tensor& index_k,
                     const Exec& exec);

/// Absorbed attention over the chosen tokens: q_nope [T, Nh, 512] and q_pe [T,
/// Nh, 64] against those rows of `kv_buffer` [slots, 1, 576]. Gives [T, Nh,
/// 512].
Tensor attend_selected(const Tensor& q_nope, const Tensor& q_pe, const Tensor& kv_buffer, const Tensor& selected, double softmax_scale,
                       const Exec& exec);

}  // namespace dodona::model
