// The paged cache of MLA latents of one layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dodona/tensor.h"
#include "model/config/config.h"
#include "model/layer/batch.h"

namespace dodona::model {

/// Slots of [latent, normalised | k_pe, rotated], one for each token, in pages of 128. Page 0 is never given to a request: it takes the
/// dummy writes of padded tokens, as upstream's does.
class PagedKvCache {
 public:
  static constexpr std::int64_t page_size = 128;
  /// Elements of a row of sparse attention's cache in e4m3, which are bytes: 512 codes, a scale in fp32 for each 128 of them, and the key
  /// part, 64 elements of bf16. See quantize_k_cache.
  static constexpr std::int64_t scaled_row = 656;

  /// Room for capacities[b] tokens of request b; elements of `type` (bf16, f8_e4m3, or f32 where roundings are off), zero. With a page seed
  /// the pages are dealt out in a shuffled order, otherwise in turn. Throws Error (bad_value) for no requests and for capacities below 1 or
  /// beyond max_position_embeddings; out_of_memory.
  PagedKvCache(const ModelConfig& config, DType type, std::span<const std::int64_t> capacities, std::uint64_t page_seed = 0);
  /// The same without memory, for plans: sizes alone.
  static PagedKvCache planned(const ModelConfig& config, DType type, std::span<const std::int64_t> capacities);

  std::int64_t requests() const { return static_cast<std::int64_t>(capacities_.size()); }
  /// [slots, 1, 576], or of scaled rows [slots, 1, 656]
  const Tensor& buffer() const { return buffer_; }
  bool scaled_rows() const { return buffer_.size(2) == scaled_row; }
  /// The same memory as [pages, 128, 576].
  Tensor pages() const;
  /// With sparse attention, the indexer's keys of the same slots: u8 [slots / 64, 8448], see set_index_k_scale_buffer. Else undefined.
  const Tensor& index_k() const { return index_k_; }
  /// i32 [B, W], -1 beyond a request's pages.
  const Tensor& page_table() const { return page_table_; }
  /// The rows of those requests, which may come more than once; with pages of `tokens` slots, a divisor of 128, i32 [B, W * 128 / tokens].
  Tensor page_table(std::span<const std::int64_t> requests, std::int64_t tokens = page_size) const;
  /// Pages of 64 slots, as the indexer has them, and of one.
  Tensor index_pages(std::span<const std::int64_t> requests) const { return page_table(requests, 64); }
  Tensor token_slots(std::span<const std::int64_t> requests) const { return page_table(requests, 1); }
  std::int64_t slot(std::int64_t request, std::int64_t token) const;
  /// Bytes of the pages that requests have.
  double bytes() const;

  /// Bytes that a token has here: its row, and its key of the indexer where there is one.
  std::int64_t token_bytes() const;
  void read_token(std::int64_t request, std::int64_t token, std::byte* out) const;
  void write_token(std::int64_t request, std::int64_t token, const std::byte* from);
  /// What `from` holds stands at `to` too.
  void move_token(std::int64_t request, std::int64_t from, std::int64_t to);

  /// Gives every token of the batch the slot of its position; those of trees one behind the other. Throws Error as check does.
  void place(Batch& batch) const;
  /// Throws Error (bad_value) naming the field unless the batch is valid, its requests are this cache's, each once, their lengths are
  /// within the capacities, and slots are distinct and lie in pages of their requests.
  void check(const Batch& batch) const;

  /// Draws the rows of tokens 0 ... lengths[b] - 2 from the seed: normal, with the latents' and the keys' unit variance after a norm.
  /// A row depends on the seed, the request and the token only, not on where its page lies. Likewise the indexer's keys, where there are
  /// any.
  void synthesize_history(std::uint64_t seed, std::span<const std::int64_t> lengths, int threads);

 private:
  PagedKvCache() = default;
  std::int64_t widest() const;
  /// Where a token's bytes lie, piece by piece.
  struct Piece {
    std::byte* at;
    std::int64_t bytes;
  };
  std::vector<Piece> pieces(std::int64_t request, std::int64_t token) const;
  void check_lengths(const Batch& batch) const;

  void synthesize_index(std::uint64_t seed, std::span<const std::int64_t> lengths, int threads);
  Tensor whole_pages(std::span<const std::int64_t> requests) const;

  std::vector<std::int64_t> capacities_;
  Tensor buffer_, page_table_, index_k_;
};

}  // namespace dodona::model
