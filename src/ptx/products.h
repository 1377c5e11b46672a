// What tensor-core instructions have in common: a tile of sums, transposed,
// that takes one step's products.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dodona/dtype.h"
#include "dodona/isa.h"
#include "ops/tiles/mma/mma.h"
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

/// Registers of an operand to its lines, each of `words` words: a register has four words of eight lines, the next ones are eight lines
/// down (of `lines`), then four words on.
void lay_out_fragment(const std::uint32_t* const* registers, std::size_t count, int lines, void* to, std::size_t words);

/// Which instruction adds.
enum class Unit : std::uint8_t { mma_sync, wgmma };

/// An operand's codes as they were when it was decoded, and what tells whether they are still.
struct KnownCodes {
  std::vector<std::byte> codes;
  std::uint64_t place = 0, stamp = 0;  ///< of matrices in shared memory
  std::uint32_t first_page = 0, last_page = 0;
};
/// Where an operand comes from.
class OperandSource {
 public:
  virtual ~OperandSource() = default;
  /// Brings what is known up to date. False: the codes were others.
  virtual bool refresh(KnownCodes& known) const = 0;
  /// Of refreshed codes, the lines, `bytes` apart.
  virtual void lay_out(const KnownCodes& known, std::byte* lines, std::size_t bytes) const = 0;
};
/// The registers of a warp.
class FragmentSource : public OperandSource {
 public:
  FragmentSource(Isa isa, std::span<const std::uint32_t* const> registers, int lines) : isa_(isa), registers_(registers), lines_(lines) {}
  bool refresh(KnownCodes& known) const override;
  void lay_out(const KnownCodes& known, std::byte* lines, std::size_t bytes) const override;

 private:
  Isa isa_;
  std::span<const std::uint32_t* const> registers_;
  int lines_;
};

/// Operands of recent instructions, decoded: a loop takes the same ones many times. Of one thread of the CPU. A `key` (registers, a
/// descriptor) says where an operand is looked for; whether it is the same one, its source says.
class Tiles {
 public:
  explicit Tiles(Isa isa);

  /// sums[n][row] += sum over k of a[row][k] * b[n][k]; `a` has 16 rows. fp32 sums of 8- and 16-bit floats.
  struct Operand {
    MatrixType type;
    const OperandSource& source;
    std::uint64_t key;
  };
  void add(Unit unit, const Operand& a, const Operand& b, int columns, int k, float* sums);

 private:
  template <class Decoded>
  struct Kept {
    KnownCodes known;
    MatrixType type = MatrixType::none;
    Unit unit{};
    int lines = 0, k = 0;
    Decoded decoded;
    explicit Kept(Isa isa) : decoded(isa) {}
  };
  template <class Decoded>
  const Decoded& find(std::vector<Kept<Decoded>>& kept, Unit unit, const Operand& o, int lines, int k);

  std::vector<Kept<ops::MmaColumns>> left_;
  std::vector<Kept<ops::MmaRows>> right_;
};
/// Of row-major, packed operands, by the definition of the step: tf32; and fp16 sums, as fp32 numbers, with one rounding to fp16 of the
/// aligned sum.
void add_tf32_products(const void* a, const void* b, int columns, int k, float* sums);
void add_half_products(MatrixType a_type, const void* a, MatrixType b_type, const void* b, int columns, int k, float* sums);
void add_whole_products(MatrixType a_type, const void* a, MatrixType b_type, const void* b, int columns, int k, std::int32_t* sums,
                        bool saturates);

/// Of a sparse left operand: the places in K of each row's numbers, [16][k / 2].
struct SparsePlaces {
  static constexpr std::size_t most = 32;
  std::array<std::array<std::uint8_t, most>, 16> of_row{};
};
/// Metadata of a sparse operand of sixteen rows, a word a lane: four bits for each piece of a row (four numbers of K of which two are
/// there; of tf32 two, of which one is). Of bytes a lane has eight pieces of a row, else four of two rows; `selector` says which lanes have
/// them.
SparsePlaces sparse_places(MatrixType type, int k, const std::uint32_t* metadata, std::uint32_t selector);
/// sums[n][row] += sum over j of a[row][j] * b[n][places of the row [j]], by the definition of the steps: a step takes numbers that are
/// there, and B's others are not looked at. Of mma.sync, 8-bit floats are widened to fp16, start from zero, and the sum is added to what
/// was there with an addition of fp32.
void add_sparse_products(Unit unit, MatrixType a_type, const void* a, MatrixType b_type, const void* b, const SparsePlaces& places, int k,
                         bool half_sums, float* sums);
void add_sparse_whole_products(MatrixType a_type, const void* a, MatrixType b_type, const void* b, const SparsePlaces& places, int k,
                               std::int32_t* sums, bool saturates);

}  // namespace dodona::ptx
