// FlashMLA's dense decode of e4m3 caches on an H200, to the bit: rows, the heads of all queries of a request, 64 at a time, over the blocks
// of each split from the last to the first.
//
// With slog = fl32(fl32(scale * log2 e) * descale_q) * descale_k, products rounded, per row: S = q.k in steps of 32 elements; m = max(m,
// max S) of unscaled scores; s = 2^((m before - m) * slog); P = 2^fma(S, slog, -fl32(m * slog)); O = O * s + e4m3(P) V, a chain of steps of
// the fp8 tensor core that goes on from the scaled accumulator. Each of four threads adds up the unrounded weights of its columns in one
// chain, the first with fma(sum, s, P). out = O * fl32(descale_k * (1/L)); lse = fma(m, scale * descale_q * descale_k, log L). Splits are
// combined as natural logarithms. With a causal mask the last two blocks of a split are masked, without one its last.
//
// Source: FlashMLA csrc/extension/sm90/dense_fp8, and the machine code of sgl-kernel's build.
#pragma once

#include "ops/softmax/flash_mla/dense.h"

namespace dodona::ops {

void flash_mla_fp8_hopper(const FlashMla& call, const Exec& exec);

}  // namespace dodona::ops
