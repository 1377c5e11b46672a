#include "ops/sums/split_k.h"

#include <algorithm>
#include <charconv>

#include "dodona/error.h"

namespace dodona::ops {

namespace {

std::int64_t number_of(std::string_view text) {
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}
std::int64_t tile_of(const SplitK& split) {
  return number_of(split.block_k);
}
std::int64_t ceil_div(std::int64_t x, std::int64_t y) {
  return (x + y - 1) / y;
}

/// Of a contiguous chunk.
std::int64_t length_of(std::int64_t k, std::int64_t split_k, std::int64_t tile) {
  return ceil_div(ceil_div(k, tile), split_k) * tile;
}

}  // namespace

const std::string_view split_k_contract = R"(
 Hopper mode, cuBLAS's order on an H100: K in tiles of block_k = 64, shared out to split_k chunks of ceil(tiles / split_k) tiles, the
last ones shorter; each chunk a chain of tensor-core steps of 16 products from zero, K ascending; the chunks' fp32 sums added from the
first to the last; rounded once. chunks=interleaved: chunk c is tiles c, c + split_k, c + 2 split_k and so on. chunk_order=descending:
the last chunk's sum first; by_fours: chunk c to sum c mod 4 of four that begin as 0, then ((s0 + s1) + s2) + s3.)";

Accumulator in_chunks(Accumulator accumulator, const SplitK& split) {
  accumulator.parts = split.split_k;
  accumulator.tile = tile_of(split);
  accumulator.chunks = split.chunks == "interleaved" ? Chunks::interleaved : Chunks::contiguous;
  accumulator.chunk_order = split.chunk_order == "descending" ? ChunkOrder::descending
                            : split.chunk_order == "by_fours" ? ChunkOrder::by_fours
                                                              : ChunkOrder::ascending;
  return accumulator;
}

void check_split_k(const SplitK& split, std::int64_t k) {
  const std::int64_t tile = tile_of(split), tiles = std::max<std::int64_t>(ceil_div(k, tile), 1), most = std::min(tiles, most_chunks);
  if (split.split_k < 1 || split.split_k > most)
    throw Error(ErrorCode::bad_value, "", "split_k",
                "is " + std::to_string(split.split_k) + ", expected 1 to " + std::to_string(most) + ": K = " + std::to_string(k) + " has " +
                    std::to_string(tiles) + (tiles == 1 ? " tile of " : " tiles of ") + std::to_string(tile));
}

bool is_simplest(const SplitK& split, std::int64_t k, std::span<const std::string> blocks) {
  const std::int64_t tile = tile_of(split);
  const bool interleaved = split.chunks == "interleaved";
  if (split.split_k == 1) return !interleaved && split.chunk_order == "ascending" && split.block_k == blocks.front();
  const std::int64_t length = length_of(k, split.split_k, tile), chunks = interleaved ? split.split_k : ceil_div(k, length);
  if (chunks <= 2 && split.chunk_order != "ascending") return false;
  if (chunks <= 4 && split.chunk_order == "by_fours") return false;
  if (interleaved) return ceil_div(k, tile) > split.split_k;
  if (split.split_k != chunks) return false;
  for (const std::string& block : blocks) {
    if (block == split.block_k) return true;
    if (length_of(k, chunks, number_of(block)) == length) return false;
  }
  return true;
}

std::optional<Refusal> unknown_half_product(Mode mode, std::string_view left_name, DType left, std::string_view right_name, DType right) {
  if (left == DType::f32 || right == DType::f32)
    return Refusal{std::string(left == DType::f32 ? left_name : right_name),
                   "of dtype f32 has no " + std::string(name(mode)) + " mode: the bits of cuBLAS are known for bf16 and f16"};
  if (left != right)
    return Refusal{std::string(right_name), "of dtype " + std::string(name(right)) + " has no " + std::string(name(mode)) +
                                                " mode beside " + std::string(left_name) + " of " + std::string(name(left)) +
                                                ": the GPUs' kernels take one type for both"};
  return {};
}

}  // namespace dodona::ops
