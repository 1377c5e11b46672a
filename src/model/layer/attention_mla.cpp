// MLA in its absorbed form.
#include <algorithm>

#include "core/define.h"
#include "model/layer/attention.h"
#include "model/layer/rope_table.h"
#include "model/weights/without_memory.h"
#include "ops/attention/cutlass_mla_decode.h"
#include "ops/kv_cache/set_mla_kv_buffer.h"
#include "ops/rope/apply_rope_with_cos_sin_cache_inplace.h"
#include "ops/softmax/mla_decode.h"

namespace dodona::model {
namespace {

constexpr Part part = Part::attention;

Tensor fused_qkv_a_proj_with_mqa(const Pass& p, const Tensor& x) {
  const Projection& weight = p.weights.fused_qkv_a;
  return p.trace.run1({.part = part,
                       .name = "self.fused_qkv_a_proj_with_mqa()",
                       .inputs = {{"input", x.shape()}},
                       .outputs = {{"output", x.dtype()}},
                       .work = weight.work(p.tokens(), x.dtype())},
                      [&] {
                        const LowLatencyKernel* const kernel = p.choices.fused_qkv_a;
                        return kernel != nullptr ? kernel->apply(weight, x, p.exec()) : weight(x, p.exec());
                      });
}

struct Latents {
  Tensor q;       ///< [T, Nh, Dq]
  Tensor q_lora;  ///< [T, Lq], behind its norm; with a low rank
  Tensor kv_a;    ///< [T, Lkv], before its norm
  Tensor k_pe;    ///< [T, 1, Dr]
};

Latents project(const Pass& p, const Tensor& x) {
  const ModelConfig& c = p.config();
  Latents result;
  Tensor latent, q;
  if (c.q_lora_rank > 0) {
    const Tensor qkv = fused_qkv_a_proj_with_mqa(p, x);
    latent = qkv.slice(1, c.q_lora_rank, qkv.size(1));
    const Tensor q_a = p.rmsnorm(part, "self.q_a_layernorm()", qkv.slice(1, 0, c.q_lora_rank), p.weights.q_a_layernorm);
    q = p.project(part, "self.q_b_proj()", p.weights.q_b, q_a);
    result.q_lora = q_a;
  } else {
    q = p.project(part, "self.q_proj()", p.weights.q_proj, x);
    latent = p.project(part, "self.kv_a_proj_with_mqa()", p.weights.kv_a, x);
  }
  result.q = q.reshape({p.tokens(), c.num_attention_heads, c.qk_head_dim()});
  result.kv_a = latent.slice(1, 0, c.kv_lora_rank);
  const Tensor k_pe = latent.slice(1, c.kv_lora_rank, c.latent_dim());
  // [T, Dr] seen as [T, 1, Dr], with the row stride of the buffer that it lies in.
  result.k_pe =
      Tensor(k_pe.owner(), k_pe.data(), k_pe.dtype(), {p.tokens(), 1, c.qk_rope_head_dim}, {k_pe.stride(0), c.qk_rope_head_dim, 1}, true);
  return result;
}

/// One of the two products with a half of kv_b_proj: `left` [T, Nh, K] to [T, Nh, N].
struct Absorbed {
  std::string_view note, left, right, out;  ///< the book's words
};
Tensor absorb(const Pass& p, const Absorbed& names, const Tensor& x, const Tensor& right) {
  const Tensor left = x.transpose(0, 1);
  const std::int64_t heads = right.size(0), columns = right.size(2);
  Work work = reading({left, right}, 2.0 * static_cast<double>(heads * p.tokens() * right.size(1) * columns));
  work.weight_bytes = bytes_of(right);
  return p.trace.run1({.part = part,
                       .name = "bmm_fp8()",
                       .note = names.note,
                       .inputs = {{names.left, left.shape()}, {names.right, right.shape()}},
                       .outputs = {{names.out, x.dtype()}},
                       .work = work},
                      [&] {
                        const Tensor out(x.dtype(), {p.tokens(), heads, columns});
                        p.weights.absorb.multiply(left, right, out.transpose(0, 1), p.exec());
                        return out;
                      });
}

/// Rotates q_pe and k_pe where they lie. The op's table holds only the rows that the batch needs: row t for token t.
void rotary_emb(const Pass& p, const Tensor& q_pe, const Tensor& k_pe) {
  const Tensor table = without_memory(DType::f32, {p.tokens(), p.config().qk_rope_head_dim});
  p.trace.run({.part = part,
               .name = "self.rotary_emb()",
               .inputs = {{"q_pe", q_pe.shape()}, {"k_pe", k_pe.shape()}},
               .outputs = {{"q_pe", q_pe.dtype()}, {"k_pe", k_pe.dtype()}},
               .work = reading({q_pe, k_pe, table})},
              [&]() -> std::vector<Tensor> {
                Tensor rows(DType::i64, {p.tokens()});
                for (std::int64_t t = 0; t < p.tokens(); ++t) rows.as<std::int64_t>()[t] = t;
                ops::run(ops::ApplyRopeWithCosSinCacheInplace{.positions = rows,
                                                              .query = q_pe,
                                                              .key = k_pe,
                                                              .cos_sin_cache = rope_table_rows(p.config(), p.batch.positions),
                                                              .head_size = p.config().qk_rope_head_dim,
                                                              .is_neox = false},
                         p.exec());
                return {q_pe, k_pe};
              });
}

void set_mla_kv_buffer(const Pass& p, const Tensor& k_nope, const Tensor& k_pe) {
  p.trace.run({.part = Part::kv_cache,
               .name = "set_mla_kv_buffer()",
               .inputs = {{"k_nope", k_nope.shape()}, {"k_pe", k_pe.shape()}, {"kv_buffer", p.cache.buffer().shape()}},
               .outputs = {{"k_nope", k_nope.dtype(), k_nope.shape()}, {"k_pe", k_pe.dtype(), k_pe.shape()}},
               .work = reading({k_nope, k_pe})},
              [&]() -> std::vector<Tensor> {
                ops::run(
                    ops::SetMlaKvBuffer{.kv_buffer = p.cache.buffer(), .loc = p.batch.slots_tensor(), .k_nope = k_nope, .k_rope = k_pe},
                    p.exec());
                return {k_nope, k_pe};
              });
}

/// Slots of the tokens that are attended to, [T, Ki].
Tensor indexer(const Pass& p, const Tensor& x, const Tensor& q_lora) {
  const IndexerWeights& weights = p.weights.indexer;
  const ModelConfig& c = p.config();
  double keys = 0;
  for (const std::int64_t length : p.batch.lengths) keys += static_cast<double>(length);
  Work work = weights.wq_b.work(p.tokens(), x.dtype());
  work += weights.wk.work(p.tokens(), x.dtype());
  work += reading({weights.weights_proj}, 2.0 * static_cast<double>(p.tokens() * weights.weights_proj.elements()));
  work.weight_bytes += bytes_of(weights.weights_proj);
  work.bytes += keys * static_cast<double>(c.index_head_dim + 4);
  work.flops += 2 * keys * static_cast<double>(c.index_n_heads * (c.index_head_dim + 1));
  return p.trace.run1({.part = part,
                       .name = "self.indexer()",
                       .inputs = {{"x", x.shape()}, {"q_lora", q_lora.shape()}},
                       .outputs = {{"output", DType::i32}},
                       .work = work},
                      [&] {
                        const IndexerStep step{.x = x,
                                               .q_lora = q_lora,
                                               .positions = p.batch.positions,
                                               .slots = p.batch.slots_tensor(),
                                               .pages = p.cache.index_pages(p.batch.requests),
                                               .token_slots = p.cache.token_slots(p.batch.requests)};
                        return index_tokens(c, weights, step, p.cache.index_k(), p.exec()).selected;
                      });
}

/// What the op itself says of its work.
Work attending(const Pass& p, const Tensor& q_nope) {
  Tensor lengths = p.batch.lengths_tensor();
  if (p.config().sparse())
    for (std::int64_t r = 0; r < lengths.elements(); ++r)
      lengths.as<std::int32_t>()[r] = std::min(lengths.as<std::int32_t>()[r], static_cast<std::int32_t>(p.config().index_topk));
  const std::int64_t heads = q_nope.size(1), rope = p.config().qk_rope_head_dim;
  const ops::MlaAttention call({.q_nope = without_memory(q_nope.dtype(), {p.tokens(), 1, heads, q_nope.size(2)}),
                                .q_pe = without_memory(q_nope.dtype(), {p.tokens(), 1, heads, rope}),
                                .cache = p.cache.pages(),
                                .seq_lens = lengths});
  return {.bytes = call.bytes_read(), .flops = ops::attention_flops(call)};
}

/// `selected` is defined with sparse attention.
Tensor attn_mqa(const Pass& p, const Tensor& q_nope, const Tensor& q_pe, const Tensor& selected) {
  const ops::CutlassMlaDecode call{.q_nope = q_nope,
                                   .q_pe = q_pe,
                                   .kv_c_and_k_pe_cache = p.cache.pages(),
                                   .seq_lens = p.batch.lengths_tensor(),
                                   .page_table = p.trace.plans() ? p.cache.page_table() : p.cache.page_table(p.batch.requests),
                                   .workspace = Tensor(DType::u8, {0}),
                                   .sm_scale = p.config().softmax_scale()};
  return p.trace.run1({.part = part,
                       .name = "self.attn_mqa()",
                       .inputs = {{"q_nope", q_nope.shape()}, {"q_pe", q_pe.shape()}},
                       .outputs = {{"output", q_nope.dtype()}},
                       .work = attending(p, q_nope)},
                      [&] {
                        if (selected.defined())
                          return attend_selected(q_nope, q_pe, p.cache.buffer(), selected, p.config().softmax_scale(), p.exec());
                        return ops::run(call, p.exec()).out;
                      });
}

Tensor self_attn(const Pass& p, const Tensor& x) {
  const ModelConfig& c = p.config();
  const AbsorbWeights& weights = p.weights.absorb;
  p.trace.enter("self.self_attn()");
  const Trace::Scope attention(p.trace);
  Latents latents;
  Tensor q_abs, q_pe, selected;
  {
    p.trace.enter("self.forward_absorb_prepare()");
    const Trace::Scope prepare(p.trace);
    latents = project(p, x);
    const Tensor kv_a = p.rmsnorm(part, "self.kv_a_layernorm()", latents.kv_a, p.weights.kv_a_layernorm);
    q_pe = latents.q.slice(2, c.qk_nope_head_dim, c.qk_head_dim());
    // The key half of kv_b_proj moves from the keys to the query.
    q_abs = absorb(p, {"q_nope * w_kc", "q_nope", "w_kc", "q_nope_out"}, latents.q.slice(2, 0, c.qk_nope_head_dim), weights.w_kc);
    rotary_emb(p, q_pe, latents.k_pe);
    set_mla_kv_buffer(p, kv_a.reshape({p.tokens(), 1, c.kv_lora_rank}), latents.k_pe);
    if (c.sparse()) selected = indexer(p, x, latents.q_lora);
  }
  Tensor out;
  {
    p.trace.enter("self.forward_absorb_core()");
    const Trace::Scope core(p.trace);
    const Tensor o_latent = attn_mqa(p, q_abs, q_pe, selected);
    const Tensor o = absorb(p, {"attn_output * w_vc", "attn", "w_vc", "attn_bmm_output"}, o_latent, weights.w_vc);
    out = p.project(part, "self.o_proj()", p.weights.o, o.reshape({p.tokens(), c.o_columns()}));
  }
  p.trace.gives({{"output", out}});
  return out;
}

}  // namespace

const AttentionPath mla_decode_path{"mla, decode", [](const Batch& batch) { return batch.one_token_each(); }, self_attn};

}  // namespace dodona::model
