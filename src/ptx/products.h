// What tensor-core instructions have in common: a tile of sums, transposed,
// that takes one step's products.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
/// Four times four words, transposed: lines `from_stride` words apart to lines `to_stride` apart.
inline void transpose_words(const void* from, std::size_t from_stride, void* to, std::size_t to_stride) {
  using Four = std::uint32_t __attribute__((vector_size(16)));
  std::array<Four, 4> v;
  for (std::size_t k = 0; k < 4; ++k) std::memcpy(&v[k], static_cast<const std::uint32_t*>(from) + k * from_stride, 16);
  const Four a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5), b = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5),
             c = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7), d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
  v = {__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7), __builtin_shufflevector(c, d, 0, 1, 4, 5),
       __builtin_shufflevector(c, d, 2, 3, 6, 7)};
  for (std::size_t k = 0; k < 4; ++k) std::memcpy(static_cast<std::uint32_t*>(to) + k * to_stride, &v[k], 16);
}
/// A register of sums (of fp32 or of whole numbers) to its places and back.
inline void spread_sums(const std::uint32_t* from, void* to) {
  transpose_words(from, 4, to, 32);
  transpose_words(from + 16, 4, static_cast<std::uint32_t*>(to) + 4, 32);
}
inline void gather_sums(const void* from, std::uint32_t* to) {
  transpose_words(from, 32, to, 4);
  transpose_words(static_cast<const std::uint32_t*>(from) + 4, 32, to + 16, 4);
}
/// A register of an operand to rows of `words` words.
inline void spread_words(const std::uint32_t* from, std::uint32_t* to, std::size_t words) {
  for (std::size_t g = 0; g < 8; ++g) std::memcpy(to + g * words, from + 4 * g, 16);
}

/// Which instruction adds.
enum class Unit : std::uint8_t { mma_sync, wgmma };

/// Operands of recent instructions, decoded: a loop takes the same ones many times. Of one thread of the CPU. A `key` (registers, a
/// descriptor) says where an operand is looked for; whether it is the same one, its codes say.
class Tiles {
 public:
  explicit Tiles(Isa isa);

  /// sums[n][row] += sum over k of a[row][k] * b[n][k]; `a` has 16 rows, both are row-major and packed. fp32 sums.
  struct Operand {
    MatrixType type;
    const void* codes;
    std::uint64_t key;
  };
  void add(Unit unit, const Operand& a, const Operand& b, int columns, int k, float* sums);

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
  const Decoded& find(std::vector<Kept<Decoded>>& kept, Unit unit, const Operand& o, int lines, int k);

  std::vector<Kept<ops::MmaColumns>> left_;
  std::vector<Kept<ops::MmaRows>> right_;
};
/// fp16 sums, as fp32 numbers: one rounding to fp16 of the aligned sum.
void add_half_products(MatrixType a_type, const void* a, MatrixType b_type, const void* b, int columns, int k, float* sums);
void add_whole_products(MatrixType a_type, const void* a, MatrixType b_type, const void* b, int columns, int k, std::int32_t* sums,
                        bool saturates);

}  // namespace dodona::ptx
