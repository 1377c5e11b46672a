#include "model/layer/attention_prepare.h"

#include "core/define.h"
#include "model/layer/attention.h"
#include "model/layer/rope_table.h"
#include "model/weights/without_memory.h"
#include "ops/kv_cache/set_mla_kv_buffer.h"
#include "ops/rope/apply_rope_with_cos_sin_cache_inplace.h"

namespace dodona::model {
namespace {

Tensor fused_qkv_a_proj_with_mqa(const Pass& p, Part part, const Tensor& x) {
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

}  // namespace

Tensor one_head(const Tensor& x) {
  return Tensor(x.owner(), x.data(), x.dtype(), {x.size(0), 1, x.size(1)}, {x.stride(0), x.size(1), 1}, true);
}

Latents project_latents(const Pass& p, Part part, const Tensor& x) {
  const ModelConfig& c = p.config();
  Latents result;
  Tensor latent, q;
  if (c.q_lora_rank > 0) {
    const Tensor qkv = fused_qkv_a_proj_with_mqa(p, part, x);
    latent = qkv.slice(1, c.q_lora_rank, qkv.size(1));
    const Tensor q_a = p.rmsnorm(part, "self.q_a_layernorm()", qkv.slice(1, 0, c.q_lora_rank), p.weights.q_a_layernorm);
    q = p.project(part, "self.q_b_proj()", p.weights.q_b, q_a);
    result.q_lora = q_a;
  } else {
    q = p.project(part, "self.q_proj()", p.weights.q_proj, x);
    latent = p.project(part, "self.kv_a_proj_with_mqa()", p.weights.kv_a, x);
  }
  result.q = q.reshape({p.tokens(), c.num_attention_heads, c.qk_head_dim()});
  result.k_pe = one_head(latent.slice(1, c.kv_lora_rank, c.latent_dim()));
  result.kv_a = p.rmsnorm(part, "self.kv_a_layernorm()", latent.slice(1, 0, c.kv_lora_rank), p.weights.kv_a_layernorm);
  return result;
}

/// The op's table holds only the rows that the batch needs: row t for token t.
void rotary_emb(const Pass& p, Part part, const Tensor& q_pe, const Tensor& k_pe) {
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

Tensor o_proj(const Pass& p, Part part, const Tensor& o) {
  return p.project(part, "self.o_proj()", p.weights.o, o.reshape({p.tokens(), p.config().o_columns()}));
}

}  // namespace dodona::model
