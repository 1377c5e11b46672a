#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// The parts of all ranks, one behind the other: along the rows, or along the columns, as vocabulary-parallel logits are put together.
/// Source: `torch.distributed.all_gather_into_tensor` (rows); sglang's `tensor_model_parallel_all_gather` (columns).
struct AllGatherIntoTensor {
  Tensor input, output;
  std::int64_t dim = 0;

  static constexpr OpInfo info{"all_gather_into_tensor", Category::utility, Source::torch};
  void describe(auto& op) {
    op.signature("output, input, dim");
    op.in("input", input, {bf16, f16, f32, i32, i64, f8_e4m3}, "R T H").layout(Layout::contiguous).doc("the part of each rank");
    op.attr("dim", dim, between(0, 1)).doc("0: rank r's rows are T*r and those behind it; 1: its columns are H*r and those behind it");
    op.out("output", output, same_as("input"), "R*T H|T R H")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("what every rank is given: [R*T, H] with dim 0, with dim 1 [T, R, H], which is [T, R*H] in memory");
    op.symbol("R", {.minimum = 1, .maximum = 1024});
  }
};

}  // namespace dodona::ops
