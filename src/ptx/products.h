// What tensor-core instructions have in common: a tile of sums, transposed,
// that takes one step's products.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "dodona/dtype.h"
#include "dodona/isa.h"
#include "ptx/program.h"

namespace dodona::ptx {

enum class MatrixType : std::uint8_t { f16, bf16, tf32, e4m3, e5m2, s8, u8, none };
MatrixType matrix_type(std::string_view name);
constexpr int bytes_of(MatrixType type) {
  return type == MatrixType::tf32 ? 4 : type == MatrixType::f16 || type == MatrixType::bf16 ? 2 : 1;
}

/// Where a lane's numbers lie: its first sum in [column][16 rows], its first
/// word of four bytes in rows of four words and of eight.
struct FragmentPlaces {
  std::array<std::uint16_t, warp_lanes> sum{}, word_of_4{}, word_of_8{};
};
constexpr FragmentPlaces make_fragment_places() {
  FragmentPlaces places;
  for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
    places.sum[lane] = static_cast<std::uint16_t>(2 * (lane % 4) * 16 + lane / 4);
    places.word_of_4[lane] = static_cast<std::uint16_t>(lane / 4 * 4 + lane % 4);
    places.word_of_8[lane] = static_cast<std::uint16_t>(lane / 4 * 8 + lane % 4);
  }
  return places;
}
inline constexpr FragmentPlaces fragment_places = make_fragment_places();
/// Of sum r of a lane, beyond its first.
constexpr std::size_t sum_offset(int r) {
  return static_cast<std::size_t>(128 * (r >> 2) + 16 * (r & 1) + 8 * (r >> 1 & 1));
}

/// Which instruction adds.
enum class Unit : std::uint8_t { mma_sync, wgmma };

/// sums[n][row] += sum over k of a[row][k] * b[n][k]; `a` has 16 rows, both are
/// row-major and packed. fp32 sums; whole numbers: of 32 bits.
void add_products(Unit unit, MatrixType a_type, const void* a, MatrixType b_type, const void* b, int columns, int k, float* sums, Isa isa);
/// fp16 sums, as fp32 numbers: one rounding to fp16 of the aligned sum.
void add_half_products(MatrixType a_type, const void* a, MatrixType b_type, const void* b, int columns, int k, float* sums);
void add_whole_products(MatrixType a_type, const void* a, MatrixType b_type, const void* b, int columns, int k, std::int32_t* sums,
                        bool saturates);

}  // namespace dodona::ptx
