#include "model/layer/attention/kv_cache.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "core/define.h"
#include "core/random.h"
#include "core/threads.h"
#include "dodona/error.h"
#include "model/weights/without_memory.h"
#include "ops/kv_cache/quantize_k_cache.h"
#include "ops/nsa/act_quant.h"
#include "ops/nsa/set_index_k_scale_buffer.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

constexpr std::int64_t index_page = 64, index_width = 128, index_page_bytes = index_page * (index_width + 4);

std::int64_t pages_of(std::int64_t tokens) {
  return (tokens + PagedKvCache::page_size - 1) / PagedKvCache::page_size;
}
std::int64_t pages_of(std::span<const std::int64_t> capacities) {
  std::int64_t pages = 0;
  for (const std::int64_t tokens : capacities) pages += pages_of(tokens);
  return pages;
}

std::vector<std::int64_t> checked(const ModelConfig& config, std::span<const std::int64_t> capacities) {
  if (capacities.empty()) throw Error(ErrorCode::bad_value, "", "batch", "is 0, expected at least one request");
  for (std::size_t b = 0; b < capacities.size(); ++b)
    if (capacities[b] < 1 || capacities[b] > config.max_position_embeddings)
      throw Error(ErrorCode::bad_value, "", "kv_len",
                  "of request " + std::to_string(b) + " is " + std::to_string(capacities[b]) + ", expected 1 to " +
                      std::to_string(config.max_position_embeddings) + " (max_position_embeddings)");
  return {capacities.begin(), capacities.end()};
}

std::int64_t row_elements(const ModelConfig& config, DType type) {
  return config.sparse() && type == DType::f8_e4m3 ? PagedKvCache::scaled_row : config.latent_dim();
}

/// As quantize_k_cache has them.
void store_scaled(std::span<const float> row, std::byte* out) {
  const Tensor wide(DType::bf16, {1, static_cast<std::int64_t>(row.size())});
  quant::from_f32(DType::bf16, row.data(), wide.data(), wide.elements());
  const Tensor bytes = ops::run(ops::QuantizeKCache{.cache_k = wide}, {.threads = 1}).output;
  std::copy_n(bytes.as<std::byte>(), bytes.elements(), out);
}

}  // namespace

PagedKvCache::PagedKvCache(const ModelConfig& config, DType type, std::span<const std::int64_t> capacities, std::uint64_t page_seed)
    : capacities_(checked(config, capacities)) {
  const std::int64_t pages = pages_of(capacities_), wide = widest();
  if (pages > (std::int64_t{1} << 30))
    throw Error(ErrorCode::bad_value, "", "kv_len", "needs " + std::to_string(pages) + " pages, more than page ids can name");
  buffer_ = Tensor(type, {(pages + 1) * page_size, 1, row_elements(config, type)});
  if (config.sparse()) index_k_ = Tensor(DType::u8, {buffer_.size(0) / index_page, index_page_bytes});
  page_table_ = Tensor(DType::i32, {requests(), wide});
  std::vector<std::int64_t> order(static_cast<std::size_t>(pages));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i) + 1;
  if (page_seed != 0) shuffle(Stream(page_seed, "kv_cache.pages"), order);
  auto* const table = page_table_.as<std::int32_t>();
  std::size_t next = 0;
  for (std::int64_t b = 0; b < requests(); ++b)
    for (std::int64_t i = 0; i < wide; ++i)
      table[b * wide + i] = i < pages_of(capacities_[static_cast<std::size_t>(b)]) ? static_cast<std::int32_t>(order[next++]) : -1;
}

PagedKvCache PagedKvCache::planned(const ModelConfig& config, DType type, std::span<const std::int64_t> capacities) {
  PagedKvCache cache;
  cache.capacities_ = checked(config, capacities);
  cache.buffer_ = without_memory(type, {(pages_of(cache.capacities_) + 1) * page_size, 1, row_elements(config, type)});
  if (config.sparse()) cache.index_k_ = without_memory(DType::u8, {cache.buffer_.size(0) / index_page, index_page_bytes});
  cache.page_table_ = without_memory(DType::i32, {cache.requests(), cache.widest()});
  return cache;
}

std::int64_t PagedKvCache::widest() const {
  return pages_of(*std::max_element(capacities_.begin(), capacities_.end()));
}

