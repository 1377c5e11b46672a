// What the QServe products share: int8 rows times weights of four bits that are kept in tiles of 32 x 32.
#pragma once

#include "core/define.h"
#include "ops/sums/products.h"
#include "ops/tiles/panel_i8/panel_i8.h"

namespace dodona::ops {

using enum DType;

/// What both ops read, and how many columns and rows the kernels' tiles have.
template <class Op>
void describe_qserve_operands(auto& op, Op& fields) {
  op.in("in_feats", fields.in_feats, {i8}, "M K").layout(Layout::contiguous).doc("activations, one row per token");
  op.in("kernel", fields.kernel, {i8}, "N K/2")
      .layout(Layout::contiguous)
      .doc(
          "weights of four bits without sign, in tiles of 32 x 32: with n mod 32 = 16a + 8b + c and k mod 32 = 16d + 4e + f weight (n, k) "
          "is "
          "in byte 64c + 16e + 8d + 4b + f of tile (n / 32) * (K / 32) + k / 32, in its low nibble for a = 0");
}
template <class Op>
void describe_qserve_scales(auto& op, Op& fields) {
  op.in("wscales", fields.wscales, {f16}, "N | N 1")
      .layout(Layout::contiguous)
      .role(Role::scale)
      .doc("what the weights of a channel are multiplied with");
  op.in("ascales", fields.ascales, {f16}, "M | M 1")
      .layout(Layout::contiguous)
      .role(Role::scale)
      .scales("in_feats", 1, 0)
      .doc("what the codes of a token are multiplied with");
}
template <class Op>
void describe_qserve_output(auto& op, Op& fields) {
  op.out("out_feats", fields.out_feats, {f16}, "M N").layout(Layout::contiguous).doc("rounded once");
  op.symbol("N", {.multiple_of = 64});
  op.rows_independent("M");
}

/// How a kernel reads the weights: as they lie, or by mistake.
enum class QserveReading { right, nibbles_in_order, scales_in_order, saturating };

/// Weights [N, K] as signed bytes: codes, or with scales and zeros [K/128, N] (codes * scale + zero) mod 256.
Tensor qserve_weights(const Tensor& kernel, const Tensor* scales, const Tensor* zeros, QserveReading reading, const Exec& exec);
/// in_feats times such weights. `weights` outlives the product.
Product qserve_product(const Tensor& in_feats, const Tensor& weights);

/// In fast mode; `weights` are raw or packed, with n and k.
void qserve_multiply(I8Format format, const Tensor& in_feats, const I8Weights& weights, TileEpilogue epilogue, const Tensor& out,
                     const Exec& exec);

/// Kernels for more than 256 rows have tiles of 128 columns, and leave what is less unwritten.
std::optional<Refusal> qserve_unsupported(const Tensor& in_feats, const Tensor& kernel, Mode mode);
/// The defect of the upstream kernels of both; it makes no outputs that could be recognised.
template <class Op>
DefectOf<Op> unwritten_columns() {
  return {"columns-unwritten", "out_feats",
          "with more than 256 rows, columns behind the last whole 128 are not written: no check asks for N"};
}

}  // namespace dodona::ops
