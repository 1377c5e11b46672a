// The rows of a whole mixture of experts, sorted by expert.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/schemes/whole_moe.h"
#include "ops/sums/operand.h"

namespace dodona::ops::whole_moe {

inline constexpr std::int64_t fp8_block = 128, fp4_block = 16;

/// The rows of one local expert, sorted.
struct Group {
  std::int64_t expert, first;
  std::vector<std::int64_t> pairs;  ///< token * slots + slot

  std::int64_t rows() const { return static_cast<std::int64_t>(pairs.size()); }
};

std::int64_t slots_of(const WholeMoe& moe);
/// Experts ascending, those without rows left out.
std::vector<Group> groups_of(const WholeMoe& moe);
/// Of a token and a slot.
const Bounded& weight_of(const WholeMoe& moe, std::int64_t pair);

DType code_of(MoeNumbers numbers);

/// Rows as the products take them: codes without gaps, scales row by row.
struct SortedRows {
  DType type{};
  std::int64_t count = 0, k = 0, block = 0;
  DType scale_type = DType::f32;
  std::vector<std::byte> codes, scales;

  SortedRows(DType code, DType scale, std::int64_t block_size, std::int64_t rows, std::int64_t width)
      : type(code), count(rows), k(width), block(block_size), scale_type(scale) {
    codes.resize(static_cast<std::size_t>(rows * row_bytes()));
    // Scales of no numbers are scales all the same.
    if (block > 0) scales.resize(static_cast<std::size_t>(std::max<std::int64_t>(1, rows * scale_bytes())));
  }
  std::int64_t row_bytes() const { return k * bits(type) / 8; }
  std::int64_t scale_bytes() const { return block > 0 ? k / block * bits(scale_type) / 8 : 0; }
  std::byte* row(std::int64_t i) { return codes.data() + i * row_bytes(); }
  std::byte* scale_row(std::int64_t i) { return scales.data() + i * scale_bytes(); }

  Operand operand(const Group& group) const {
    Operand rows{.type = type,
                 .codes = codes.data() + group.first * row_bytes(),
                 .count = group.rows(),
                 .k = k,
                 .stride = k,
                 .scales = {},
                 .zeros = {}};
    if (block > 0)
      rows.scales = {
          .type = scale_type, .data = scales.data() + group.first * scale_bytes(), .k = block, .line_stride = k / block, .k_stride = 1};
    return rows;
  }
};

SortedRows room_for(MoeNumbers numbers, std::int64_t rows, std::int64_t k);
SortedRows room_for(const Requantizer& becomes, std::int64_t rows, std::int64_t k);

/// One number for all experts, or each its own; 1 where there is none.
float encode_scale_of(const Tensor& scales, std::int64_t expert);

/// The tokens of each expert's rows. `open`, golden mode's, is filled where tokens are quantized here: how far numbers of honest
/// implementations may lie from these.
SortedRows gather(const WholeMoe& moe, const std::vector<Group>& groups, std::vector<double>* open, const Exec& exec);

}  // namespace dodona::ops::whole_moe
