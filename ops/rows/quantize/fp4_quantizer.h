// What FlashInfer's FP4 quantizers share: fp4_quantize, and its two names by format.
#pragma once

#include "core/define.h"
#include "ops/base/block_scales.h"
#include "ops/rows/quantize/fp4_quant_row.h"

namespace dodona::ops {

/// One call, whatever its op.
struct Fp4Quantizer {
  const Tensor &input, &codes, &scales;
  std::string_view codes_name, scales_name;
  float encode_scale;
  bool inversed;      ///< the encode scale was made by a reciprocal
  std::int64_t size;  ///< elements of a block
  bool powers;        ///< scales are f8_e8m0
  quant::ScaleLayout layout;
  bool shuffled = false;  ///< rows in the order in which trtllm-gen's products take weights
  bool zero_padding = false;
  /// Defined: each row has an encode scale of its own, the reciprocal of fl32(amax of the row * encode_scale), which is put here.
  Tensor row_scales = {};
  std::string_view row_scales_name = {};

  std::int64_t blocks() const { return input.size(-1) / size; }
};

/// The number in an encode scale's tensor, 1 where there is none; `inversed`: its reciprocal.
float encode_scale_of(const Tensor& global_scale, bool inversed = false);

void golden_fp4_quantize(const Fp4Quantizer& op, Fp4Rule rule, const Exec& exec, Reference* reference);
/// Codes follow from the scale that was stored.
void condition_fp4_quantize(const Fp4Quantizer& actual, const Exec& exec, Reference& reference);
void fast_fp4_quantize(const Fp4Quantizer& op, const Exec& exec);

extern const std::string_view fp4_quantizer_contract;

/// The functions of an op of which fp4_quantizer(op) makes a call.
template <class Op, Fp4Quantizer (*call)(const Op&)>
Implementation<Op> fp4_quantizer_functions() {
  Implementation<Op> all;
  all.contract = fp4_quantizer_contract;
  all.golden = [](const Op& op, const Exec& exec, Reference* reference) { golden_fp4_quantize(call(op), Fp4Rule::right, exec, reference); };
  all.fast = [](const Op& op, const Exec& exec) { fast_fp4_quantize(call(op), exec); };
  all.condition = [](const Op& actual, const Exec& exec, Reference& reference) { condition_fp4_quantize(call(actual), exec, reference); };
  all.mistakes = {{"maximum-without-magnitude", "the maximum is taken of values, not of magnitudes",
                   [](const Op& op, const Exec& exec, Reference* reference) {
                     golden_fp4_quantize(call(op), Fp4Rule::maximum_without_magnitude, exec, reference);
                   }},
                  {"scale-not-rounded", "codes are made with the scale as it was before its own rounding",
                   [](const Op& op, const Exec& exec, Reference* reference) {
                     golden_fp4_quantize(call(op), Fp4Rule::scale_not_rounded, exec, reference);
                   }}};
  return all;
}

}  // namespace dodona::ops
