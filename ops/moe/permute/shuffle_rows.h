#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// output_tensor[d] = input_tensor[dst2src_map[d]]: rows gathered, bit for bit.
/// Upstream copies 16 bytes at a time: a row whose size is no multiple of 16 bytes is undefined behind the last such unit there.
/// Source: sgl-kernel `shuffle_rows`.
struct ShuffleRows {
  Tensor input_tensor, dst2src_map, output_tensor;

  static constexpr OpInfo info{"shuffle_rows", Category::moe, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("input_tensor, dst2src_map, output_tensor_shape=");
    op.in("input_tensor", input_tensor, {bf16, f16, f32, f8_e4m3, u8}, "R C").doc("rows to choose from; u8 may hold packed codes");
    op.in("dst2src_map", dst2src_map, {i32}, "D").role(Role::indices, "R").doc("source of each output row; rows may repeat or be left out");
    op.out("output_tensor", output_tensor, same_as("input_tensor"), "D C").judged(Judge::exact).doc("the gathered rows");
  }
};

}  // namespace dodona::ops
