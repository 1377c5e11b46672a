#include "model/layer/attention/indexer.h"

#include <algorithm>
#include <cmath>

#include "core/define.h"
#include "model/layer/attention/rope_table.h"
#include "model/layer/values.h"
#include "ops/attention/cutlass_mla_decode.h"
#include "ops/gemm/linear.h"
#include "ops/normalization/layernorm.h"
#include "ops/nsa/act_quant.h"
#include "ops/nsa/fast_topk_transform_fused.h"
#include "ops/nsa/fp8_paged_mqa_logits.h"
#include "ops/nsa/hadamard_transform.h"
#include "ops/nsa/set_index_k_scale_buffer.h"
#include "ops/rope/apply_rope_with_cos_sin_cache_inplace.h"
#include "ops/sums/cublas_f32.h"

namespace dodona::model {
namespace {

constexpr std::int64_t width = 128;
constexpr double norm_eps = 1e-6;

/// 0, 1 ... T - 1: tables hold the tokens' rows alone.
Tensor rows_in_order(std::int64_t tokens) {
  Tensor rows(DType::i64, {tokens});
  for (std::int64_t t = 0; t < tokens; ++t) rows.as<std::int64_t>()[t] = t;
  return rows;
}

/// Rotates the heads of q and k where they lie, then transforms them.
void rotate(const ModelConfig& config, const IndexerStep& step, Indexed& indexed, const Exec& exec) {
  const std::int64_t tokens = step.x.size(0);
  ops::run(ops::ApplyRopeWithCosSinCacheInplace{.positions = rows_in_order(tokens),
                                                .query = indexed.q,
                                                .key = indexed.k.reshape({tokens, 1, width}),
                                                .cos_sin_cache = rope_table_rows(config, step.positions),
                                                .head_size = width,
                                                .is_neox = true},
           exec);
  const double scale = 1.0 / std::sqrt(static_cast<double>(width));
  indexed.q = ops::run(ops::HadamardTransform{{.x = indexed.q, .scale = scale}}, exec).out;
  indexed.k = ops::run(ops::HadamardTransform{{.x = indexed.k, .scale = scale}}, exec).out;
}

/// fl32(fl32(fl32(w * heads^-0.5) * q_scale) * 128^-0.5).
void scale_weights(const Tensor& weights, const Tensor& q_scales) {
  const auto heads = static_cast<float>(1.0 / std::sqrt(static_cast<double>(weights.size(1))));
  const auto softmax = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
  for (std::int64_t i = 0; i < weights.elements(); ++i)
    weights.as<float>()[i] = weights.as<float>()[i] * heads * q_scales.as<const float>()[i] * softmax;
}

}  // namespace

bool head_weights_are_known(Mode gpu, std::int64_t tokens, std::int64_t heads, std::int64_t hidden) {
  return gpu == Mode::hopper && ops::cublas_f32_is_known(tokens, heads, hidden);
}

Indexed index_tokens(const ModelConfig& config, const IndexerWeights& weights, const IndexerStep& step, const Tensor& index_k,
                     const Exec& exec) {
  const std::int64_t tokens = step.x.size(0), heads = weights.weights_proj.size(0);
  Indexed indexed;
  indexed.q = weights.wq_b(step.q_lora, exec).reshape({tokens, heads, width});
  indexed.k =
      ops::run(ops::Layernorm{.input = weights.wk(step.x, exec), .gemma = weights.k_norm, .beta = weights.k_norm_bias, .eps = norm_eps},
               exec)
          .out;
  rotate(config, step, indexed, exec);

  const ops::ActQuant q = ops::run(ops::ActQuant{.x = indexed.q, .scale_fmt = "ue8m0"}, exec);
  const ops::ActQuant k = ops::run(ops::ActQuant{.x = indexed.k, .scale_fmt = "ue8m0"}, exec);
  indexed.q_codes = q.y, indexed.q_scales = q.s, indexed.k_codes = k.y, indexed.k_scales = k.s;
  ops::run(ops::SetIndexKScaleBuffer{.buf = index_k, .loc = step.slots, .index_k = k.y, .index_k_scale = k.s}, exec);

  // Where what a GPU gives in fp32 is not known, runs in its mode have all tokens chosen: scores decide nothing there.
  Exec scoring = exec;
  if (of_a_gpu(exec.mode) && !head_weights_are_known(exec.mode, tokens, heads, step.x.size(1))) scoring.mode = Mode::golden;
  indexed.head_weights =
      ops::run(ops::Linear{.input = widened(step.x), .weight = weights.weights_proj, .out_dtype = DType::f32}, scoring).output;
  scale_weights(indexed.head_weights, indexed.q_scales);

  Tensor lengths(DType::i32, {tokens}), starts(DType::i32, {tokens + 1});
  for (std::int64_t t = 0; t < tokens; ++t)
    lengths.as<std::int32_t>()[t] = static_cast<std::int32_t>(step.positions[static_cast<std::size_t>(t)] + 1);
  const std::int64_t columns = ops::Fp8PagedMqaLogits::page * step.pages.size(1);
  indexed.logits =
      ops::run(ops::Fp8PagedMqaLogits{.q = q.y.reshape({tokens, 1, heads, width}),
                                      .fused_kv_cache = index_k.reshape({index_k.size(0), ops::Fp8PagedMqaLogits::page, 1, width + 4}),
                                      .weights = indexed.head_weights,
                                      .context_lens = lengths,
                                      .block_table = step.pages,
                                      .max_context_len = columns},
               exec)
          .logits;
  ops::FastTopkTransformFused topk;
  topk.score = indexed.logits;
  topk.lengths = lengths;
  topk.page_table_size_1 = step.token_slots;
  topk.cu_seqlens_q = starts;
  indexed.selected = ops::run(topk, exec).dst_page_table;
  return indexed;
}

Tensor attend_selected(const Tensor& q_nope, const Tensor& q_pe, const Tensor& kv_buffer, const Tensor& selected, double softmax_scale,
                       const Exec& exec) {
  Tensor lengths(DType::i32, {selected.size(0)});
  for (std::int64_t t = 0; t < selected.size(0); ++t) {
    const auto* const row = selected.as<const std::int32_t>() + t * selected.size(1);
    lengths.as<std::int32_t>()[t] = static_cast<std::int32_t>(std::find(row, row + selected.size(1), -1) - row);
  }
  // Pages of one token each are the chosen slots themselves.
  return ops::run(ops::CutlassMlaDecode{.q_nope = q_nope,
                                        .q_pe = q_pe,
                                        .kv_c_and_k_pe_cache = kv_buffer,
                                        .seq_lens = lengths,
                                        .page_table = selected,
                                        .workspace = Tensor(DType::u8, {0}),
                                        .sm_scale = softmax_scale},
                  exec)
      .out;
}

}  // namespace dodona::model
