// Routed experts whose weights lie on several ranks.
#include <algorithm>
#include <cstring>
#include <string>

#include "core/define.h"
#include "dodona/error.h"
#include "io/stopwatch.h"
#include "model/layer/experts/experts.h"
#include "model/layer/ranks.h"
#include "model/layer/values.h"
#include "ops/moe/combine/apply_shuffle_mul_sum.h"
#include "ops/moe/combine/post_reorder_triton_kernel.h"

namespace dodona::model {
namespace {

/// How a backend adds up the rows of a token, [T, K, H], which one rank or another has made.
using Combine = Tensor (*)(const Pass&, const Tensor& rows, const Routing&);

Tensor flat(const Tensor& rows) {
  return rows.reshape({rows.size(0) * rows.size(1), rows.size(2)});
}
Tensor in_place(const Tensor& rows) {
  Tensor places(DType::i32, {rows.size(0) * rows.size(1)});
  for (std::int64_t i = 0; i < places.elements(); ++i) places.as<std::int32_t>()[i] = static_cast<std::int32_t>(i);
  return places;
}

/// Rows hold their weights.
Tensor summed(const Pass& p, const Tensor& rows, const Routing&) {
  return sum_by_triton(p, rows);
}
Tensor weighed_in_the_type(const Pass& p, const Tensor& rows, const Routing& routing) {
  return ops::run(ops::ApplyShuffleMulSum{.input = flat(rows),
                                          .permutation = in_place(rows),
                                          .factors = rounded(routing.weights, rows.dtype()),
                                          .output = Tensor(rows.dtype(), {rows.size(0), rows.size(2)})},
                  p.exec())
      .output;
}
Tensor rounded_between(const Pass& p, const Tensor& rows, const Routing& routing) {
  const Tensor sums = ops::run(ops::PostReorderTritonKernel{.down_output = flat(rows),
                                                            .src2dst = in_place(rows).reshape({rows.size(0), rows.size(1)}),
                                                            .topk_ids = routing.ids,
                                                            .topk_weights = routing.weights},
                               p.exec())
                          .output;
  return times(sums, static_cast<float>(p.config().routed_scaling_factor));
}

/// With one expert a token, weighted 1 where rows are weighed by `combine`, and without the factor, a backend gives the rows themselves.
struct Rows {
  const ExpertsBackend* backend;
  bool weighed;
  Combine combine;
};
const Rows* rows_of(const ExpertsBackend& backend) {
  static const Rows all[] = {{&plain_experts, true, summed},
                             {&channel_experts, true, summed},
                             {&triton_fp8_experts, true, summed},
                             {&cutlass_experts, false, weighed_in_the_type},
                             {&cutlass_fp8_experts, false, weighed_in_the_type},
                             {&cutlass_es_experts, false, weighed_in_the_type},
                             {&deepgemm_experts, false, rounded_between}};
  for (const Rows& rows : all)
    if (rows.backend == &backend) return &rows;
  return nullptr;
}

ExpertRange experts_here(const Pass& p) {
  return local_experts(p.weights.source().config(), p.weights.source().shard());
}

/// The fused shared expert, which every rank has, is behind the routed ones.
bool has(const Pass& p, const ExpertRange& range, std::int64_t expert) {
  return (expert >= range.begin && expert < range.end) || expert >= p.weights.source().config().n_routed_experts;
}
/// The slots, token * K + column, whose experts a rank with that range has.
std::vector<std::int64_t> slots_of(const Pass& p, const Routing& routing, const ExpertRange& range) {
  std::vector<std::int64_t> slots;
  for (std::int64_t i = 0; i < routing.rows(); ++i)
    if (has(p, range, routing.ids.as<std::int32_t>()[i])) slots.push_back(i);
  return slots;
}
/// Rows of these slots to where they are among those of slots first ... behind - 1.
void put_rows(const Tensor& from, const std::vector<std::int64_t>& slots, std::int64_t first, std::int64_t behind, const Tensor& rows) {
  const std::int64_t bytes = bytes_for(rows.dtype(), rows.size(2));
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (slots[i] >= first && slots[i] < behind)
      std::memcpy(rows.as<std::byte>() + (slots[i] - first) * bytes, from.as<std::byte>() + static_cast<std::int64_t>(i) * bytes,
                  static_cast<std::size_t>(bytes));
}

/// One below the other.
Tensor joined(const std::vector<Tensor>& parts) {
  std::int64_t rows = 0;
  for (const Tensor& part : parts) rows += part.size(0);
  Dims shape = parts.front().shape();
  shape[0] = rows;
  Tensor all = Tensor::uninitialized(parts.front().dtype(), shape);
  std::byte* at = all.as<std::byte>();
  for (const Tensor& part : parts) {
    const auto bytes = static_cast<std::size_t>(bytes_for(part.dtype(), part.elements()));
    std::memcpy(at, part.data(), bytes);
    at += bytes;
  }
  return all;
}

/// A pass of its own: a batch of so many requests of one token each, of other tokens than the layer's, or through another router.
template <class Body>
Tensor apart(const Pass& p, std::int64_t tokens, const ModelConfig& config, const ModelConfig& whole, const Body& body) {
  const LayerSetting& setting = p.weights.setting();
  const ExpertsBackend& backend = p.weights.backend();
  const BookOptions options{.batch = tokens,
                            .layer = setting.layer,
                            .rounding = setting.rounding,
                            .experts_kernel = kernel_of(backend, whole, setting),
                            .sums_by_rank = sums_by_rank(backend, setting),
                            .shard = p.weights.source().shard()};
  const ShapeBook book(whole, Phase::decode, options);
  Trace trace(book, book, p.exec());
  const Batch batch = decode_batch(std::vector<std::int64_t>(static_cast<std::size_t>(tokens), 1));
  Tensor out = body(Pass{p.weights, batch, p.cache, trace, p.choices, p.ranks, &config});
  for (const OpRecord& record : trace.records()) p.trace.add(record);
  return out;
}

/// One token for each slot, with one expert each.
Tensor rows_made_here(const Pass& p, const Tensor& x, const Routing& routing, bool weighed) {
  const std::vector<std::int64_t> slots = slots_of(p, routing, experts_here(p));
  const auto count = static_cast<std::int64_t>(slots.size());
  Tensor tokens = Tensor::uninitialized(x.dtype(), {count, x.size(1)});
  if (count == 0) return tokens;
  const std::int64_t bytes = bytes_for(x.dtype(), x.size(1)), columns = routing.ids.size(1);
  Routing mine{Tensor(DType::f32, {count, 1}), Tensor(DType::i32, {count, 1}), rows_here(p, routing.counts)};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t slot = slots[static_cast<std::size_t>(i)];
    std::memcpy(tokens.as<std::byte>() + i * bytes, x.as<std::byte>() + slot / columns * bytes, static_cast<std::size_t>(bytes));
    mine.ids.as<std::int32_t>()[i] = routing.ids.as<std::int32_t>()[slot];
    mine.weights.as<float>()[i] = weighed ? routing.weights.as<float>()[slot] : 1.0f;
  }
  ModelConfig config = p.config(), whole = p.weights.source().config();
  config.num_experts_per_tok = whole.num_experts_per_tok = 1;
  config.routed_scaling_factor = whole.routed_scaling_factor = 1.0;
  return apart(p, count, config, whole, [&](const Pass& alone) { return p.weights.backend().run(alone, tokens, mine); });
}

/// What a backend of rows gives with the experts of this rank: upstream's kernels write zeros for the others'.
Tensor sum_of_rows_here(const Pass& p, const Tensor& x, const Routing& routing, const Rows& of) {
  p.trace.enter(Part::mlp_moe, "self.experts()");
  const Trace::Scope scope(p.trace);
  const Tensor rows(x.dtype(), {x.size(0), routing.ids.size(1), x.size(1)});
  put_rows(rows_made_here(p, x, routing, of.weighed), slots_of(p, routing, experts_here(p)), 0, routing.rows(), rows);
  Tensor out = of.combine(p, rows, routing);
  p.trace.gives({{"output", out}});
  return out;
}

/// What the backend gives on each rank, with that one's experts, all added up.
Tensor sum_of_ranks(const Pass& p, const Tensor& x, const Routing& routing) {
  const ExpertsBackend& backend = p.weights.backend();
  const Routing mine{routing.weights, routing.ids, rows_here(p, routing.counts)};
  const bool none = std::all_of(mine.counts.begin(), mine.counts.end(), [](std::int64_t rows) { return rows == 0; });
  const Tensor partial = none                                   ? Tensor(x.dtype(), x.shape())
                         : backend.sums_rows || p.trace.plans() ? backend.run(p, x, mine)
                                                                : sum_of_rows_here(p, x, mine, *rows_of(backend));
  return all_reduced(p, Shared::experts, Part::mlp_moe, "experts", partial);
}

}  // namespace

