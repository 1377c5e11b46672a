#include "ops/softmax/layouts/ragged.h"

#include <algorithm>

#include "core/flaw.h"
#include "quant/element.h"

namespace dodona::ops {
namespace {

/// Of a row: as many as share keys that are packed for a matrix unit.
constexpr std::int64_t most_tokens = 128;

}  // namespace

std::vector<RaggedRequest> masked_by(CausalMask mask, std::vector<RaggedRequest> requests) {
  for (RaggedRequest& request : requests) {
    if (!request.causal) continue;
    if (mask == CausalMask::from_first_key) request.keys = std::min(request.keys, request.queries);
    if (mask == CausalMask::own_key_hidden) request.further = -1;
    if (mask == CausalMask::next_key_seen) request.further = 1;
  }
  return requests;
}

std::vector<RaggedRequest> one_by_one(const std::vector<RaggedRequest>& requests, std::int64_t tile) {
  std::vector<RaggedRequest> single;
  for (const RaggedRequest& r : requests)
    for (std::int64_t i = 0; i < r.queries; ++i) {
      const std::int64_t own = i + r.keys - r.queries, end = r.causal ? std::clamp<std::int64_t>(own + 1 + r.further, 0, r.keys) : r.keys,
                         first = r.window < 0 ? 0 : std::clamp<std::int64_t>(window_begin(own - r.window, own, tile), 0, end);
      single.push_back({r.first_query + i, 1, r.first_key + first, end - first, false});
    }
  return single;
}

RaggedAttention::RaggedAttention(const Ragged& call, const std::vector<RaggedRequest>& requests)
    : call_(call),
      heads_(call.query.size(1)),
      group_(heads_ / std::max<std::int64_t>(1, call.key.size(1))),
      one_token_(std::all_of(requests.begin(), requests.end(), [](const RaggedRequest& r) { return r.queries <= 1; })) {
  for (const RaggedRequest& request : requests)
    for (std::int64_t i = 0; i < request.queries; i += most_tokens) {
      const std::int64_t own = i + request.keys - request.queries;
      blocks_.push_back({.first_query = request.first_query + i,
                         .queries = std::min(most_tokens, request.queries - i),
                         .first_key = request.first_key,
                         .keys = request.keys,
                         .first_sees = request.causal ? own + 1 + request.further : request.keys,
                         .first_hides = request.window < 0 ? 0 : own - request.window,
                         .causal = request.causal,
                         .hides = request.window >= 0});
    }
  units_ = one_token_ ? call.key.size(1) : heads_;
  rows = heads_ == 0 ? 0 : static_cast<std::int64_t>(blocks_.size()) * units_;
  heads = one_token_ ? group_ : most_tokens;
  key_width = call.key.size(2);
  value_width = call.value.size(2);
  type = call.key.dtype();
  scale = call.scale;
  out_scale = call.out_scale;
  cap = call.cap;
  out = call.out;
  lse = call.lse;
  out_step = lse_step = one_token_ ? 1 : heads_;
}

std::int64_t RaggedAttention::visible_to(std::int64_t row, std::int64_t query) const {
  const Block& here = block(row);
  return here.causal ? std::clamp<std::int64_t>(here.first_sees + token_of(query), 0, here.keys) : here.keys;
}

std::int64_t RaggedAttention::hidden_to(std::int64_t row, std::int64_t query) const {
  const Block& here = block(row);
  return here.hides ? std::clamp<std::int64_t>(here.first_hides + token_of(query), 0, visible_to(row, query)) : 0;
}

std::int64_t RaggedAttention::visible(std::int64_t row) const {
  return visible_to(row, block(row).queries - 1);
}

double RaggedAttention::sink(std::int64_t row, std::int64_t query) const {
  return call_.sinks.defined() ? quant::get(call_.sinks, first_head(row) + (one_token_ ? query : 0)) : Attention::sink(row, query);
}

QueryParts RaggedAttention::queries(std::int64_t row) const {
  const Tensor& query = call_.query;
  const std::int64_t bytes = bits(query.dtype()) / 8, offset = block(row).first_query * query.stride(0) + first_head(row) * query.stride(1);
  return {QueryPart{query.as<const std::byte>() + offset * bytes, query.stride(one_token_ ? 1 : 0) * bytes, query.size(2)}, QueryPart{}};
}

void RaggedAttention::list(std::int64_t row, std::int64_t first, std::int64_t count, const std::byte** keys,
                           const std::byte** values) const {
  const std::int64_t bytes = bits(type) / 8, head = first_head(row) / group_, begin = block(row).first_key + first;
  const auto address = [&](const Tensor& t, std::int64_t j) {
    return t.as<const std::byte>() + (j * t.stride(0) + head * t.stride(1)) * bytes;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    keys[i] = address(call_.key, begin + i);
    values[i] = address(call_.value, begin + i);
  }
}

}  // namespace dodona::ops
