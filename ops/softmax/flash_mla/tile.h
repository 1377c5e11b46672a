// What FlashMLA's kernels on an H200 share, to the bit: the products of up to 64 rows of queries with blocks of 64 keys.
//
// Source: FlashMLA csrc/sm90.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dodona/dtype.h"
#include "dodona/isa.h"
#include "ops/softmax/flash_mla/schedule.h"
#include "ops/tiles/mma/mma.h"

namespace dodona::ops {

/// max.ftz: a NaN loses.
float flash_mla_max(float a, float b);

/// Rows of 576 elements, the keys of a block; nullptr: zeros.
using FlashMlaKeys = std::array<const std::byte*, static_cast<std::size_t>(flash_mla_block)>;

/// Numbers of each row, row by row.
using FlashMlaRows = std::vector<float>;

class FlashMlaTile {
 public:
  FlashMlaTile(const quant::tensor_core::MmaSpec& unit, DType type, const std::vector<const std::byte*>& queries, Isa isa);

  std::int64_t rows() const { return rows_; }
  FlashMlaRows numbers(std::int64_t width, float value = 0) const { return FlashMlaRows(static_cast<std::size_t>(rows_ * width), value); }
  /// q.k, [rows, 64]; `turned`: elements 256 to 575 before 0 to 255.
  FlashMlaRows scores(const FlashMlaKeys& keys, bool turned) const;
  /// sums [rows, width] += T(weights [rows, 64]) times elements `column` to `column` + `width` of the keys.
  void add_values(FlashMlaRows& sums, const FlashMlaRows& weights, const FlashMlaKeys& keys, std::int64_t column, std::int64_t width) const;

 private:
  std::vector<std::byte> gathered(const std::byte* const* from, std::int64_t count, bool turned) const;

  const quant::tensor_core::MmaSpec& unit_;
  DType type_;
  std::int64_t bytes_, rows_;
  Isa isa_;
  std::vector<MmaRows> operands_;  ///< the queries as they are, and turned
};

/// The numbers of each row times its factor.
void flash_mla_scale(FlashMlaRows& numbers, const FlashMlaRows& factors);

/// Scores [rows, 64] become 2^fma(score, slog, -largest), largest = max(slog * their maximum, the row's before), which `largest` then
/// holds. Returns 2^(before - largest) of each row. `lowest`: what the maximum of no scores is.
FlashMlaRows flash_mla_weigh(FlashMlaRows& scores, FlashMlaRows& largest, float slog, float lowest);

/// (s[0] + s[1]) + (s[2] + s[3]) of the row's four sums, one for each thread that holds columns of it.
float flash_mla_quad(const FlashMlaRows& sums, std::int64_t row);

}  // namespace dodona::ops
