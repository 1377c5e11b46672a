#include "model/kv_cache.h"

#include <algorithm>
#include <string>

#include "core/random.h"
#include "core/threads.h"
#include "dodona/error.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

std::int64_t pages_of(std::int64_t tokens) {
  return (tokens + PagedKvCache::page_size - 1) / PagedKvCache::page_size;
}

}  // namespace

PagedKvCache::PagedKvCache(const ModelConfig& config, DType type, std::span<const std::int64_t> capacities, std::uint64_t page_seed)
    : capacities_(capacities.begin(), capacities.end()) {
  if (capacities_.empty()) throw Error(ErrorCode::bad_value, "", "batch", "is 0, expected at least one request");
  std::int64_t pages = 0, widest = 0;
  for (std::size_t b = 0; b < capacities_.size(); ++b) {
    const std::int64_t tokens = capacities_[b];
    if (tokens < 1 || tokens > config.max_position_embeddings)
      throw Error(ErrorCode::bad_value, "", "kv_len",
                  "of request " + std::to_string(b) + " is " + std::to_string(tokens) + ", expected 1 to " +
                      std::to_string(config.max_position_embeddings) + " (max_position_embeddings)");
    pages += pages_of(tokens);
    widest = std::max(widest, pages_of(tokens));
  }
  if (pages > (std::int64_t{1} << 30))
    throw Error(ErrorCode::bad_value, "", "kv_len", "needs " + std::to_string(pages) + " pages, more than page ids can name");
  buffer_ = Tensor(type, {(pages + 1) * page_size, 1, config.latent_dim()});
  page_table_ = Tensor(DType::i32, {requests(), widest});
  std::vector<std::int64_t> order(static_cast<std::size_t>(pages));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i) + 1;
  if (page_seed != 0) shuffle(Stream(page_seed, "kv_cache.pages"), order);
  auto* const table = page_table_.as<std::int32_t>();
  std::size_t next = 0;
  for (std::int64_t b = 0; b < requests(); ++b)
    for (std::int64_t i = 0; i < widest; ++i)
      table[b * widest + i] = i < pages_of(capacities_[static_cast<std::size_t>(b)]) ? static_cast<std::int32_t>(order[next++]) : -1;
}

Tensor PagedKvCache::pages() const {
  return buffer_.reshape({buffer_.size(0) / page_size, page_size, buffer_.size(2)});
}

std::int64_t PagedKvCache::slot(std::int64_t request, std::int64_t token) const {
  const std::int64_t page = page_table_.as<std::int32_t>()[request * page_table_.size(1) + token / page_size];
  return page * page_size + token % page_size;
}

void PagedKvCache::check(std::span<const std::int64_t> lengths) const {
  if (lengths.size() != capacities_.size())
    throw Error(ErrorCode::bad_shape, "", "kv_len",
                "has " + std::to_string(lengths.size()) + " values, expected one for each of " + std::to_string(requests()) + " requests");
  for (std::size_t b = 0; b < lengths.size(); ++b)
    if (lengths[b] < 1 || lengths[b] > capacities_[b])
      throw Error(ErrorCode::bad_value, "", "kv_len",
                  "of request " + std::to_string(b) + " is " + std::to_string(lengths[b]) + ", expected 1 to " +
                      std::to_string(capacities_[b]) + " (its pages)");
}

Tensor PagedKvCache::last_slots(std::span<const std::int64_t> lengths) const {
  check(lengths);
  Tensor slots(DType::i64, {requests()});
  for (std::int64_t b = 0; b < requests(); ++b) slots.as<std::int64_t>()[b] = slot(b, lengths[static_cast<std::size_t>(b)] - 1);
  return slots;
}

Tensor PagedKvCache::lengths_tensor(std::span<const std::int64_t> lengths) const {
  check(lengths);
  Tensor tensor(DType::i32, {requests()});
  for (std::int64_t b = 0; b < requests(); ++b)
    tensor.as<std::int32_t>()[b] = static_cast<std::int32_t>(lengths[static_cast<std::size_t>(b)]);
  return tensor;
}

void PagedKvCache::synthesize_history(std::uint64_t seed, std::span<const std::int64_t> lengths, int threads) {
  check(lengths);
  const std::int64_t columns = buffer_.size(2);
  for (std::int64_t b = 0; b < requests(); ++b) {
    const Stream stream(seed, "kv_cache.request." + std::to_string(b));
    parallel_for(threads, lengths[static_cast<std::size_t>(b)] - 1, 100.0 * static_cast<double>(columns), [&](std::int64_t token) {
      std::vector<float> row(static_cast<std::size_t>(columns));
      fill_normal(stream, static_cast<std::uint64_t>(token * columns), row);
      auto* const out = buffer_.as<std::byte>() + bytes_for(buffer_.dtype(), slot(b, token) * columns);
      quant::from_f32(buffer_.dtype(), row.data(), out, columns);
    });
  }
}

}  // namespace dodona::model
