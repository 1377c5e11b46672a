#include "ops/softmax/layouts/extend.h"

#include <algorithm>

#include "core/flaw.h"
#include "ops/base/index_at.h"
#include "quant/element.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t most_tokens = 64;

const std::byte* row_of(const Tensor& t, std::int64_t token, std::int64_t head) {
  return t.as<const std::byte>() + (token * t.stride(0) + head * t.stride(1)) * (bits(t.dtype()) / 8);
}

}  // namespace

Tensor rounded_queries(const Tensor& query) {
  constexpr float most = 448;
  const std::int64_t width = query.size(2), heads = query.size(1);
  Tensor rounded(DType::f8_e4m3, query.shape());
  std::vector<float> row(static_cast<std::size_t>(width));
  for (std::int64_t i = 0; i < query.size(0) * heads; ++i) {
    quant::to_f32(query.dtype(), row_of(query, i / heads, i % heads), row.data(), width);
    for (float& x : row) x = std::clamp(x, -most, most);
    quant::from_f32(DType::f8_e4m3, row.data(), rounded.as<std::byte>() + i * width, width);
  }
  return rounded;
}

bool Extend::sees(const ExtendRequest& request, std::int64_t i, std::int64_t j) const {
  const bool fresh = j >= request.prefix;
  const std::int64_t own = request.prefix + i;
  if (window > 0 && j < window_begin(own - window, own, window_tile)) return false;
  if (request.mask != nullptr && (fresh || mask_on_prefix)) {
    const std::int64_t end = causal ? (i / block_rows + 1) * block_rows : request.queries;
    return j - request.prefix < end && (request.mask[i * request.mask_stride + j] & 1) != 0;
  }
  return !fresh || !causal || j - request.prefix <= i;
}

std::int64_t Extend::slot(const ExtendRequest& request, std::int64_t j) const {
  return index_at(slots, request.first_slot + j);
}

const std::byte* Extend::key_row(const ExtendRequest& request, std::int64_t j, std::int64_t head) const {
  return j < request.prefix ? row_of(key_pool, slot(request, j), head) : row_of(key, request.first_query + j - request.prefix, head);
}

const std::byte* Extend::value_row(const ExtendRequest& request, std::int64_t j, std::int64_t head) const {
  return j < request.prefix ? row_of(value_pool, slot(request, j), head) : row_of(value, request.first_query + j - request.prefix, head);
}

ExtendAttention::ExtendAttention(const Extend& call, const std::vector<ExtendRequest>& requests)
    : call_(call), requests_(requests), group_(call.query.size(1) / std::max<std::int64_t>(1, call.key.size(1))) {
  one_token_ = std::any_of(requests.begin(), requests.end(), [&](const ExtendRequest& r) { return call.masked(r); });
  for (std::size_t r = 0; r < requests_.size(); ++r)
    for (std::int64_t i = 0; i < requests_[r].queries; i += one_token_ ? 1 : most_tokens) {
      Piece& piece = pieces_.emplace_back(Piece{r, i, one_token_ ? 1 : std::min(most_tokens, requests_[r].queries - i), {}});
      for (std::int64_t j = 0; one_token_ && j < requests_[r].keys(); ++j)
        if (call.sees(requests_[r], i, j)) piece.seen.push_back(static_cast<std::int32_t>(j));
    }
  const std::int64_t query_heads = call.query.size(1);
  units_ = one_token_ ? call.key.size(1) : query_heads;
  rows = query_heads == 0 ? 0 : static_cast<std::int64_t>(pieces_.size()) * units_;
  heads = one_token_ ? group_ : most_tokens;
  key_width = call.key.size(2);
  value_width = call.value.size(2);
  type = call.key.dtype();
  if (call.in_fp8()) cached = CachedKeys{DType::f8_e4m3, DType::f8_e4m3, DType::f8_e4m3, {}};
  scale = call.scale;
  cap = call.cap;
  out = call.out;
  out_step = one_token_ ? 1 : query_heads;
}

std::int64_t ExtendAttention::visible_to(std::int64_t row, std::int64_t query) const {
  const Piece& here = piece(row);
  if (one_token_) return static_cast<std::int64_t>(here.seen.size());
  return call_.causal ? request(row).prefix + here.first + query + 1 : request(row).keys();
}

std::int64_t ExtendAttention::out_row(std::int64_t row) const {
  return (request(row).first_query + piece(row).first) * call_.query.size(1) + first_head(row);
}

QueryParts ExtendAttention::queries_in(const Tensor& q, std::int64_t row) const {
  const std::byte* const first = row_of(q, request(row).first_query + piece(row).first, first_head(row));
  return {QueryPart{first, q.stride(one_token_ ? 1 : 0) * (bits(q.dtype()) / 8), q.size(2)}, QueryPart{}};
}

void ExtendAttention::list(std::int64_t row, std::int64_t first, std::int64_t count, const std::byte** keys,
                           const std::byte** values) const {
  const Piece& here = piece(row);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t j = one_token_ ? here.seen[static_cast<std::size_t>(first + i)] : first + i;
    keys[i] = call_.key_row(request(row), j, key_head(row));
    values[i] = call_.value_row(request(row), j, key_head(row));
  }
}

std::int64_t ExtendAttention::cached_keys(std::int64_t row) const {
  const std::int64_t prefix = request(row).prefix;
  if (!cached) return 0;
  if (!one_token_) return prefix;
  const auto& seen = piece(row).seen;
  return std::lower_bound(seen.begin(), seen.end(), static_cast<std::int32_t>(prefix)) - seen.begin();
}

double ExtendAttention::sink(std::int64_t row, std::int64_t query) const {
  return call_.sinks.defined() ? quant::get(call_.sinks, first_head(row) + (one_token_ ? query : 0)) : Attention::sink(row, query);
}

double ExtendAttention::temperature(std::int64_t row, std::int64_t query) const {
  return ops::temperature(request(row).prefix + piece(row).first + (one_token_ ? 0 : query), call_.temperature);
}

}  // namespace dodona::ops
