// What tensor-core instructions have in common: a tile of sums, transposed, that takes one step's products.
#pragma once

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

/// Which instruction adds.
enum class Unit : std::uint8_t { mma_sync, wgmma };

/// sums[n][row] += sum over k of a[row][k] * b[n][k]; `a` has 16 rows, both are row-major and packed. fp32 sums; whole numbers: of 32 bits.
void add_products(Unit unit, MatrixType a_type, const void* a, MatrixType b_type, const void* b, int columns, int k, float* sums, Isa isa);
void add_whole_products(MatrixType a_type, const void* a, MatrixType b_type, const void* b, int columns, int k, std::int32_t* sums,
                        bool saturates);

}  // namespace dodona::ptx
