// Row permutations and block layouts that the trtllm-gen matrix products expect of their weights. All act on the output channels (rows) of
// one expert. A permutation is told as a list: new row p comes from old row permutation[p].
// Source: FlashInfer `reorder_rows_for_gated_act_gemm`, `get_shuffle_matrix_a_row_indices`, `convert_to_block_layout`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dodona::quant {

using RowPermutation = std::vector<std::int64_t>;

/// [gate; up] to [up; gate], or back: the halves of `rows` change places. Throws bad_shape if `rows` is odd.
RowPermutation swapped_halves(std::int64_t rows);
/// New row 2i is old row i, new row 2i+1 is old row rows/2 + i. Throws bad_shape if `rows` is odd.
RowPermutation gated_interleave(std::int64_t rows);
/// Rows per block of shuffle A: 32 if epilogue_tile_m is a multiple of 128, else 16.
[[gnu::always_inline]] constexpr int shuffle_a_block(int epilogue_tile_m) {
  return epilogue_tile_m % 128 == 0 ? 32 : 16;
}
/// Inside each block of 32 (16) rows, old row o goes to new row (o%4)*8 + o/4 ((o%2)*8 + o/2). Throws bad_shape unless `rows` is a multiple
/// of the block, bad_value unless `block` is 16 or 32.
RowPermutation shuffle_a(std::int64_t rows, int block);
/// First `first`, then `second`: new row p comes from first[second[p]].
RowPermutation compose(const RowPermutation& first, const RowPermutation& second);
RowPermutation inverse(const RowPermutation& permutation);

/// Rows of `row_bytes` bytes, reordered. Throws bad_shape if a size does not fit; input and output must not overlap.
void permute_rows(std::span<const std::byte> rows, std::int64_t row_bytes, const RowPermutation& permutation, std::span<std::byte> out);

/// Matrix [rows, row_bytes] to [row_bytes/128, rows, 128]: blocks of 128 bytes along K. Throws bad_shape unless row_bytes % 128 == 0.
void to_block_major_k(std::span<const std::byte> matrix, std::int64_t rows, std::int64_t row_bytes, std::span<std::byte> out);
void from_block_major_k(std::span<const std::byte> blocks, std::int64_t rows, std::int64_t row_bytes, std::span<std::byte> out);
/// Of those rows `count` from `first` on, to out [count, row_bytes].
void rows_from_block_major_k(std::span<const std::byte> blocks, std::int64_t rows, std::int64_t row_bytes, std::int64_t first,
                             std::int64_t count, std::span<std::byte> out);

}  // namespace dodona::quant
