// NVFP4 quantization of groups of rows with room for more: what scaled_fp4_grouped_quant and silu_and_mul_scaled_fp4_grouped_quant share.
#pragma once

#include "core/define.h"
#include "ops/rows/quantize/fp4_quant_row.h"

namespace dodona::ops {

using enum DType;

/// The schema but for the input, whose last size differs.
template <class Op>
void describe_grouped_fp4(auto& op, Op& fields) {
  op.in("input_global_scale", fields.input_global_scale, {f32}, "L")
      .role(Role::scale)
      .doc("encode scale of each group, 448*6 / largest magnitude");
  op.in("mask", fields.mask, {i32}, "L")
      .layout(Layout::contiguous)
      .role(Role::positions, "M+1")
      .doc("how many of each group's M rows there are: the first ones");
  op.out("output", fields.output, {u8}, "L M K/2")
      .layout(Layout::contiguous)
      .judged(Judge::code)
      .padded()
      .codes(f4_e2m1)
      .doc("codes; upstream returns them as a view [M, K/2, L]. Rows beyond the mask are unspecified");
  op.out("output_scales", fields.output_scales, {f8_e4m3}, "L align(M,128) align(K/16,4)")
      .layout(Layout::contiguous)
      .judged(Judge::code)
      .padded()
      .scales("output", 1, 16, ScaleOrder::swizzled_128x4)
      .by_expert()
      .doc("block scales, each group in tiles of its own; upstream returns them as a view [32, 4, M/128, 4, K/64, L]");
  op.symbol("K", {.multiple_of = 16});
}

/// One call, whatever its op.
struct GroupedFp4 {
  const Tensor &input, &input_global_scale, &mask, &output, &output_scales;
  bool silu;  ///< rows are gate and up, halves; T(silu(gate) * up) is quantized

  std::int64_t groups() const { return output.size(0); }
  std::int64_t rows() const { return output.size(1); }
  std::int64_t columns() const { return 2 * output.size(2); }
};
template <class Op>
GroupedFp4 grouped_fp4(const Op& op, bool silu) {
  return {op.input_tensor, op.input_global_scale, op.mask, op.output, op.output_scales, silu};
}

void golden_grouped_fp4(const GroupedFp4& op, const Exec& exec, Reference* reference, Fp4Rule rule);
/// Codes follow from the scales that were stored.
void condition_grouped_fp4(const GroupedFp4& actual, const Exec& exec, Reference& reference);
void fast_grouped_fp4(const GroupedFp4& op, const Exec& exec);
/// Without silu.
void hopper_grouped_fp4(const GroupedFp4& op, const Exec& exec);

template <class Op, bool silu, Fp4Rule rule>
void golden_grouped_fp4_of(const Op& op, const Exec& exec, Reference* reference) {
  golden_grouped_fp4(grouped_fp4(op, silu), exec, reference, rule);
}

/// All of an op that is such a call, but its contract.
template <class Op, bool silu>
Implementation<Op> grouped_fp4_op() {
  Implementation<Op> all;
  all.golden = golden_grouped_fp4_of<Op, silu, Fp4Rule::right>;
  all.fast = [](const Op& op, const Exec& exec) { fast_grouped_fp4(grouped_fp4(op, silu), exec); };
  if constexpr (!silu) all.hopper = [](const Op& op, const Exec& exec) { hopper_grouped_fp4(grouped_fp4(op, silu), exec); };
  all.condition = [](const Op& actual, const Exec& exec, Reference& reference) {
    condition_grouped_fp4(grouped_fp4(actual, silu), exec, reference);
  };
  all.mistakes = {{"maximum-without-magnitude", "the maximum is taken of values, not of magnitudes",
                   golden_grouped_fp4_of<Op, silu, Fp4Rule::maximum_without_magnitude>},
                  {"scale-not-rounded", "codes are made with the scale as it was before its own rounding",
                   golden_grouped_fp4_of<Op, silu, Fp4Rule::scale_not_rounded>}};
  all.cases = {"L=4 M=33 K=80", "L=3 M=130 K=32 --dtype input_tensor=f16", "L=2 M=5 K=272 --dist wide-exponent"};
  all.bench_cases = {"L=8 M=64 K=2048"};
  return all;
}

}  // namespace dodona::ops
