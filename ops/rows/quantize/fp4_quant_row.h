// One row of NVFP4 or MXFP4 quantization in golden and hopper mode, and its judging: what the ops that quantize rows share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/base/golden_output.h"

namespace dodona::ops {

struct Fp4QuantRow {
  const std::byte* input;  ///< bf16, f16 or f8_e4m3, size * blocks elements
  DType type;
  std::int64_t blocks;
  float encode_scale;
  bool zero_by_amax;              ///< codes become zero when all elements are, rather than when the scale is
  std::int64_t first_code;        ///< where its codes begin in the output, in codes: an even number
  std::int64_t scale;             ///< where its scales begin in their matrix
  std::int64_t tile = 512;        ///< from there block c is at c/4 * tile + c%4
  std::int64_t size = 16;         ///< elements of a block
  bool powers = false;            ///< scales are f8_e8m0; those of e4m3 otherwise
  double scale_units = 0;         ///< 2^-24: how far honest implementations' encode scales lie apart, relative
  const double* slack = nullptr;  ///< of elements that were computed: how far an honest implementation's may lie; nullptr for none

  std::int64_t scale_of(std::int64_t block) const { return scale + block / 4 * tile + block % 4; }
};

/// The rule itself, and mistakes of kernels that quantize.
enum class Fp4Rule {
  right,
  maximum_without_magnitude,
  scale_not_rounded,       ///< codes are made with the scale as it was before it became e4m3
  one_scale_for_all_rows,  ///< where each row has an encode scale of its own
};
/// Golden mode. Both outputs have been made open.
void put_fp4_row(const Fp4QuantRow& row, const GoldenOutput& codes, const GoldenOutput& scales, Fp4Rule rule = Fp4Rule::right);
/// Codes follow from the scale that was stored: those of other scales than golden mode's are put anew.
void condition_fp4_row(const Fp4QuantRow& row, const std::uint8_t* stored_scales, const GoldenOutput& codes);
/// Scales that no row has are open. `for_each_row(body)` calls body(row) for every row, one after the other.
template <class ForEachRow>
void leave_other_scales_open(const GoldenOutput& scales, std::int64_t count, const ForEachRow& for_each_row) {
  std::vector<bool> used(static_cast<std::size_t>(count));
  for_each_row([&](const Fp4QuantRow& row) {
    for (std::int64_t c = 0; c < row.blocks; ++c) used[static_cast<std::size_t>(row.scale_of(c))] = true;
  });
  for (std::int64_t i = 0; i < count; ++i)
    if (!used[static_cast<std::size_t>(i)]) scales.leave_open(i);
}
/// Golden mode's codes and scales, without its slack.
void plain_fp4_row(const Fp4QuantRow& row, std::uint8_t* codes, std::uint8_t* scales);
/// The H200's bits, zero_by_amax excepted; NVFP4 of bf16 and f16.
void hopper_fp4_row(const Fp4QuantRow& row, std::uint8_t* codes, std::uint8_t* scales);

}  // namespace dodona::ops
