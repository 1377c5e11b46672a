#include "model/layer/attention/prepare.h"

#include "core/define.h"
#include "model/layer/attention/attention.h"
#include "model/layer/attention/rope_table.h"
#include "model/layer/kernel_use.h"
#include "model/layer/values.h"
#include "model/weights/without_memory.h"
#include "ops/kv_cache/quantize_k_cache.h"
#include "ops/kv_cache/set_mla_kv_buffer.h"
#include "ops/rope/apply_rope_with_cos_sin_cache_inplace.h"
#include "ops/rope/mla_rope_quantize_fp8.h"
#include "ops/rope/rotary_embedding.h"

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

/// The ops' table holds only the rows that the batch needs: row t for token t.
Tensor positions_in_table(const Pass& p) {
  Tensor rows(DType::i64, {p.tokens()});
  for (std::int64_t t = 0; t < p.tokens(); ++t) rows.as<std::int64_t>()[t] = t;
  return rows;
}

/// sgl-kernel's of vLLM: a table in the queries' type, and roundings between. Keys as far apart as the queries' heads: a copy.
void rotate_as_vllm(const Pass& p, const Tensor& q_pe, const Tensor& k_pe, const Tensor& table) {
  const Tensor q = q_pe.clone(), k = k_pe.clone();
  ops::run(ops::RotaryEmbedding{.positions = positions_in_table(p),
                                .query = q,
                                .key = k,
                                .cos_sin_cache = q.dtype() == DType::f32 ? table : rounded(table, q.dtype()),
                                .head_size = p.config().qk_rope_head_dim,
                                .is_neox = false},
           p.exec());
  copy(q, q_pe);
  copy(k, k_pe);
}

void rotary_emb(const Pass& p, Part part, const Tensor& q_pe, const Tensor& k_pe) {
  const Tensor table = without_memory(DType::f32, {p.tokens(), p.config().qk_rope_head_dim});
  p.trace.run({.part = part,
               .name = "self.rotary_emb()",
               .inputs = {{"q_pe", q_pe.shape()}, {"k_pe", k_pe.shape()}},
               .outputs = {{"q_pe", q_pe.dtype()}, {"k_pe", k_pe.dtype()}},
               .work = reading({q_pe, k_pe, table})},
              [&]() -> std::vector<Tensor> {
                const Tensor rotations = rope_table_rows(p.config(), p.batch.positions);
                if (used_kernel(p.weights.setting(), "rotary_emb") == "rotary_embedding") {
                  rotate_as_vllm(p, q_pe, k_pe, rotations);
                  return {q_pe, k_pe};
                }
                ops::run(ops::ApplyRopeWithCosSinCacheInplace{.positions = positions_in_table(p),
                                                              .query = q_pe,
                                                              .key = k_pe,
                                                              .cos_sin_cache = rotations,
                                                              .head_size = p.config().qk_rope_head_dim,
                                                              .is_neox = false},
                         p.exec());
                return {q_pe, k_pe};
              });
}