double PagedKvCache::bytes() const {
  const std::int64_t slots = pages_of(capacities_) * page_size;
  const std::int64_t of_index = index_k_.defined() ? slots / index_page * index_page_bytes : 0;
  return static_cast<double>(bytes_for(buffer_.dtype(), slots * buffer_.size(2)) + of_index);
}

Tensor PagedKvCache::pages() const {
  return buffer_.reshape({buffer_.size(0) / page_size, page_size, buffer_.size(2)});
}

std::int64_t PagedKvCache::slot(std::int64_t request, std::int64_t token) const {
  const std::int64_t page = page_table_.as<std::int32_t>()[request * page_table_.size(1) + token / page_size];
  return page * page_size + token % page_size;
}

std::vector<PagedKvCache::Piece> PagedKvCache::pieces(std::int64_t request, std::int64_t token) const {
  const std::int64_t at = slot(request, token), bytes = bytes_for(buffer_.dtype(), buffer_.size(2));
  std::vector<Piece> all{{buffer_.as<std::byte>() + at * bytes, bytes}};
  if (!index_k_.defined()) return all;
  std::byte* const page = index_k_.as<std::byte>() + at / index_page * index_page_bytes;
  constexpr std::int64_t scale_bytes = 4;
  all.push_back({page + at % index_page * index_width, index_width});
  all.push_back({page + index_page * index_width + at % index_page * scale_bytes, scale_bytes});
  return all;
}

std::int64_t PagedKvCache::token_bytes() const {
  return bytes_for(buffer_.dtype(), buffer_.size(2)) + (index_k_.defined() ? index_page_bytes / index_page : 0);
}
void PagedKvCache::read_token(std::int64_t request, std::int64_t token, std::byte* out) const {
  for (const Piece& piece : pieces(request, token)) out = std::copy_n(piece.at, piece.bytes, out);
}
void PagedKvCache::write_token(std::int64_t request, std::int64_t token, const std::byte* from) {
  for (const Piece& piece : pieces(request, token)) {
    std::copy_n(from, piece.bytes, piece.at);
    from += piece.bytes;
  }
}
void PagedKvCache::move_token(std::int64_t request, std::int64_t from, std::int64_t to) {
  std::vector<std::byte> held(static_cast<std::size_t>(token_bytes()));
  read_token(request, from, held.data());
  write_token(request, to, held.data());
}

Tensor PagedKvCache::whole_pages(std::span<const std::int64_t> requests) const {
  const auto count = static_cast<std::int64_t>(requests.size());
  const bool all =
      count == this->requests() && std::adjacent_find(requests.begin(), requests.end(), std::greater_equal<>()) == requests.end();
  if (all) return page_table_;
  Tensor rows = Tensor::uninitialized(DType::i32, {count, page_table_.size(1)});
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t request = requests[static_cast<std::size_t>(r)];
    copy(page_table_.slice(0, request, request + 1), rows.slice(0, r, r + 1));
  }
  return rows;
}

Tensor PagedKvCache::page_table(std::span<const std::int64_t> requests, std::int64_t tokens) const {
  Tensor table = whole_pages(requests);
  const std::int64_t parts = page_size / tokens;
  if (parts == 1) return table;
  Tensor split = Tensor::uninitialized(DType::i32, {table.size(0), table.size(1) * parts});
  for (std::int64_t i = 0; i < split.elements(); ++i) {
    const std::int32_t page = table.as<const std::int32_t>()[i / parts];
    split.as<std::int32_t>()[i] = page < 0 ? -1 : page * static_cast<std::int32_t>(parts) + static_cast<std::int32_t>(i % parts);
  }
  return split;
}

void PagedKvCache::check_lengths(const Batch& batch) const {
  std::vector<bool> taken(capacities_.size(), false);
  for (std::size_t r = 0; r < batch.requests.size(); ++r) {
    const std::int64_t request = batch.requests[r];
    if (request < 0 || request >= requests() || taken[static_cast<std::size_t>(request)])
      throw Error(ErrorCode::bad_value, "", "batch requests",
                  "has " + std::to_string(request) + ", expected each of 0 to " + std::to_string(requests() - 1) +
                      " (requests of the cache) once at most");
    taken[static_cast<std::size_t>(request)] = true;
    const std::int64_t capacity = capacities_[static_cast<std::size_t>(request)];
    if (batch.lengths[r] < 1 || batch.lengths[r] > capacity)
      throw Error(ErrorCode::bad_value, "", "batch lengths",
                  "has " + std::to_string(batch.lengths[r]) + " for request " + std::to_string(request) + ", expected 1 to " +
                      std::to_string(capacity) + " (its pages)");
  }
}

