// attn_mqa: absorbed attention to the latents in the cache.
#include <algorithm>
#include <numeric>

#include "core/define.h"
#include "model/layer/attention/indexer.h"
#include "model/layer/attention/kernels.h"
#include "model/layer/pass.h"
#include "model/layer/values.h"
#include "model/weights/without_memory.h"
#include "ops/attention/batch_mla_paged_attention.h"
#include "ops/attention/concat_mla_absorb_q.h"
#include "ops/attention/cutlass_mla_decode.h"
#include "ops/attention/cutlass_mla_get_workspace_size.h"
#include "ops/attention/decode_attention_fwd.h"
#include "ops/attention/extend_attention_fwd.h"
#include "ops/attention/flash_mla_sparse_decode.h"
#include "ops/attention/flash_mla_sparse_fwd.h"
#include "ops/attention/flash_mla_with_kvcache.h"
#include "ops/attention/get_mla_metadata.h"
#include "ops/attention/trtllm_batch_decode_with_kv_cache_mla.h"
#include "ops/attention/xqa_batch_decode_with_kv_cache_mla.h"
#include "ops/softmax/layouts/mla_decode.h"

namespace dodona::model {
namespace {

constexpr std::int64_t small_page = 64;  ///< of FlashMLA and trtllm: pages of the cache are two of theirs

/// [q_nope | q_pe], [T, Nh, 576]. sgl-kernel has a kernel for bf16.
Tensor joined_query(const Pass& p, const MqaCall& c) {
  if (c.q_nope.dtype() == DType::bf16) return ops::run(ops::ConcatMlaAbsorbQ{.a = c.q_nope, .b = c.q_pe}, p.exec()).out;
  return side_by_side(c.q_nope, c.q_pe);
}

/// [T, Nh, D] as [R, T / R, Nh, D].
Tensor by_request(const Pass& p, const Tensor& rows) {
  return rows.reshape({p.batch.size(), p.batch.tokens_each(), rows.size(1), rows.size(2)});
}

/// Upstream asks for its size once for a batch, before all layers: here it is asked for where that is wanted.
Tensor workspace(const Pass& p) {
  if (p.choices.attention.asked != "cutlass_mla_get_workspace_size") return Tensor(DType::u8, {0});
  const std::int64_t longest = *std::max_element(p.batch.lengths.begin(), p.batch.lengths.end());
  const Tensor bytes = ops::run(ops::CutlassMlaGetWorkspaceSize{.max_seq_len = longest, .num_batches = p.batch.tokens()}, p.exec()).out;
  return Tensor::uninitialized(DType::u8, {*bytes.as<std::int64_t>()});
}

/// Slots of tokens, and where each request's begin.
struct Slots {
  std::vector<std::int64_t> slots, starts{0};
};
/// Of each request: its prefix, and perhaps the new tokens.
Slots slots_of(const Pass& p, bool new_ones_too) {
  Slots result;
  for (std::int64_t r = 0; r < p.batch.size(); ++r) {
    const std::int64_t count = new_ones_too ? p.batch.lengths[static_cast<std::size_t>(r)] : p.batch.prefix(r);
    for (std::int64_t token = 0; token < count; ++token)
      result.slots.push_back(p.cache.slot(p.batch.requests[static_cast<std::size_t>(r)], token));
    result.starts.push_back(static_cast<std::int64_t>(result.slots.size()));
  }
  return result;
}
/// Each new token as a request of its own: what it sees of its tree.
Slots slots_of_nodes(const Pass& p) {
  Slots result;
  for (std::int64_t r = 0; r < p.batch.size(); ++r)
    for (std::int64_t i = 0; i < p.batch.tokens_of(r); ++i) {
      for (const std::int64_t row : p.batch.seen_by(r, i))
        result.slots.push_back(p.cache.slot(p.batch.requests[static_cast<std::size_t>(r)], row));
      result.starts.push_back(static_cast<std::int64_t>(result.slots.size()));
    }
  return result;
}

Tensor cutlass(const Pass& p, const MqaCall& c, const Tensor& lengths, const Tensor& pages, const Tensor& page_table) {
  return ops::run(ops::CutlassMlaDecode{.q_nope = c.q_nope,
                                        .q_pe = c.q_pe,
                                        .kv_c_and_k_pe_cache = pages,
                                        .seq_lens = lengths,
                                        .page_table = page_table,
                                        .workspace = workspace(p),
                                        .sm_scale = p.config().softmax_scale()},
                  p.exec())
      .out;
}
Tensor cutlass_decode(const Pass& p, const MqaCall& c) {
  return cutlass(p, c, p.batch.lengths_tensor(), p.cache.pages(), p.cache.page_table(p.batch.requests));
}
/// Of trees pages of one token: the slots that each node sees.
Tensor cutlass_rows(const Pass& p, const MqaCall& c) {
  const Tensor visible = p.batch.visible_tensor();
  if (!p.batch.trees()) return cutlass(p, c, visible, p.cache.pages(), p.cache.page_table(p.batch.request_of_tokens()));
  const Slots seen = slots_of_nodes(p);
  const auto* const counts = visible.as<const std::int32_t>();
  const std::int64_t nodes = visible.elements(), longest = *std::max_element(counts, counts + nodes);
  constexpr std::int64_t columns = 128;  // the kernel wants a multiple of that many tokens
  const std::int64_t width = (longest + columns - 1) / columns * columns;
  const Tensor table(DType::i32, {nodes, width});
  for (std::int64_t t = 0; t < nodes; ++t)
    std::transform(seen.slots.begin() + seen.starts[static_cast<std::size_t>(t)],
                   seen.slots.begin() + seen.starts[static_cast<std::size_t>(t) + 1], table.as<std::int32_t>() + t * width,
                   [](std::int64_t slot) { return static_cast<std::int32_t>(slot); });
  return cutlass(p, c, visible, p.cache.buffer(), table);
}

Tensor small_pages(const Pass& p) {
  return p.cache.buffer().reshape({p.cache.buffer().size(0) / small_page, small_page, p.cache.buffer().size(2)});
}

/// Of an fp8 cache the scores' scale has the checkpoint's k_scale, though rows are stored without it, as upstream does.
double scores_scale(const Pass& p) {
  const double scale = p.config().softmax_scale();
  if (p.weights.setting().kv_cache != KvCacheType::e4m3) return scale;
  return static_cast<double>(p.weights.source().kv_scales(p.weights.layer()).k) * scale;
}

Tensor trtllm(const Pass& p, const MqaCall& c) {
  return ops::run(ops::TrtllmBatchDecodeWithKvCacheMla{.query = by_request(p, joined_query(p, c)),
                                                       .kv_cache = small_pages(p),
                                                       .block_tables = p.cache.page_table(p.batch.requests, small_page),
                                                       .seq_lens = p.batch.lengths_tensor(),
                                                       .out = Tensor(p.weights.type(), {p.batch.size(), p.batch.tokens_each(),
                                                                                        c.q_nope.size(1), c.q_nope.size(2)}),
                                                       .bmm1_scale = scores_scale(p)},
                  p.exec())
      .out.reshape(c.q_nope.shape());
}

/// FlashInfer's kernel for SM120.
Tensor xqa(const Pass& p, const MqaCall& c) {
  return ops::run(ops::XqaBatchDecodeWithKvCacheMla{.query = by_request(p, joined_query(p, c)),
                                                    .kv_cache = small_pages(p),
                                                    .block_tables = p.cache.page_table(p.batch.requests, small_page),
                                                    .seq_lens = p.batch.lengths_tensor(),
                                                    .bmm1_scale = p.config().softmax_scale()},
                  p.exec())
      .out.reshape(c.q_nope.shape());
}

Tensor flash_mla(const Pass& p, const MqaCall& c) {
  const Tensor pages = p.cache.buffer().reshape({p.cache.buffer().size(0) / small_page, small_page, 1, p.cache.buffer().size(2)});
  const Tensor joined = side_by_side(c.q_nope, c.q_pe), q = pages.dtype() == DType::f8_e4m3 ? cast_to_e4m3(joined) : joined;
  // How the work is cut is part of the bits: for the 132 SMs of an H100.
  const auto cut = ops::run(
      ops::GetMlaMetadata{
          .cache_seqlens = p.batch.lengths_tensor(), .num_q_tokens_per_head_k = p.batch.tokens_each() * c.q_nope.size(1), .num_heads_k = 1},
      p.exec());
  return ops::run(ops::FlashMlaWithKvcache{.q = by_request(p, q),
                                           .k_cache = pages,
                                           .block_table = p.cache.page_table(p.batch.requests, small_page),
                                           .cache_seqlens = p.batch.lengths_tensor(),
                                           .tile_scheduler_metadata = cut.tile_scheduler_metadata,
                                           .num_splits = cut.num_splits,
                                           .softmax_scale = p.config().softmax_scale(),
                                           .causal = true},
                  p.exec())
      .out.reshape(c.q_nope.shape());
}

/// FlashInfer `BatchMLAPagedAttentionWrapper`, with pages of one token. It knows no tree's mask: each node is a request of its own.
Tensor paged(const Pass& p, const MqaCall& c) {
  const bool trees = p.batch.trees();
  const Slots all = trees ? slots_of_nodes(p) : slots_of(p, true);
  std::vector<std::int64_t> queries = p.batch.query_starts;
  if (trees) queries.resize(all.starts.size()), std::iota(queries.begin(), queries.end(), 0);
  const Tensor& rows = p.cache.buffer();
  // Codes as they are: upstream casts the whole cache to the queries' type.
  const double scale = rows.dtype() == DType::f8_e4m3 ? 1 : 0;
  return ops::run(ops::BatchMlaPagedAttention{.q_nope = c.q_nope,
                                              .q_pe = c.q_pe,
                                              .ckv_cache = rows.slice(2, 0, c.q_nope.size(2)),
                                              .kpe_cache = rows.slice(2, c.q_nope.size(2), rows.size(2)),
                                              .qo_indptr = int32_tensor(queries),
                                              .kv_indptr = int32_tensor(all.starts),
                                              .kv_indices = int32_tensor(all.slots),
                                              .kv_len_arr = trees ? p.batch.visible_tensor() : p.batch.lengths_tensor(),
                                              .sm_scale = p.config().softmax_scale(),
                                              .ckv_scale = scale,
                                              .kpe_scale = scale,
                                              .causal = true},
                  p.exec())
      .out;
}

Tensor triton_decode(const Pass& p, const MqaCall& c) {
  constexpr std::int64_t splits = 8;  // upstream's bound, and what it takes without its heuristic
  const Slots all = slots_of(p, true);
  return ops::run(ops::DecodeAttentionFwd{.q = side_by_side(c.q_nope, c.q_pe),
                                          .k_buffer = p.cache.buffer(),
                                          .kv_indptr = int32_tensor(all.starts),
                                          .kv_indices = int32_tensor(all.slots),
                                          .num_kv_splits = int32_tensor(std::vector<std::int64_t>(p.batch.requests.size(), splits)),
                                          .max_kv_splits = splits,
                                          .v_head_dim = c.q_nope.size(2),
                                          .sm_scale = p.config().softmax_scale(),
                                          .v_is_slice_of_k = true},
                  p.exec())
      .o;
}

/// Request by request a row for each node: keys of the prefix and of the tree, 1 where it sees one.
struct TreeMask {
  Tensor mask, starts;
};
TreeMask mask_of(const Batch& batch) {
  std::vector<std::int64_t> starts{0};
  for (std::int64_t r = 0; r < batch.size(); ++r)
    starts.push_back(starts.back() + batch.tokens_of(r) * batch.lengths[static_cast<std::size_t>(r)]);
  TreeMask tree{Tensor(DType::u8, {starts.back()}), int32_tensor(starts)};
  for (std::int64_t r = 0; r < batch.size(); ++r)
    for (std::int64_t i = 0; i < batch.tokens_of(r); ++i)
      for (const std::int64_t row : batch.seen_by(r, i))
        tree.mask.as<std::uint8_t>()[starts[static_cast<std::size_t>(r)] + i * batch.lengths[static_cast<std::size_t>(r)] + row] = 1;
  return tree;
}

Tensor triton_extend(const Pass& p, const MqaCall& c) {
  const Slots prefix = slots_of(p, false);
  const TreeMask tree = p.batch.trees() ? mask_of(p.batch) : TreeMask();
  return ops::run(ops::ExtendAttentionFwd{.q_extend = side_by_side(c.q_nope, c.q_pe),
                                          .k_extend = side_by_side(c.k_nope, c.k_pe),
                                          .v_extend = c.k_nope,
                                          .k_buffer = p.cache.buffer(),
                                          .qo_indptr = p.batch.starts_tensor(),
                                          .kv_indptr = int32_tensor(prefix.starts),
                                          .kv_indices = int32_tensor(prefix.slots),
                                          .custom_mask = tree.mask,
                                          .mask_indptr = tree.starts,
                                          .v_head_dim = c.q_nope.size(2),
                                          .sm_scale = p.config().softmax_scale(),
                                          .v_is_slice_of_k = true},
                  p.exec())
      .o_extend;
}

Tensor selected_rows(const Pass& p, const MqaCall& c) {
  return attend_selected(c.q_nope, c.q_pe, p.cache.buffer(), c.selected, p.config().softmax_scale(), p.exec());
}

Tensor flash_mla_sparse_rows(const Pass& p, const MqaCall& c) {
  const Tensor q = joined_query(p, c);
  return ops::run(ops::FlashMlaSparseFwd{.q = q,
                                         .kv = p.cache.buffer(),
                                         .indices = c.selected.reshape({q.size(0), 1, c.selected.size(1)}),
                                         .sm_scale = p.config().softmax_scale()},
                  p.exec())
      .out;
}

/// Each new token is a request of its own, of as many tokens as the indexer chooses at most.
Tensor flash_mla_sparse(const Pass& p, const MqaCall& c) {
  const Tensor q = joined_query(p, c), &rows = p.cache.buffer();
  const std::int64_t tokens = q.size(0), heads = q.size(1), chosen = c.selected.size(1);
  const auto cut = ops::run(ops::GetMlaMetadata{.cache_seqlens = p.batch.visible_tensor(),
                                                .num_q_tokens_per_head_k = heads,
                                                .num_heads_k = 1,
                                                .num_heads_q = heads,
                                                .topk = chosen,
                                                .is_fp8_kvcache = true},
                            p.exec());
  return ops::run(ops::FlashMlaSparseDecode{.q = q.reshape({tokens, 1, heads, q.size(2)}),
                                            .k_cache = rows.reshape({rows.size(0) / small_page, small_page, 1, rows.size(2)}),
                                            .indices = c.selected.reshape({tokens, 1, chosen}),
                                            .tile_scheduler_metadata = cut.tile_scheduler_metadata,
                                            .num_splits = cut.num_splits,
                                            .softmax_scale = p.config().softmax_scale()},
                  p.exec())
      .out.reshape(c.q_nope.shape());
}

const char* several(const Batch& batch) {
  return batch.one_token_each() ? nullptr : "one new token of each request";
}
const char* uneven(const Batch& batch) {
  if (batch.trees()) return "draft tokens in a chain, not a tree";
  return batch.tokens_each() > 0 ? nullptr : "as many new tokens of one request as of another";
}
const char* nothing(const Batch&) {
  return nullptr;
}

bool in_blocks(const ModelConfig& c, std::int64_t most_of_keys, std::int64_t most_of_values) {
  return c.kv_lora_rank % 16 == 0 && c.qk_rope_head_dim % 16 == 0 && c.latent_dim() <= most_of_keys && c.kv_lora_rank <= most_of_values;
}
const char* wants_blocks_of_decode(const ModelConfig& c) {
  return in_blocks(c, 1024, 1024) ? nullptr : "kv_lora_rank and qk_rope_head_dim in multiples of 16, 1024 together at most";
}
const char* wants_blocks_of_extend(const ModelConfig& c) {
  return in_blocks(c, 576, 512) ? nullptr : "kv_lora_rank and qk_rope_head_dim in multiples of 16, the first 512 and both 576 at most";
}

}  // namespace

const char* wants_deepseek_latents(const ModelConfig& c) {
  return c.kv_lora_rank == 512 && c.qk_rope_head_dim == 64 ? nullptr : "kv_lora_rank 512 and qk_rope_head_dim 64";
}

const MqaKernel cutlass_decode_kernel{
    .name = "cutlass_mla_decode", .in_f32 = true, .refuses = several, .wants_sizes = wants_deepseek_latents, .run = cutlass_decode};
const MqaKernel cutlass_rows_kernel{
    .name = "cutlass_mla_decode", .in_f32 = true, .refuses = nothing, .wants_sizes = wants_deepseek_latents, .run = cutlass_rows};
const MqaKernel trtllm_decode_kernel{.name = "trtllm_batch_decode_with_kv_cache_mla",
                                     .in_f32 = true,
                                     .reads_e4m3 = true,
                                     .refuses = uneven,
                                     .wants_sizes = wants_deepseek_latents,
                                     .run = trtllm};
const MqaKernel flash_mla_kernel{
    .name = "flash_mla_with_kvcache", .reads_e4m3 = true, .refuses = uneven, .wants_sizes = wants_deepseek_latents, .run = flash_mla};
const MqaKernel paged_mla_kernel{
    .name = "batch_mla_paged_attention", .reads_e4m3 = true, .refuses = nothing, .wants_sizes = wants_deepseek_latents, .run = paged};
const MqaKernel triton_decode_kernel{
    .name = "decode_attention_fwd", .reads_e4m3 = true, .refuses = several, .wants_sizes = wants_blocks_of_decode, .run = triton_decode};
const MqaKernel triton_extend_mqa_kernel{
    .name = "extend_attention_fwd", .reads_e4m3 = true, .refuses = nothing, .wants_sizes = wants_blocks_of_extend, .run = triton_extend};
const MqaKernel selected_rows_kernel{
    .name = "cutlass_mla_decode", .refuses = nothing, .wants_sizes = wants_deepseek_latents, .run = selected_rows};
const MqaKernel flash_mla_sparse_rows_kernel{
    .name = "flash_mla_sparse_fwd", .refuses = nothing, .wants_sizes = wants_deepseek_latents, .run = flash_mla_sparse_rows};
const MqaKernel flash_mla_sparse_kernel{.name = "flash_mla_sparse_decode",
                                        .reads_e4m3 = true,
                                        .refuses = nothing,
                                        .wants_sizes = wants_deepseek_latents,
                                        .run = flash_mla_sparse};
const MqaKernel xqa_decode_kernel{
    .name = "xqa_batch_decode_with_kv_cache_mla", .refuses = several, .wants_sizes = wants_deepseek_latents, .run = xqa};

Work attending_to_latents(const Pass& p, const Tensor& q_nope, const Tensor& q_pe) {
  Tensor visible = p.batch.visible_tensor();
  double cached = 0;
  const auto shown = [&](std::int64_t tokens) { return p.config().sparse() ? std::min(tokens, p.config().index_topk) : tokens; };
  for (std::int64_t t = 0; t < visible.elements(); ++t)
    visible.as<std::int32_t>()[t] = static_cast<std::int32_t>(shown(visible.as<std::int32_t>()[t]));
  for (const std::int64_t length : p.batch.lengths) cached += static_cast<double>(shown(length));
  const auto rows = [&](const Tensor& q) { return without_memory(q.dtype(), {p.tokens(), 1, q.size(1), q.size(2)}); };
  // Its numbers, however they are stored.
  const Tensor pages = without_memory(p.weights.type(), {1, PagedKvCache::page_size, q_nope.size(2) + q_pe.size(2)});
  const ops::MlaAttention call({.q_nope = rows(q_nope), .q_pe = rows(q_pe), .cache = pages, .seq_lens = visible});
  Work work = reading({q_nope, q_pe}, ops::attention_flops(call));
  work.bytes += cached * static_cast<double>(bytes_for(p.cache.buffer().dtype(), p.cache.buffer().size(2)));
  return work;
}

}  // namespace dodona::model
