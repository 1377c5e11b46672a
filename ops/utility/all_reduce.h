#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// out = sum over the ranks r of inp[r]: what every rank of a group is given.
/// Source: sgl-kernel `all_reduce` (the kernels `cross_device_reduce_1stage` and `cross_device_reduce_2stage`).
struct AllReduce {
  Tensor inp, out;
  std::string algorithm = "auto";
  bool full_nvlink = true;

  static constexpr OpInfo info{"all_reduce", Category::utility, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("inp, out");
    op.in("inp", inp, {bf16, f16, f32}, "R T H").layout(Layout::contiguous).doc("the terms of each rank, a multiple of 16 bytes");
    op.choice("algorithm", algorithm, {"auto", "one_stage", "two_stage", "any"})
        .doc(
            "auto: as upstream chooses: one_stage for 2 ranks, below 512 KiB of a rank for 4, below 256 KiB for 6 and 8, else two_stage; "
            "any: "
            "any order, the sums rounded on their way or not, as in NCCL, within a budget");
    op.attr("full_nvlink", full_nvlink)
        .doc("whether all ranks reach each other directly: upstream launches nothing for more than 2 ranks that do not");
    op.out("out", out, same_as("inp"), "T H").doc("the sums, the same on every rank");
    op.symbol("R", {.choices = {2, 4, 6, 8}});
    op.symbol("H", {.minimum = 1});
  }

  std::int64_t ranks() const { return inp.size(0); }
  std::int64_t elements() const { return inp.size(1) * inp.size(2); }
};

}  // namespace dodona::ops
