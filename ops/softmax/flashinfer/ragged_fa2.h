// FlashInfer's ragged prefill on an H200, to the bit: its fa2 kernels.
//
// Rows of a tile are the heads that share keys, query after query. Tiles of keys begin at the first that the tile's window or the split
// has, and go up. Masked are the tiles behind what the first row sees and those at the window; scores hidden there are -inf. Where tiles
// have 16 rows, four warps go through the keys in turns of keys_of_warp each, and their states are merged at last. Outputs of splits are
// rounded to the type and merged by 128 threads. Keys behind the request are zeros. Caps: z = tanh(z * (sm_scale * rcp(cap))), sigma = log2
// e * cap.
//
// Requests whose queries exceed their keys are taken as the kernels take them: where causal, counts of keys below 0 wrap around, so that
// whole tiles are not masked.
//
// Source: include/flashinfer/attention/prefill.cuh, as of 2026-08-22: releases up to 0.6.18 have -5e4 in the place of -inf, which shows in
// rows that see no key and in those whose q . k all lie below about -5e4.
#pragma once

#include <vector>

#include "ops/softmax/layouts/ragged.h"

namespace dodona::ops {

/// `fixed_split`: see fa2_prefill.
void flashinfer_ragged_fa2_hopper(const Ragged& call, const std::vector<RaggedRequest>& requests, std::int64_t fixed_split,
                                  const Exec& exec);

}  // namespace dodona::ops
