// MLA in its absorbed form, and its variant whose attention kernel rotates.
#include <algorithm>

#include "core/define.h"
#include "model/layer/attention/attention.h"
#include "model/layer/attention/prepare.h"
#include "model/layer/attention/rope_table.h"
#include "model/layer/values.h"
#include "ops/attention/decode_attention_fwd_grouped_rope.h"

namespace dodona::model {
namespace {

/// One of the two products with a half of kv_b_proj: `left` [T, Nh, K] to [T, Nh, N].
struct Absorbed {
  std::string_view note, left, right, out;  ///< the book's words
};
Tensor absorb(const Pass& p, Part part, const Absorbed& names, const Tensor& x, const Tensor& right) {
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
                        Tensor out(x.dtype(), {p.tokens(), heads, columns});
                        p.weights.absorb.multiply(left, right, out.transpose(0, 1), p.exec());
                        return out;
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
  return p.trace.run1({.part = Part::attention,
                       .name = "self.indexer()",
                       .inputs = {{"x", x.shape()}, {"q_lora", q_lora.shape()}},
                       .outputs = {{"output", DType::i32}},
                       .work = work},
                      [&] {
                        const std::vector<std::int64_t> owners = p.batch.request_of_tokens();
                        const IndexerStep step{.x = x,
                                               .q_lora = q_lora,
                                               .positions = p.batch.positions,
                                               .slots = p.batch.slots_tensor(),
                                               .pages = p.cache.index_pages(owners),
                                               .token_slots = p.cache.token_slots(owners)};
                        return index_tokens(c, weights, step, p.cache.index_k(), p.exec()).selected;
                      });
}

constexpr Absorbed keys{"q_nope * w_kc", "q_nope", "w_kc", "q_nope_out"}, values{"attn_output * w_vc", "attn", "w_vc", "attn_bmm_output"};

Tensor attn_mqa(const Pass& p, const MqaCall& call) {
  return p.trace.run1({.part = Part::attention,
                       .name = "self.attn_mqa()",
                       .inputs = {{"q_nope", call.q_nope.shape()}, {"q_pe", call.q_pe.shape()}},
                       .outputs = {{"output", p.weights.type()}},
                       .work = attending_to_latents(p, call.q_nope, call.q_pe)},
                      [&] { return p.choices.attention.mqa->run(p, call); });
}

/// What the attention kernel gives that rotates: its output, and the new tokens' rotated key parts [T, 1, Dr].
std::vector<Tensor> attn_mqa_with_rope(const Pass& p, const Tensor& q_nope, const Tensor& q_pe, const Tensor& k_pe) {
  return p.trace.run(
      {.part = Part::attention_fused,
       .name = "self.attn_mqa()",
       .inputs = {{"q_nope", q_nope.shape()}, {"q_pe", q_pe.shape()}},
       .outputs = {{"output", q_nope.dtype()}, {"k_pe_rotated", k_pe.dtype(), k_pe.shape()}},
       .work = attending_to_latents(p, q_nope, q_pe)},
      [&]() -> std::vector<Tensor> {
        std::vector<std::int64_t> slots, starts{0};
        for (std::int64_t r = 0; r < p.batch.size(); ++r) {
          for (std::int64_t j = 0; j < p.batch.lengths[static_cast<std::size_t>(r)]; ++j)
            slots.push_back(p.cache.slot(p.batch.requests[static_cast<std::size_t>(r)], j));
          starts.push_back(static_cast<std::int64_t>(slots.size()));
        }
        const Tensor& rows = p.cache.buffer();
        const auto run = ops::run(
            ops::DecodeAttentionFwdGroupedRope{.q = side_by_side(q_nope, q_pe),
                                               .k_buffer = rows,
                                               .v_buffer = rows.slice(2, 0, q_nope.size(2)),
                                               .kv_indptr = int32_tensor(starts),
                                               .kv_indices = int32_tensor(slots),
                                               // In the queries' type: upstream's kernel compiles with no other.
                                               .cos_sin_cache = rounded(rope_table_rows(p.config(), p.batch.positions), q_pe.dtype()),
                                               .positions = int32_tensor(rows_in_order(p.tokens())),
                                               .sm_scale = p.config().softmax_scale(),
                                               .use_rope = true},
            p.exec());
        return {run.o, run.k_pe_tokens};
      });
}

}  // namespace

Tensor attend_mla(const Pass& p, const Tensor& x) {
  constexpr Part part = Part::attention;
  const ModelConfig& c = p.config();
  const AbsorbWeights& weights = p.weights.absorb;
  MqaCall call;
  {
    p.trace.enter("self.forward_absorb_prepare()");
    const Trace::Scope prepare(p.trace);
    const Latents latents = project_latents(p, part, x);
    call.q_pe = latents.q.slice(2, c.qk_nope_head_dim, c.qk_head_dim());
    // The key half of kv_b_proj moves from the keys to the query.
    call.q_nope = absorb(p, part, keys, latents.q.slice(2, 0, c.qk_nope_head_dim), weights.w_kc);
    call.k_nope = one_head(latents.kv_a);
    call.k_pe = latents.k_pe;
    if (p.choices.attention.quantizes_with_rope) {
      const QuantizedParts parts = rotary_emb_in_fp8(p, part, call.q_nope, call.q_pe, call.k_nope, call.k_pe);
      call = {.q_nope = parts.q_nope, .q_pe = parts.q_pe, .k_nope = parts.k_nope, .k_pe = parts.k_pe};
    } else {
      rotary_emb(p, part, call.q_pe, call.k_pe);
    }
    set_mla_kv_buffer(p, call.k_nope, call.k_pe);
    if (c.sparse()) call.selected = indexer(p, x, latents.q_lora);
  }
  p.trace.enter("self.forward_absorb_core()");
  const Trace::Scope core(p.trace);
  return o_proj(p, part, absorb(p, part, values, attn_mqa(p, call), weights.w_vc));
}

Tensor attend_mla_fused_rope(const Pass& p, const Tensor& x) {
  constexpr Part part = Part::attention_fused;
  const ModelConfig& c = p.config();
  const AbsorbWeights& weights = p.weights.absorb;
  Latents latents;
  Tensor q_nope;
  {
    p.trace.enter("self.forward_absorb_fused_mla_rope_prepare()");
    const Trace::Scope prepare(p.trace);
    latents = project_latents(p, part, x);
    q_nope = absorb(p, part, keys, latents.q.slice(2, 0, c.qk_nope_head_dim), weights.w_kc);
    set_mla_kv_buffer(p, one_head(latents.kv_a), latents.k_pe);
  }
  p.trace.enter("self.forward_absorb_fused_mla_rope_core()");
  const Trace::Scope core(p.trace);
  const std::vector<Tensor> attended = attn_mqa_with_rope(p, q_nope, latents.q.slice(2, c.qk_nope_head_dim, c.qk_head_dim()), latents.k_pe);
  set_mla_kv_buffer(p, one_head(latents.kv_a), attended[1]);
  return o_proj(p, part, absorb(p, part, values, attended[0], weights.w_vc));
}

}  // namespace dodona::model
