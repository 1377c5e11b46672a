// MHA: keys and values expanded from the latents by kv_b_proj. forward_normal_prepare, forward_normal_core and what upstream has for
// prefixes.
#include <algorithm>

#include "core/define.h"
#include "model/layer/attention/attention.h"
#include "model/layer/attention/prepare.h"
#include "model/layer/kernel_use.h"
#include "model/layer/values.h"
#include "ops/attention/concat_and_cast_mha_k.h"
#include "ops/attention/concat_mla_k.h"
#include "ops/attention/merge_state.h"
#include "ops/attention/merge_state_v2.h"
#include "ops/kv_cache/create_chunked_prefix_cache_kv_indices.h"
#include "ops/kv_cache/get_mla_kv_buffer.h"

namespace dodona::model {
namespace {

/// Rows of latents, [n, Lkv] and [n, 1, Dr].
struct Rows {
  Tensor kv_a, k_pe;
};
/// [n, Nh, Dq] and [n, Nh, Dv].
struct KeysValues {
  Tensor k, v;
};

/// sgl-kernel's kernel for the sizes of DeepSeek V3, Triton's for others.
bool has_concat_kernel(const ModelConfig& c, DType type) {
  return type == DType::bf16 && c.num_attention_heads == 128 && c.qk_nope_head_dim == 128 && c.qk_rope_head_dim == 64;
}

Tensor concat_k(const Pass& p, Part part, const Tensor& k_nope, const Tensor& k_pe) {
  return p.trace.run1({.part = part,
                       .name = "self._concat_and_cast_mha_k()",
                       .inputs = {{"k_nope", k_nope.shape()}, {"k_pe", k_pe.shape()}},
                       .outputs = {{"output", k_nope.dtype(), {k_nope.size(0), k_nope.size(1), p.config().qk_head_dim()}}},
                       .work = reading({k_nope, k_pe})},
                      [&] {
                        const bool triton = used_kernel(p.weights.setting(), "_concat_and_cast_mha_k") == "concat_and_cast_mha_k";
                        if (!triton && has_concat_kernel(p.config(), k_nope.dtype()))
                          return ops::run(ops::ConcatMlaK{.k_nope = k_nope, .k_rope = k_pe}, p.exec()).k;
                        return ops::run(ops::ConcatAndCastMhaK{.k_nope = k_nope, .k_rope = k_pe, .dst_dtype = k_nope.dtype()}, p.exec()).k;
                      });
}

/// kv_b_proj of any number of rows.
KeysValues expanded(const Pass& p, Part part, const Rows& rows) {
  const ModelConfig& c = p.config();
  const std::int64_t n = rows.kv_a.size(0), heads = c.num_attention_heads, nope = c.qk_nope_head_dim, width = nope + c.v_head_dim;
  const Projection& weight = p.weights.kv_b;
  const Tensor kv = p.trace
                        .run1({.part = part,
                               .name = "self.kv_b_proj()",
                               .inputs = {{"input", rows.kv_a.shape()}},
                               .outputs = {{"output", rows.kv_a.dtype(), {n, heads * width}}},
                               .work = weight.work(n, rows.kv_a.dtype())},
                              [&] { return weight(rows.kv_a, p.exec()); })
                        .reshape({n, heads, width});
  return {concat_k(p, part, kv.slice(2, 0, nope), rows.k_pe), kv.slice(2, nope, width)};
}

MhaResult attn_mha(const Pass& p, Part part, const MhaCall& call) {
  const Tensor& q = call.q;
  ModelOp op{.part = part,
             .name = "self.attn_mha()",
             .inputs = {{"q", q.shape()}, {"k", call.k.shape()}, {"v", call.v.shape()}},
             .outputs = {{part == Part::attention ? "output" : "o", q.dtype(), {q.size(0), q.size(1), call.v.size(2)}}},
             .work = attending_to_keys(p.batch, call)};
  if (call.wants_lse) op.outputs.push_back({"lse", DType::f32, {q.size(0), q.size(1)}});
  const std::vector<Tensor> out = p.trace.run(op, [&]() -> std::vector<Tensor> {
    const MhaResult result = p.choices.attention.mha->run(p, call);
    return call.wants_lse ? std::vector<Tensor>{result.out, result.lse} : std::vector<Tensor>{result.out};
  });
  return {out[0], call.wants_lse ? out[1] : Tensor()};
}

/// Latents of cached tokens: tokens begin[r] to begin[r] + count[r] - 1 of each request.
struct Span {
  std::vector<std::int64_t> begin, count, starts{0};
  std::int64_t total() const { return starts.back(); }
  void add(std::int64_t from, std::int64_t tokens) {
    begin.push_back(from);
    count.push_back(tokens);
    starts.push_back(starts.back() + tokens);
  }
};
Rows get_mla_kv_buffer(const Pass& p, const Span& span) {
  const ModelConfig& c = p.config();
  const Tensor& buffer = p.cache.buffer();
  const DType type = p.weights.type();
  const std::int64_t n = span.total();
  Work work;
  work.bytes = static_cast<double>(bytes_for(buffer.dtype(), n * buffer.size(2)));
  const std::vector<Tensor> out =
      p.trace.run({.part = Part::kv_cache,
                   .name = "get_mla_kv_buffer()",
                   .inputs = {{"kv_buffer", buffer.shape()}},
                   .outputs = {{"k_nope", type, {n, 1, c.kv_lora_rank}}, {"k_pe", type, {n, 1, c.qk_rope_head_dim}}},
                   .work = work},
                  [&]() -> std::vector<Tensor> {
                    const Tensor slots =
                        ops::run(ops::CreateChunkedPrefixCacheKvIndices{.req_to_token = p.cache.token_slots(p.batch.requests),
                                                                        .req_pool_indices = int32_tensor(rows_in_order(p.batch.size())),
                                                                        .chunk_start_idx = int32_tensor(span.begin),
                                                                        .chunk_seq_lens = int32_tensor(span.count),
                                                                        .chunk_cu_seq_lens = int32_tensor(span.starts),
                                                                        .chunk_kv_indices = Tensor(DType::i32, {n})},
                                 p.exec())
                            .chunk_kv_indices;
                    const auto rows = ops::run(ops::GetMlaKvBuffer{.kv_buffer = buffer,
                                                                   .loc = slots,
                                                                   .cache_k_nope = Tensor(type, {n, 1, c.kv_lora_rank}),
                                                                   .cache_k_rope = Tensor(type, {n, 1, c.qk_rope_head_dim}),
                                                                   .kv_lora_rank = c.kv_lora_rank,
                                                                   .qk_rope_head_dim = c.qk_rope_head_dim,
                                                                   .dst_dtype = type},
                                               p.exec());
                    return {rows.cache_k_nope, rows.cache_k_rope};
                  });
  return {out[0].reshape({n, c.kv_lora_rank}), out[1]};
}

/// Steps 1 to 7 of every MHA path.
struct Prepared {
  Tensor q;
  Rows rows;
};
Prepared prepare(const Pass& p, const Tensor& x) {
  constexpr Part part = Part::attention;
  const ModelConfig& c = p.config();
  const Latents latents = project_latents(p, part, x);
  rotary_emb(p, part, latents.q.slice(2, c.qk_nope_head_dim, c.qk_head_dim()), latents.k_pe);
  set_mla_kv_buffer(p, one_head(latents.kv_a), latents.k_pe);
  return {latents.q, {latents.kv_a, latents.k_pe}};
}

/// O and S of the new tokens and of chunk after chunk of the prefix, merged as they come.
MhaResult with_prefix(const Pass& p, const Tensor& q, MhaResult sum) {
  constexpr Part part = Part::attention_chunks;
  const std::int64_t requests = p.batch.size(), length = std::max<std::int64_t>(p.weights.setting().prefix_chunk / requests, 1);
  std::int64_t longest = 0;
  for (std::int64_t r = 0; r < requests; ++r) longest = std::max(longest, p.batch.prefix(r));
  for (std::int64_t begin = 0; begin < longest; begin += length) {
    Span span;
    for (std::int64_t r = 0; r < requests; ++r)
      span.add(std::min(begin, p.batch.prefix(r)), std::clamp<std::int64_t>(p.batch.prefix(r) - begin, 0, length));
    const KeysValues kv = expanded(p, part, get_mla_kv_buffer(p, span));
    const MhaResult chunk =
        attn_mha(p, part, {.q = q, .k = kv.k, .v = kv.v, .key_starts = span.starts, .causal = false, .wants_lse = true});
    const std::vector<Tensor> merged =
        p.trace.run({.part = part,
                     .name = "merge_state_v2()",
                     .inputs = {{"v_a", chunk.out.shape()}, {"s_a", chunk.lse.shape()}, {"v_b", sum.out.shape()}, {"s_b", sum.lse.shape()}},
                     .outputs = {{"v_merged", q.dtype()}, {"s_merged", DType::f32}},
                     .work = reading({chunk.out, chunk.lse, sum.out, sum.lse})},
                    [&]() -> std::vector<Tensor> {
                      const auto merge = [&](auto op) -> std::vector<Tensor> {
                        op.v_a = chunk.out, op.s_a = chunk.lse, op.v_b = sum.out, op.s_b = sum.lse;
                        const auto run = ops::run(op, p.exec());
                        return {run.v_merged, run.s_merged};
                      };
                      return p.choices.attention.merges_in_base_2 ? merge(ops::MergeState{}) : merge(ops::MergeStateV2{});
                    });
    sum = {merged[0], merged[1]};
  }
  return sum;
}

/// Queries, and keys and values of the new tokens, under a line of the trace.
struct NewTokens {
  Tensor q;
  KeysValues kv;
};
NewTokens new_tokens(const Pass& p, const Tensor& x, std::string_view line) {
  p.trace.enter(line);
  const Trace::Scope scope(p.trace);
  const Prepared in = prepare(p, x);
  return {in.q, expanded(p, Part::attention, in.rows)};
}

}  // namespace

Tensor attend_mha(const Pass& p, const Tensor& x) {
  constexpr Part part = Part::attention;
  const auto [q, kv] = new_tokens(p, x, "self.forward_normal_prepare()");
  p.trace.enter("self.forward_normal_core()");
  const Trace::Scope core(p.trace);
  return o_proj(p, part, attn_mha(p, part, {.q = q, .k = kv.k, .v = kv.v, .key_starts = p.batch.query_starts}).out);
}

Tensor attend_mha_one_shot(const Pass& p, const Tensor& x) {
  if (p.batch.prefixes() == 0) return attend_mha(p, x);
  constexpr Part part = Part::attention_chunks;
  Span all;
  for (const std::int64_t length : p.batch.lengths) all.add(0, length);
  Tensor q;
  KeysValues kv;
  {
    p.trace.enter("self.forward_normal_one_shot_prepare()");
    const Trace::Scope scope(p.trace);
    q = prepare(p, x).q;
    // The tokens just written among them.
    kv = expanded(p, part, get_mla_kv_buffer(p, all));
  }
  p.trace.enter("self.forward_normal_one_shot_core()");
  const Trace::Scope core(p.trace);
  return o_proj(p, Part::attention, attn_mha(p, part, {.q = q, .k = kv.k, .v = kv.v, .key_starts = all.starts}).out);
}

Tensor attend_mha_chunked(const Pass& p, const Tensor& x) {
  if (p.batch.prefixes() == 0) return attend_mha(p, x);
  constexpr Part part = Part::attention;
  const auto [q, kv] = new_tokens(p, x, "self.forward_normal_chunked_kv_prepare()");
  p.trace.enter("self.forward_normal_chunked_kv_core()");
  const Trace::Scope core(p.trace);
  MhaResult o = attn_mha(p, part, {.q = q, .k = kv.k, .v = kv.v, .key_starts = p.batch.query_starts, .wants_lse = true});
  {
    p.trace.enter("self._chunked_prefix_attn_mha()");
    const Trace::Scope chunks(p.trace);
    o = with_prefix(p, q, o);
  }
  return o_proj(p, part, o.out);
}

}  // namespace dodona::model
