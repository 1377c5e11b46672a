// Rows of tokens in every place that their slots name, in another type or divided by a scale: as Triton's permutes of experts do it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "core/define.h"
#include "ops/base/golden_output.h"

namespace dodona::ops {

using enum DType;

struct PermutedRows {
  Tensor input;   ///< [T, H], dense
  Tensor output;  ///< [R, H], dense
  std::int64_t topk;
  std::vector<std::int64_t> row_of = {};  ///< of every slot, token by token; -1: none
  std::optional<float> divisor = {};      ///< elements are multiplied by its reciprocal
  const char* output_name = "gateup_input";

  /// Throws unless slots name rows of the output, each once.
  void require_rows() const;
  /// The token of each row, -1 for none.
  std::vector<std::int64_t> tokens() const;
};

/// The schema of their output, which the call gives.
void describe_permuted_rows(auto& op, Tensor& output, std::initializer_list<DType> types) {
  op.out("gateup_input", output, types, "R H")
      .layout(Layout::contiguous)
      .judged(Judge::code)
      .padded()
      .given()
      .doc("rows sorted by expert; those of no slot are unspecified (upstream leaves them as they were)");
}

/// Mistakes of such kernels.
enum class PermutedRowsMistake { none, scale_left_out, multiplied };

/// Rows of no slot are open. Budget of a divided element: 5 units of 2^-24, 4 for the reciprocal and 1 for the product, and what a
/// reciprocal or product that is denormal loses where it is flushed.
void golden_permuted_rows(const PermutedRows& rows, const Exec& exec, Reference* reference,
                          PermutedRowsMistake mistake = PermutedRowsMistake::none);
void permute_rows(const PermutedRows& rows, const Exec& exec);
/// Triton's division on an H200, denormals kept.
void hopper_permute_rows(const PermutedRows& rows, const Exec& exec);

}  // namespace dodona::ops
