#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// The same memory under a second name, without a share in its ownership: releasing `tensor` leaves `output` dangling.
/// Source: sgl-kernel `weak_ref_tensor`.
struct WeakRefTensor {
  Tensor tensor, output;

  static constexpr OpInfo info{"weak_ref_tensor", Category::utility, Source::sgl_kernel};
  void describe(auto& op) {
    op.in("tensor", tensor, {bf16, f16, f32, f64, f8_e4m3, f8_e5m2, f8_e8m0, f4_e2m1, i4, i8, u8, i16, i32, i64, boolean}, "S...")
        .layout(Layout::any)
        .doc("any type, sizes and strides");
    op.out("output", output, same_as("tensor"), "S...").view_of("tensor").judged(Judge::exact).doc("same pointer, sizes, strides and type");
  }
};

}  // namespace dodona::ops
