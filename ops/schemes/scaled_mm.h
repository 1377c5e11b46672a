// What int8_scaled_mm and fp8_scaled_mm share: a scale for each row of A and for each column of B, and a bias.
#pragma once

#include "core/define.h"
#include "ops/sums/products.h"
#include "ops/tiles/epilogue.h"
#include "ops/tiles/float_vector.h"

namespace dodona::ops {

using enum DType;

/// The schema of both; `Op` has mat_a, mat_b, scales_a, scales_b, bias, out and out_dtype.
template <class Op>
void describe_scaled_mm(auto& op, Op& fields, DType code) {
  op.signature("mat_a, mat_b, scales_a, scales_b, out_dtype, bias");
  op.in("mat_a", fields.mat_a, {code}, "M K").layout(Layout::contiguous).doc("activations, one row per token");
  op.in("mat_b", fields.mat_b, {code}, "K N").layout(Layout::column_major).doc("the transposed weight, [N, K] in memory");
  op.in("scales_a", fields.scales_a, {f32}, "M | M 1")
      .layout(Layout::contiguous)
      .role(Role::scale)
      .scales("mat_a", 1, 0)
      .doc("what the codes of a row of A are multiplied with");
  op.in("scales_b", fields.scales_b, {f32}, "N | N 1")
      .layout(Layout::contiguous)
      .role(Role::scale)
      .scales("mat_b", 0, 1)
      .doc("what the codes of a column of B are multiplied with");
  op.dtype_attr("out_dtype", fields.out_dtype, {bf16, f16}).doc("element type of out and bias");
  op.in("bias", fields.bias, dtype_of_attr("out_dtype"), "N").layout(Layout::contiguous).on_request().doc("added to every row");
  op.out("out", fields.out, dtype_of_attr("out_dtype"), "M N").layout(Layout::contiguous).doc("rounded once");
  op.rows_independent("M");
}

/// The contract's words on what follows the sum `acc`.
inline const std::string scaled_mm_contract =
    "u = fl32(acc * scales_b[n]); out = rn(fl32(u * scales_a[m])), with a bias rn(fl32(u * scales_a[m] + bias[n])), one rounding for the "
    "product and the sum; to nearest even, overflow gives infinity. Budget: 2^-24 relative for each product with a scale, that of kernels "
    "which multiply the two scales first being the same, and for the sum with the bias. Where a part (acc or scales_a times scales_b, or "
    "what the bias is added to) is beyond fp32 and what becomes of it is not, infinities and NaN pass too; a denormal scale, or product "
    "with one, may be flushed, with all that becomes of it; ";

/// `scaled_bias`: the mistake of adding the bias before the product with scales_a.
template <class Op>
Product scaled_product(const Op& op, bool scaled_bias = false) {
  Product product = batched_products(batch_of_one(op.mat_a), batch_of_one(op.mat_b)).front();
  product.epilogue.factors = {{column_term(op.scales_b), {}}, {row_term(op.scales_a), {}}};
  if (!op.bias.defined()) return product;
  product.epilogue.addend = {column_term(op.bias), scaled_bias ? row_term(op.scales_a) : Term{}};
  product.epilogue.fused = true;
  return product;
}

template <class Op>
double scaled_mm_flops(const Op& op) {
  return 2.0 * static_cast<double>(op.out.elements()) * static_cast<double>(op.mat_a.size(1));
}

/// In fast mode; `bias` is what the op's bias holds.
template <class Op>
TileEpilogue scaled_epilogue(const Op& op, const FloatVector& bias) {
  TileEpilogue epilogue;
  epilogue.steps[epilogue.count++] = {.values = op.scales_b.template as<float>(), .column_stride = 1};
  epilogue.steps[epilogue.count++] = {.values = op.scales_a.template as<float>(), .row_stride = 1};
  if (bias.data() != nullptr)
    epilogue.steps[epilogue.count++] = {.kind = EpilogueStep::Kind::plus, .values = bias.data(), .column_stride = 1, .fused = true};
  epilogue.out_type = op.out_dtype;
  epilogue.out = op.out.template as<std::byte>();
  epilogue.out_stride = op.out.size(1);
  return epilogue;
}

}  // namespace dodona::ops