void PagedKvCache::place(Batch& batch) const {
  batch.slots.assign(batch.positions.size(), 0);
  batch.validate();
  check_lengths(batch);
  for (std::size_t r = 0; r < batch.requests.size(); ++r)
    for (std::int64_t t = batch.query_starts[r]; t < batch.query_starts[r + 1]; ++t) {
      const std::int64_t in_order = batch.prefix(static_cast<std::int64_t>(r)) + t - batch.query_starts[r];
      batch.slots[static_cast<std::size_t>(t)] =
          slot(batch.requests[r], batch.trees() ? in_order : batch.positions[static_cast<std::size_t>(t)]);
    }
}

void PagedKvCache::check(const Batch& batch) const {
  batch.validate();
  check_lengths(batch);
  std::set<std::int64_t> taken;
  for (std::size_t r = 0; r < batch.requests.size(); ++r) {
    const auto* const pages = page_table_.as<std::int32_t>() + batch.requests[r] * page_table_.size(1);
    for (std::int64_t t = batch.query_starts[r]; t < batch.query_starts[r + 1]; ++t) {
      const std::int64_t slot = batch.slots[static_cast<std::size_t>(t)];
      const bool own = slot >= 0 && std::find(pages, pages + page_table_.size(1), slot / page_size) != pages + page_table_.size(1);
      if (!own || !taken.insert(slot).second)
        throw Error(ErrorCode::bad_value, "", "batch slots",
                    "has " + std::to_string(slot) + " for token " + std::to_string(t) +
                        ", expected a slot of its own in the pages of request " + std::to_string(batch.requests[r]));
    }
  }
}

void PagedKvCache::synthesize_history(std::uint64_t seed, std::span<const std::int64_t> lengths, int threads) {
  check_lengths(decode_batch(lengths));
  constexpr std::int64_t scaled = 576;  // the numbers of a scaled row
  const std::int64_t columns = scaled_rows() ? scaled : buffer_.size(2);
  for (std::int64_t b = 0; b < requests(); ++b) {
    const Stream stream(seed, "kv_cache.request." + std::to_string(b));
    parallel_for(threads, lengths[static_cast<std::size_t>(b)] - 1, 100.0 * static_cast<double>(columns), [&](std::int64_t token) {
      std::vector<float> row(static_cast<std::size_t>(columns));
      fill_normal(stream, static_cast<std::uint64_t>(token * columns), row);
      auto* const out = buffer_.as<std::byte>() + bytes_for(buffer_.dtype(), slot(b, token) * buffer_.size(2));
      if (scaled_rows())
        store_scaled(row, out);
      else
        quant::from_f32(buffer_.dtype(), row.data(), out, columns);
    });
  }
  if (index_k_.defined()) synthesize_index(seed, lengths, threads);
}

void PagedKvCache::synthesize_index(std::uint64_t seed, std::span<const std::int64_t> lengths, int threads) {
  Exec exec;
  exec.threads = threads;
  for (std::int64_t b = 0; b < requests(); ++b) {
    const std::int64_t tokens = lengths[static_cast<std::size_t>(b)] - 1;
    if (tokens == 0) continue;
    std::vector<float> values(static_cast<std::size_t>(tokens * index_width));
    fill_normal(Stream(seed, "kv_cache.index.request." + std::to_string(b)), 0, values);
    const Tensor keys(DType::bf16, {tokens, index_width}), slots(DType::i64, {tokens});
    quant::from_f32(DType::bf16, values.data(), keys.data(), keys.elements());
    for (std::int64_t token = 0; token < tokens; ++token) slots.as<std::int64_t>()[token] = slot(b, token);
    const ops::ActQuant codes = ops::run(ops::ActQuant{.x = keys, .scale_fmt = "ue8m0"}, exec);
    ops::run(ops::SetIndexKScaleBuffer{.buf = index_k_, .loc = slots, .index_k = codes.y, .index_k_scale = codes.s}, exec);
  }
}

}  // namespace dodona::model
