// What tensor-core instructions have in common: a tile of sums, transposed,
// that takes one step's products.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "dodona/dtype.h"
#include "dodona/isa.h"
#include "ops/tiles/mma.h"
#include "ptx/program.h"

namespace dodona::ptx {

enum class MatrixType : std::uint8_t { f16, bf16, tf32, e4m3, e5m2, s8, u8, none };
MatrixType matrix_type(std::string_view name);
constexpr int bytes_of(MatrixType type) {
  return type == MatrixType::tf32 ? 4 : type == MatrixType::f16 || type == MatrixType::bf16 ? 2 : 1;
}

/// Numbers of a fragment's sum r of a lane, in [column][16 rows]: its first is that of fragment_sum(lane).
constexpr std::size_t sum_offset(int r) {
  return static_cast<std::size_t>(128 * (r >> 2) + 16 * (r & 1) + 8 * (r >> 1 & 1));
}
constexpr std::size_t fragment_sum(int lane) {
  return static_cast<std::size_t>(2 * (lane % 4) * 16 + lane / 4);
}
/// A register of sums to its places and back.
template <class Number>
void spread_sums(const std::uint32_t* from, Number* to) {
  static_assert(sizeof(Number) == 4);
  for (std::size_t c = 0; c < 4; ++c)
    for (std::size_t g = 0; g < 8; ++g) to[32 * c + g] = std::bit_cast<Number>(from[4 * g + c]);
}
template <class Number>
void gather_sums(const Number* from, std::uint32_t* to) {
  static_assert(sizeof(Number) == 4);
  for (std::size_t g = 0; g < 8; ++g)
    for (std::size_t c = 0; c < 4; ++c) to[4 * g + c] = std::bit_cast<std::uint32_t>(from[32 * c + g]);
}
/// A register of an operand to rows of `words` words.
inline void spread_words(const std::uint32_t* from, std::uint32_t* to, std::size_t words) {
  for (std::size_t g = 0; g < 8; ++g)
    for (std::size_t c = 0; c < 4; ++c) to[g * words + c] = from[4 * g + c];
}

/// Which instruction adds.
enum class Unit : std::uint8_t { mma_sync, wgmma };

/// Operands of recent instructions, decoded: a loop takes the same ones many times. Of one thread of the CPU.
class Tiles {
 public:
  explicit Tiles(Isa isa);

  /// sums[n][row] += sum over k of a[row][k] * b[n][k]; `a` has 16 rows, both are row-major and packed. fp32 sums.
  void add(Unit unit, MatrixType a_type, const void* a, MatrixType b_type, const void* b, int columns, int k, float* sums);

 private:
  template <class Decoded>
  struct Kept {
    std::vector<std::byte> codes;
    MatrixType type = MatrixType::none;
    Unit unit{};
    int lines = 0;
    Decoded decoded;
    explicit Kept(Isa isa) : decoded(isa) {}
  };
  template <class Decoded>
  const Decoded& find(std::vector<Kept<Decoded>>& kept, std::size_t& next, Unit unit, MatrixType type, const void* codes, int lines, int k);

  std::vector<Kept<ops::MmaColumns>> left_;
  std::vector<Kept<ops::MmaRows>> right_;
  std::size_t next_left_ = 0, next_right_ = 0;
};
/// fp16 sums, as fp32 numbers: one rounding to fp16 of the aligned sum.
void add_half_products(MatrixType a_type, const void* a, MatrixType b_type, const void* b, int columns, int k, float* sums);
void add_whole_products(MatrixType a_type, const void* a, MatrixType b_type, const void* b, int columns, int k, std::int32_t* sums,
                        bool saturates);

}  // namespace dodona::ptx