std::vector<std::int64_t> rows_here(const Pass& p, const std::vector<std::int64_t>& counts) {
  if (p.ranks.experts == nullptr) return counts;
  const ExpertRange range = experts_here(p);
  std::vector<std::int64_t> mine = counts;
  for (std::size_t e = 0; e < mine.size(); ++e)
    if (!has(p, range, static_cast<std::int64_t>(e))) mine[e] = 0;
  return mine;
}

bool sums_by_rank(const ExpertsBackend& backend, const LayerSetting& setting) {
  return backend.sums_rows || setting.fused_shared;
}

void check_experts_apart(const ExpertsBackend& backend, const LayerSetting& setting, std::int64_t ranks) {
  if (sums_by_rank(backend, setting) && ranks != 2 && ranks != 4 && ranks != 6 && ranks != 8)
    throw Error(ErrorCode::unsupported, "", "experts",
                "are run by " + std::string(backend.name) + " on " + std::to_string(ranks) +
                    " ranks, expected 2, 4, 6 or 8, whose sums the custom all-reduce adds up");
}

namespace {

/// Sends this rank's tokens: its own, or its part of those that all ranks have. Source: sglang's `DeepEPMoE` between scattered tokens.
Routed sent(const Pass& p, const Tensor& x, const Routing& routing) {
  constexpr std::int64_t tile_rows = 64;  // of the masked product on a GPU
  const Share share = p.weights.source().shard().experts;
  const std::int64_t experts = p.weights.source().config().n_routed_experts, tokens = x.size(0);
  const std::int64_t begin = p.ranks.own_tokens ? 0 : tokens * share.index / share.count,
                     end = p.ranks.own_tokens ? tokens : tokens * (share.index + 1) / share.count;
  const Tensor ids(DType::i64, {end - begin, routing.ids.size(1)});
  for (std::int64_t i = 0; i < ids.elements(); ++i) ids.as<std::int64_t>()[i] = routing.ids.as<std::int32_t>()[begin * ids.size(1) + i];
  Routed routed{x, routing, 0, tokens};
  routed.sent = std::make_shared<SentRows>(SentRows{{{*p.ranks.experts, share, experts}, {}, p.exec()}});
  SentRows& rows = *routed.sent;
  rows.begin = begin, rows.count = end - begin, rows.weights = routing.weights.slice(0, begin, end);
  rows.rows = rows.exchange.dispatch(x.slice(0, begin, end), ids, of_a_gpu(p.exec().mode) ? tile_rows : 1);
  routed.routing.counts.assign(static_cast<std::size_t>(experts), 0);
  std::copy(rows.rows.counts.begin(), rows.rows.counts.end(), routed.routing.counts.begin() + share.begin(experts));
  return routed;
}

/// What becomes of the rows here, and for this rank's tokens what became of them everywhere.
Tensor sent_back(const Pass& p, const Routed& routed) {
  SentRows& sent = *routed.sent;
  const io::Stopwatch clock;
  const Tensor rows = sent.rows.count.defined() ? p.weights.backend().run_sent(p, routed.routing, sent.rows)
                                                : Tensor(DType::bf16, {0, 0, routed.x.size(1)});
  p.trace.add({.op = "run_sent", .seconds = clock.seconds(), .work = products_of(p, routed.routing)});
  const Tensor mine = sent.exchange.combine(rows, sent.weights);
  return p.ranks.own_tokens ? mine : joined(p.ranks.experts->gather(mine));
}

}  // namespace

