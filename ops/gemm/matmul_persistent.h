#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// c = a b + bias, each row whatever the others: the product of deterministic inference.
/// Source: SGLang `batch_invariant_ops.matmul_persistent` (Triton, DeepGEMM).
struct MatmulPersistent {
  Tensor a, b, bias, c;
  std::string kernel = "triton", input_precision = "tf32";

  static constexpr OpInfo info{"matmul_persistent", Category::gemm, Source::triton};
  void describe(auto& op) {
    op.in("a", a, {bf16, f16, f32}, "M K").layout(Layout::any).doc("left matrix");
    op.in("b", b, same_as("a"), "K N").layout(Layout::any).doc("right matrix");
    op.in("bias", bias, same_as("a"), "N").on_request().doc("added to every row");
    op.choice("kernel", kernel, {"triton", "deep_gemm"})
        .doc("triton: the bias is added before the sum is rounded; deep_gemm: to the rounded sum, rounded again; bf16");
    op.choice("input_precision", input_precision, {"tf32", "ieee"})
        .doc("what f32 is multiplied as: tf32: its low 13 bits dropped, as tensor cores do; ieee: all of it");
    op.out("c", c, same_as("a"), "M N").doc("rounded once");
    op.rows_independent("M");
  }
};

}  // namespace dodona::ops
