#include "model/attention.h"

#include <cmath>

#include "core/define.h"
#include "dodona/error.h"
#include "model/per_tensor_fp8.h"
#include "model/rope_table.h"
#include "model/work.h"
#include "ops/attention/cutlass_mla_decode.h"
#include "ops/gemm/bmm.h"
#include "ops/gemm/bmm_fp8.h"
#include "ops/gemm/dsv3_fused_a_gemm.h"
#include "ops/kv_cache/set_mla_kv_buffer.h"
#include "ops/normalization/rmsnorm.h"
#include "ops/rope/apply_rope_with_cos_sin_cache_inplace.h"

namespace dodona::model {
namespace {

constexpr Part part = Part::attention;

/// What every function below needs of the step.
struct Attention {
  const LayerWeights& weights;
  const ModelConfig& config;
  std::int64_t batch;
  Trace& trace;

  Tensor rmsnorm(std::string_view name, const Tensor& x, const Tensor& weight) const {
    return trace.op1(part, name, {}, {{"input", x.shape()}}, moved({x, x, weight}),
                     [&] { return ops::run(ops::Rmsnorm{.input = x, .weight = weight, .eps = config.rms_norm_eps}, trace.exec()).output; });
  }
  Tensor project(std::string_view name, const Projection& projection, const Tensor& x) const {
    return trace.op1(part, name, {}, {{"input", x.shape()}}, projected(projection, batch, weights.rounding()),
                     [&] { return projection(x, trace.exec()); });
  }
};

/// For up to 16 tokens and R1's sizes upstream has a kernel of its own.
bool low_latency(const Attention& a) {
  return a.trace.book().at(part, "self.fused_qkv_a_proj_with_mqa()").kernel == "dsv3_fused_a_gemm" &&
         a.weights.rounding() == Rounding::bf16;
}

Tensor fused_qkv_a_proj_with_mqa(const Attention& a, const Tensor& x) {
  const Projection& weight = a.weights.fused_qkv_a;
  if (!low_latency(a)) return a.project("self.fused_qkv_a_proj_with_mqa()", weight, x);
  return a.trace.op1(part, "self.fused_qkv_a_proj_with_mqa()", {}, {{"input", x.shape()}}, projected(weight, a.batch, Rounding::bf16), [&] {
    return ops::run(ops::Dsv3FusedAGemm{.mat_a = x, .mat_b = weight.bf16().transpose(0, 1)}, a.trace.exec()).output;
  });
}

struct Latents {
  Tensor q;     ///< [B, Nh, Dq]
  Tensor kv_a;  ///< [B, Lkv], before its norm
  Tensor k_pe;  ///< [B, 1, Dr]
};

Latents project(const Attention& a, const Tensor& x) {
  const ModelConfig& c = a.config;
  Latents result;
  Tensor latent, q;
  if (c.q_lora_rank > 0) {
    const Tensor qkv = fused_qkv_a_proj_with_mqa(a, x);
    latent = qkv.slice(1, c.q_lora_rank, qkv.size(1));
    const Tensor q_a = a.rmsnorm("self.q_a_layernorm()", qkv.slice(1, 0, c.q_lora_rank), a.weights.q_a_layernorm);
    q = a.project("self.q_b_proj()", a.weights.q_b, q_a);
  } else {
    q = a.project("self.q_proj()", a.weights.q_proj, x);
    latent = a.project("self.kv_a_proj_with_mqa()", a.weights.kv_a, x);
  }
  result.q = q.reshape({a.batch, c.num_attention_heads, c.qk_head_dim()});
  result.kv_a = latent.slice(1, 0, c.kv_lora_rank);
  const Tensor k_pe = latent.slice(1, c.kv_lora_rank, c.latent_dim());
  // [B, Dr] seen as [B, 1, Dr], with the row stride of the buffer that it lies in.
  result.k_pe =
      Tensor(k_pe.owner(), k_pe.data(), k_pe.dtype(), {a.batch, 1, c.qk_rope_head_dim}, {k_pe.stride(0), c.qk_rope_head_dim, 1}, true);
  return result;
}

/// [Nh, B, K] x [Nh, K, N] into out, a view of the same sizes.
void absorbed_bmm(const Attention& a, const Tensor& left, const Tensor& right, const Tensor& out) {
  if (!a.weights.absorb.is_fp8()) {
    ops::run(ops::Bmm{.mat1 = left, .mat2 = right, .out = out, .out_dtype = out.dtype()}, a.trace.exec());
    return;
  }
  const Fp8Tensor codes = per_tensor_fp8(left.clone(), a.trace.exec().threads);
  const auto product =
      ops::run(ops::BmmFp8{.A = codes.values, .B = right, .A_scale = codes.scale, .B_scale = a.weights.absorb.scale, .dtype = out.dtype()},
               a.trace.exec());
  copy(product.out, out);
}

/// q_nope [B, Nh, Dn] to [B, Nh, Lkv]: the key half of kv_b_proj moves from the keys to the query.
Tensor absorb_q(const Attention& a, const Tensor& q_nope) {
  const Tensor left = q_nope.transpose(0, 1), right = a.weights.absorb.w_kc;
  const std::int64_t heads = left.size(0), latent = right.size(2);
  const double flops = 2.0 * static_cast<double>(heads * a.batch * right.size(1) * latent);
  Work work = moved({left, right}, flops);
  work.weight_bytes = bytes_of(right);
  Tensor q_abs;
  a.trace.op(part, "bmm_fp8()", "q_nope * w_kc", {{"q_nope", left.shape()}, {"w_kc", right.shape()}}, work, [&]() -> NamedTensors {
    q_abs = Tensor(left.dtype(), {a.batch, heads, latent});
    absorbed_bmm(a, left, right, q_abs.transpose(0, 1));
    return {{"q_nope_out", q_abs}};
  });
  return q_abs;
}

/// o_latent [B, Nh, Lkv] to [B, Nh * Dv].
Tensor absorb_v(const Attention& a, const Tensor& o_latent) {
  const Tensor left = o_latent.transpose(0, 1), right = a.weights.absorb.w_vc;
  const std::int64_t heads = left.size(0), v = right.size(2);
  const double flops = 2.0 * static_cast<double>(heads * a.batch * right.size(1) * v);
  Work work = moved({left, right}, flops);
  work.weight_bytes = bytes_of(right);
  Tensor out;
  a.trace.op(part, "bmm_fp8()", "attn_output * w_vc", {{"attn", left.shape()}, {"w_vc", right.shape()}}, work, [&]() -> NamedTensors {
    out = Tensor(left.dtype(), {a.batch, heads, v});
    absorbed_bmm(a, left, right, out.transpose(0, 1));
    return {{"attn_bmm_output", out}};
  });
  return out.reshape({a.batch, heads * v});
}

/// Rotates q_pe and k_pe where they lie. The op's table holds only the rows that the step needs: row b for request b.
void rotary_emb(const Attention& a, const Tensor& q_pe, const Tensor& k_pe, std::span<const std::int64_t> lengths) {
  std::vector<std::int64_t> positions;
  Tensor rows(DType::i64, {a.batch});
  for (std::int64_t b = 0; b < a.batch; ++b) {
    positions.push_back(lengths[static_cast<std::size_t>(b)] - 1);
    rows.as<std::int64_t>()[b] = b;
  }
  const Tensor table = rope_table_rows(a.config, positions);
  a.trace.op(part, "self.rotary_emb()", {}, {{"q_pe", q_pe.shape()}, {"k_pe", k_pe.shape()}}, moved({q_pe, q_pe, k_pe, k_pe, table}),
             [&]() -> NamedTensors {
               ops::run(ops::ApplyRopeWithCosSinCacheInplace{.positions = rows,
                                                             .query = q_pe,
                                                             .key = k_pe,
                                                             .cos_sin_cache = table,
                                                             .head_size = a.config.qk_rope_head_dim,
                                                             .is_neox = false},
                        a.trace.exec());
               return {{"q_pe", q_pe}, {"k_pe", k_pe}};
             });
}

void set_mla_kv_buffer(const Attention& a, const Tensor& k_nope, const Tensor& k_pe, const Tensor& slots, PagedKvCache& cache) {
  a.trace.op(Part::kv_cache, "set_mla_kv_buffer()", {},
             {{"k_nope", k_nope.shape()}, {"k_pe", k_pe.shape()}, {"kv_buffer", cache.buffer().shape()}},
             moved({k_nope, k_nope, k_pe, k_pe}), [&]() -> NamedTensors {
               ops::run(ops::SetMlaKvBuffer{.kv_buffer = cache.buffer(), .loc = slots, .k_nope = k_nope, .k_rope = k_pe}, a.trace.exec());
               return {{"+k_nope", k_nope}, {"+k_pe", k_pe}};
             });
}

Tensor attn_mqa(const Attention& a, const Tensor& q_nope, const Tensor& q_pe, std::span<const std::int64_t> lengths,
                const PagedKvCache& cache) {
  double keys = 0;
  for (const std::int64_t length : lengths) keys += static_cast<double>(length);
  const auto latent = static_cast<double>(a.config.kv_lora_rank), row = static_cast<double>(a.config.latent_dim());
  Work work = moved({q_nope, q_nope, q_pe}, 2.0 * keys * static_cast<double>(a.config.num_attention_heads) * (row + latent));
  work.bytes += keys * row * static_cast<double>(bytes_for(cache.buffer().dtype(), 1));
  Tensor out;
  a.trace.op(part, "self.attn_mqa()", {}, {{"q_nope", q_nope.shape()}, {"q_pe", q_pe.shape()}}, work, [&]() -> NamedTensors {
    out = ops::run(ops::CutlassMlaDecode{.q_nope = q_nope,
                                         .q_pe = q_pe,
                                         .kv_c_and_k_pe_cache = cache.pages(),
                                         .seq_lens = cache.lengths_tensor(lengths),
                                         .page_table = cache.page_table(),
                                         .workspace = Tensor(DType::u8, {0}),
                                         .sm_scale = a.config.softmax_scale()},
                   a.trace.exec())
              .out;
    return {{"output", out}};
  });
  return out;
}

}  // namespace

Tensor self_attn(const LayerWeights& weights, const Tensor& x, std::span<const std::int64_t> lengths, PagedKvCache& cache, Trace& trace) {
  const ModelConfig& config = weights.config();
  const Attention a{weights, config, x.size(0), trace};
  trace.enter("self.self_attn()");
  const Trace::Scope attention(trace);
  Latents latents;
  Tensor q_abs, q_pe;
  {
    trace.enter("self.forward_absorb_prepare()");
    const Trace::Scope prepare(trace);
    latents = project(a, x);
    const Tensor kv_a = a.rmsnorm("self.kv_a_layernorm()", latents.kv_a, weights.kv_a_layernorm);
    q_pe = latents.q.slice(2, config.qk_nope_head_dim, config.qk_head_dim());
    q_abs = absorb_q(a, latents.q.slice(2, 0, config.qk_nope_head_dim));
    rotary_emb(a, q_pe, latents.k_pe, lengths);
    set_mla_kv_buffer(a, kv_a.reshape({a.batch, 1, config.kv_lora_rank}), latents.k_pe, cache.last_slots(lengths), cache);
  }
  Tensor out;
  {
    trace.enter("self.forward_absorb_core()");
    const Trace::Scope core(trace);
    const Tensor o_latent = attn_mqa(a, q_abs, q_pe, lengths, cache);
    out = a.project("self.o_proj()", weights.o, absorb_v(a, o_latent));
  }
  trace.gives({{"output", out}});
  return out;
}

}  // namespace dodona::model