Routed of_all_ranks(const Pass& p, const Tensor& x, const Routing& routing) {
  if (p.ranks.experts == nullptr) return {x, routing, 0, x.size(0)};
  check_experts_apart(p.weights.backend(), p.weights.setting(), p.weights.source().shard().experts.count);
  if (p.weights.backend().run_sent != nullptr) return sent(p, x, routing);
  if (!p.ranks.own_tokens) return {x, routing, 0, x.size(0)};
  const auto all = [&](const Tensor& mine) { return joined(p.ranks.experts->gather(mine.contiguous() ? mine : mine.clone())); };
  const std::vector<Tensor> ids = p.ranks.experts->gather(routing.ids);
  Routed routed{all(x), {all(routing.weights), joined(ids), {}}, 0, x.size(0)};
  for (std::int64_t r = 0; r < p.weights.source().shard().experts.index; ++r) routed.begin += ids[static_cast<std::size_t>(r)].size(0);
  routed.routing.counts = rows_of_experts(p, routed.routing.ids);
  return routed;
}

Tensor routed_experts(const Pass& p, const Routed& routed) {
  const Tensor& x = routed.x;
  const Routing& routing = routed.routing;
  const std::int64_t begin = routed.begin, count = routed.count;
  if (!p.weights.source().shard().experts.whole() && sums_by_rank(p.weights.backend(), p.weights.setting())) {
    if (!p.ranks.own_tokens || p.trace.plans()) return sum_of_ranks(p, x, routing);
    const auto all = [&](const Pass& of_all) { return sum_of_ranks(of_all, x, routing); };
    return apart(p, x.size(0), p.config(), p.weights.source().config(), all).slice(0, begin, begin + count);
  }
  if (p.ranks.experts == nullptr) return p.weights.backend().run(p, x, routing);
  p.trace.enter(Part::mlp_moe, "self.experts()");
  const Trace::Scope scope(p.trace);
  if (routed.sent) {
    Tensor out = sent_back(p, routed);
    p.trace.gives({{"output", out}});
    return out;
  }
  const Rows* const rows = rows_of(p.weights.backend());
  const std::vector<Tensor> parts = p.ranks.experts->gather(rows_made_here(p, x, routing, rows->weighed));
  const std::int64_t columns = routing.ids.size(1), first = begin * columns, behind = first + count * columns;
  const Tensor mine = Tensor::uninitialized(x.dtype(), {count, columns, x.size(1)});
  const Share share = p.weights.source().shard().experts;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const Share of{static_cast<std::int64_t>(r), share.count};
    const std::int64_t experts = p.weights.source().config().n_routed_experts, expert = of.begin(experts);
    put_rows(parts[r], slots_of(p, routing, {expert, expert + of.size(experts)}), first, behind, mine);
  }
  const Routing chosen{routing.weights.slice(0, begin, begin + count), routing.ids.slice(0, begin, begin + count), {}};
  const io::Stopwatch clock;
  Tensor out = rows->combine(p, mine, chosen);
  p.trace.add({.op = "combine", .seconds = clock.seconds(), .work = reading({mine, out})});
  p.trace.gives({{"output", out}});
  return out;
}

}  // namespace dodona::model
