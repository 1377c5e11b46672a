// The weights of a whole mixture of experts: one expert's, and what multiplies and is added to its sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/schemes/whole_moe/rows.h"
#include "ops/sums/products.h"
#include "ops/tiles/panel_i8/panel_i8.h"

namespace dodona::ops::whole_moe {

/// The stored row of each plain row.
std::vector<std::int64_t> stored_rows(const MoeMatrix& matrix);

/// Where one expert's raw numbers begin.
const std::byte* stored_codes(const MoeMatrix& matrix, std::int64_t expert, DType type);
/// One expert's weight, its rows as they are stored, blocks along K put together.
struct Weight {
  Tensor whole;
  const std::byte* codes;
};
Weight weight_of(const MoeMatrix& matrix, std::int64_t expert, DType type, const Exec& exec);

/// Where an expert's packed numbers begin; nullptr where they are raw.
const std::byte* packed_codes(const MoeMatrix& matrix, std::int64_t expert, std::int64_t rows);
/// Of one expert; nullptr where there are none.
const void* scales_of(const MoeMatrix& matrix, std::int64_t expert);
/// The weight's rows; their scales may be (a mistake of kernels) another expert's.
Operand operand_of(const WholeMoe& moe, const MoeMatrix& matrix, const Weight& weight, std::int64_t scales_expert);

/// One expert's number; 1 where there is none.
float factor_of(const Tensor& factors, std::int64_t expert);
/// What the sums of a product are multiplied with, by stored column; empty where that is 1.
std::vector<float> first_factors(const WholeMoe& moe, std::int64_t expert, bool shuffled = true);
std::vector<float> second_factors(const WholeMoe& moe, std::int64_t expert);
/// What is added to sums.
const float* bias_before(const WholeMoe& moe, const Tensor& bias, std::int64_t expert);
/// What is added to rounded sums.
const float* bias_behind(const WholeMoe& moe, const Tensor& bias, std::int64_t expert);
Epilogue epilogue_of(const std::vector<float>& factors, const float* bias);

/// `tiles` holds scales in tiles where they are not stored so.
I8Weights fp4_weights(const MoeMatrix& matrix, std::int64_t expert, std::int64_t rows, Tensor& tiles);

/// What multiplies an activated gate that has no up: the factor that up would have, 1 where that comes later.
float lone_factor(const WholeMoe& moe, std::int64_t expert);
/// What multiplies activated numbers once they are rounded.
double factor_behind(const WholeMoe& moe, std::int64_t expert);

/// Where rows of the first product's result have gate and up of number i.
struct Halves {
  std::vector<std::int64_t> at;
  std::int64_t width;
  bool both;  ///< else the rows are those of gate

  std::size_t up(std::int64_t i) const { return static_cast<std::size_t>(at[static_cast<std::size_t>(i)]); }
  std::size_t gate(std::int64_t i) const { return static_cast<std::size_t>(at[static_cast<std::size_t>(both ? width + i : i)]); }
};
Halves halves_of(const WholeMoe& moe, bool swapped, bool shuffled = true);

}  // namespace dodona::ops::whole_moe
