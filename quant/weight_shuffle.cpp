#include "quant/weight_shuffle.h"

#include <cstring>
#include <string>

#include "dodona/error.h"
#include "quant/sizes.h"

namespace dodona::quant {

namespace {

constexpr std::int64_t block_bytes = 128;
constexpr std::int64_t most_rows = std::int64_t{1} << 31;

RowPermutation blank(std::int64_t rows, std::int64_t divisor) {
  require_multiple("rows", rows, divisor);
  require_index("rows", rows, most_rows);
  return RowPermutation(static_cast<std::size_t>(rows));
}

std::int64_t count(const RowPermutation& permutation) {
  return static_cast<std::int64_t>(permutation.size());
}

}  // namespace

RowPermutation swapped_halves(std::int64_t rows) {
  RowPermutation permutation = blank(rows, 2);
  for (std::int64_t p = 0; p < rows; ++p) permutation[static_cast<std::size_t>(p)] = (p + rows / 2) % rows;
  return permutation;
}

RowPermutation gated_interleave(std::int64_t rows) {
  RowPermutation permutation = blank(rows, 2);
  for (std::int64_t p = 0; p < rows; ++p) permutation[static_cast<std::size_t>(p)] = p / 2 + p % 2 * (rows / 2);
  return permutation;
}

RowPermutation shuffle_a(std::int64_t rows, int block) {
  if (block != 16 && block != 32) throw Error(ErrorCode::bad_value, "", "block", "is " + std::to_string(block) + ", expected 16 or 32");
  const std::int64_t lanes = block / 8;
  RowPermutation permutation = blank(rows, block);
  for (std::int64_t old = 0; old < rows; ++old) {
    const std::int64_t o = old % block;
    permutation[static_cast<std::size_t>(old - o + o % lanes * 8 + o / lanes)] = old;
  }
  return permutation;
}

RowPermutation compose(const RowPermutation& first, const RowPermutation& second) {
  require_size("second", second.size(), count(first));
  RowPermutation result(second.size());
  for (std::size_t p = 0; p < second.size(); ++p) {
    require_index("second", second[p], count(first));
    result[p] = first[static_cast<std::size_t>(second[p])];
  }
  return result;
}

RowPermutation inverse(const RowPermutation& permutation) {
  RowPermutation result(permutation.size());
  for (std::size_t p = 0; p < permutation.size(); ++p) {
    require_index("permutation", permutation[p], count(permutation));
    result[static_cast<std::size_t>(permutation[p])] = static_cast<std::int64_t>(p);
  }
  return result;
}

void permute_rows(std::span<const std::byte> rows, std::int64_t row_bytes, const RowPermutation& permutation, std::span<std::byte> out) {
  require_size("rows", rows.size(), area(count(permutation), row_bytes));
  require_size("out", out.size(), count(permutation) * row_bytes);
  if (row_bytes == 0) return;
  for (std::size_t p = 0; p < permutation.size(); ++p) {
    require_index("permutation", permutation[p], count(permutation));
    std::memcpy(out.data() + static_cast<std::int64_t>(p) * row_bytes, rows.data() + permutation[p] * row_bytes,
                static_cast<std::size_t>(row_bytes));
  }
}

void to_block_major_k(std::span<const std::byte> matrix, std::int64_t rows, std::int64_t row_bytes, std::span<std::byte> out) {
  require_multiple("row_bytes", row_bytes, block_bytes);
  require_size("matrix", matrix.size(), area(rows, row_bytes));
  require_size("out", out.size(), rows * row_bytes);
  for (std::int64_t k = 0; k < row_bytes / block_bytes; ++k) {
    for (std::int64_t r = 0; r < rows; ++r)
      std::memcpy(out.data() + (k * rows + r) * block_bytes, matrix.data() + r * row_bytes + k * block_bytes, block_bytes);
  }
}

void from_block_major_k(std::span<const std::byte> blocks, std::int64_t rows, std::int64_t row_bytes, std::span<std::byte> out) {
  rows_from_block_major_k(blocks, rows, row_bytes, 0, rows, out);
}

void rows_from_block_major_k(std::span<const std::byte> blocks, std::int64_t rows, std::int64_t row_bytes, std::int64_t first,
                             std::int64_t many, std::span<std::byte> out) {
  require_multiple("row_bytes", row_bytes, block_bytes);
  require_size("blocks", blocks.size(), area(rows, row_bytes));
  require_size("out", out.size(), area(many, row_bytes));
  if (many > 0) require_index("first", first, rows - many + 1);
  // Blocks to come lie in other pages, which the machine does not foresee.
  constexpr std::int64_t ahead = 2;
  for (std::int64_t k = 0; k < row_bytes / block_bytes; ++k) {
    const std::byte* const block = blocks.data() + (k * rows + first) * block_bytes;
    const bool more = (k + ahead) * block_bytes < row_bytes;
    for (std::int64_t r = 0; r < many; ++r) {
      for (std::int64_t line = 0; more && line < block_bytes; line += 64)
        __builtin_prefetch(block + (ahead * rows + r) * block_bytes + line, 0, 2);
      std::memcpy(out.data() + r * row_bytes + k * block_bytes, block + r * block_bytes, block_bytes);
    }
  }
}

}  // namespace dodona::quant
