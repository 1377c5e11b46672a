// Products whose K is split: the bits of a kernel of cuBLAS, or of Triton's, depend on which tiles of K it sums apart and in which order it
// adds those sums, and on nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/describe.h"
#include "dodona/exec.h"
#include "dodona/op.h"
#include "ops/sums/accumulator.h"

namespace dodona::ops {

inline constexpr std::int64_t most_chunks = half_in_parts.parts;

/// What an op with such a kernel says of it, for a GPU's mode.
struct SplitK {
  std::int64_t split_k = 1;
  std::string_view chunks = "contiguous", chunk_order = "ascending", block_k;
};
SplitK split_of(const auto& op) {
  SplitK split{.split_k = op.split_k, .chunk_order = op.chunk_order, .block_k = op.block_k};
  if constexpr (requires { op.chunks; }) split.chunks = op.chunks;
  return split;
}

/// The attributes split_k, chunk_order and block_k of an op; the first of block_k's values is cuBLAS's.
void describe_split_k(auto& op, auto& fields, std::initializer_list<std::string_view> blocks) {
  op.attr("split_k", fields.split_k, between(1, static_cast<double>(most_chunks)))
      .recipe()
      .doc("chunks of K that the kernel sums apart, in hopper mode; see the contract. `dodona whose` reads it off a kernel's outputs");
  op.choice("chunk_order", fields.chunk_order, {"ascending", "descending", "by_fours"})
      .doc(
          "how the chunks' fp32 sums are added: ascending: from the first to the last (cuBLAS, and most kernels that reduce in a second "
          "pass); descending: from the last to the first; by_fours: chunk c to sum c mod 4 of four, and these in order (torch's sum over "
          "a leading dimension)");
  op.choice("block_k", fields.block_k, blocks)
      .doc("numbers of a tile of K, of which chunks are made: 128 bytes in cuBLAS's kernels; Triton's BLOCK_K");
}
/// And chunks.
void describe_chunks(auto& op, std::string& chunks) {
  op.choice("chunks", chunks, {"contiguous", "interleaved"})
      .doc(
          "which tiles are a chunk: contiguous: ceil(tiles / split_k) after one another (cuBLAS); interleaved: every split_k-th (Triton's "
          "split-K)");
}

/// What multiplies numbers, with K shared out so.
Accumulator in_chunks(Accumulator accumulator, const SplitK& split);
/// Throws Error naming the splits that `k` numbers allow.
void check_split_k(const SplitK& split, std::int64_t k);
/// Whether no other split of `k` numbers, of more default values or of fewer chunks, has the same sums: `blocks` are block_k's values, the
/// default first.
bool is_simplest(const SplitK& split, std::int64_t k, std::span<const std::string> blocks);
/// What a GPU's mode does not know of `left` times `right`, the arguments of these names.
std::optional<Refusal> unknown_half_product(Mode mode, std::string_view left_name, DType left, std::string_view right_name, DType right);

/// The contract's words on hopper mode.
extern const std::string_view split_k_contract;

}  // namespace dodona::ops
