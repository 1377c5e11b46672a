// FlashInfer's MLA over pages on an H200, to the bit: its fa2 kernel.
//
// Blocks take 64 rows, heads of a query one after the other, and one or two blocks a split of the keys. Tiles of 64 keys (32 of e4m3) begin
// at a split's first key and are gone through from the last to the first; scores are one chain of the tensor core over the rotated part,
// then over the latents. Two groups of warps add up the weights of half a tile each; of e4m3 one adds up all. Masked are the tiles from the
// one on that the first row sees in part, and the first two. Keys behind the request are zeros. Outputs of splits are rounded to the type
// and merged in order.
//
// A tile that only the last tokens of a block need may be missing, as a known defect of the op has it; it is missing here too.
//
// Source: include/flashinfer/attention/mla.cuh, as of 2026-08-22: releases up to 0.6.18 have -5e4 in the place of -inf.
#pragma once

#include "ops/softmax/layouts/paged_mla.h"

namespace dodona::ops {

void flashinfer_mla_fa2_hopper(const PagedMla& call, const Exec& exec);

}  // namespace dodona::ops