QuantizedParts rotary_emb_in_fp8(const Pass& p, Part part, const Tensor& q_nope, const Tensor& q_pe, const Tensor& k_nope,
                                 const Tensor& k_pe) {
  constexpr DType e4m3 = DType::f8_e4m3;
  const std::int64_t heads = q_nope.size(1), latent = q_nope.size(2), rope = q_pe.size(2);
  const Tensor table = without_memory(DType::f32, {p.tokens(), rope});
  const std::vector<Tensor> out = p.trace.run(
      {.part = part,
       .name = "self.rotary_emb()",
       .inputs = {{"q_pe", q_pe.shape()}, {"k_pe", k_pe.shape()}},
       .outputs =
           {{"q_pe", e4m3}, {"k_pe", e4m3}, {"q_nope", e4m3, {p.tokens(), heads, latent}}, {"k_nope", e4m3, {p.tokens(), 1, latent}}},
       .work = reading({q_nope, q_pe, k_nope, k_pe, table})},
      [&]() -> std::vector<Tensor> {
        const auto flat = [&](const Tensor& x) {
          return Tensor(x.owner(), x.data(), x.dtype(), {x.size(0), x.size(2)}, {x.stride(0), 1}, true);
        };
        const Tensor q(e4m3, {p.tokens(), heads, latent + rope}), k(e4m3, {p.tokens(), latent + rope});
        ops::run(ops::MlaRopeQuantizeFp8{.q_rope = q_pe,
                                         .k_rope = flat(k_pe),
                                         .q_nope = q_nope,
                                         .k_nope = flat(k_nope),
                                         .cos_sin_cache = rope_table_rows(p.config(), p.batch.positions),
                                         .pos_ids = positions_in_table(p),
                                         .q_rope_out = q.slice(2, latent, latent + rope),
                                         .k_rope_out = k.slice(1, latent, latent + rope),
                                         .q_nope_out = q.slice(2, 0, latent),
                                         .k_nope_out = k.slice(1, 0, latent),
                                         .is_neox = false},
                 p.exec());
        return {q.slice(2, latent, latent + rope), one_head(k.slice(1, latent, latent + rope)), q.slice(2, 0, latent),
                one_head(k.slice(1, 0, latent))};
      });
  return {.q_nope = out[2], .q_pe = out[0], .k_nope = out[3], .k_pe = out[1]};
}

/// What set_mla_kv_buffer is given: codes and scales, and the key part, as elements of the cache's type.
struct ScaledRows {
  Tensor k_nope, k_rope;
};
ScaledRows scaled_rows(const Pass& p, const Tensor& k_nope, const Tensor& k_pe) {
  const Tensor bytes = ops::run(ops::QuantizeKCache{.cache_k = side_by_side(k_nope, k_pe)}, p.exec()).output;
  const Tensor rows(bytes.owner(), bytes.data(), DType::f8_e4m3, bytes.shape(), bytes.strides(), true);
  const std::int64_t key_part = bytes_for(DType::bf16, k_pe.size(2)), split = rows.size(2) - key_part;
  return {rows.slice(2, 0, split), rows.slice(2, split, rows.size(2))};
}

void set_mla_kv_buffer(const Pass& p, const Tensor& k_nope, const Tensor& k_pe) {
  p.trace.run({.part = Part::kv_cache,
               .name = "set_mla_kv_buffer()",
               .inputs = {{"k_nope", k_nope.shape()}, {"k_pe", k_pe.shape()}, {"kv_buffer", p.cache.buffer().shape()}},
               .outputs = {{"k_nope", k_nope.dtype(), k_nope.shape()}, {"k_pe", k_pe.dtype(), k_pe.shape()}},
               .work = reading({k_nope, k_pe})},
              [&]() -> std::vector<Tensor> {
                if (p.cache.scaled_rows()) {
                  const ScaledRows rows = scaled_rows(p, k_nope, k_pe);
                  ops::run(
                      ops::SetMlaKvBuffer{
                          .kv_buffer = p.cache.buffer(), .loc = p.batch.slots_tensor(), .k_nope = rows.k_nope, .k_rope = rows.k_rope},
                      p.exec());
                  return {k_nope, k_pe};
                }
                const bool narrows = p.cache.buffer().dtype() == DType::f8_e4m3 && k_nope.dtype() != DType::f8_e4m3;
                ops::run(ops::SetMlaKvBuffer{.kv_buffer = p.cache.buffer(),
                                             .loc = p.batch.slots_tensor(),
                                             .k_nope = narrows ? cast_to_e4m3(k_nope) : k_nope,
                                             .k_rope = narrows ? cast_to_e4m3(k_pe) : k_pe},
                         p.exec());
                return {k_nope, k_pe};
              });
}

Tensor o_proj(const Pass& p, Part part, const Tensor& o) {
  return p.project(part, "self.o_proj()", p.weights.o, o.reshape({p.tokens(), p.config().o_columns()}));
}

}  // namespace dodona::model
