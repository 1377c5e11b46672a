// FlashMLA's sparse kernels on an H200, to the bit. Keys are taken 64 of a list at a time; absent ones score -inf and count as zeros.
//
// Prefill: the pairs of blocks of pairs.h. With slog = fl32(fl32(sm_scale) * fl32(log2 e)), L the sum of the weights and M their
// largest score: out = O * (1/L), max_logits = M, lse = log2 L + M.
// Decode: the codes of the cache become bf16(code * bf16(scale)). Blocks are taken one by one, for both halves of the output alike, with
// slog = fl32(scale * log2 e): S = q.k, k ascending; M = max(M, slog * max S); s = 2^(M before - M); P = 2^fma(S, slog, -M);
// O = O * s + T(P) V; each of four threads adds up the unrounded weights of its columns in one chain from zero, L = fma(L, s, that). Splits
// are combined as those of the dense kernel.
//
// Source: FlashMLA csrc/sm90/prefill/sparse/fwd.cu, csrc/sm90/decode/sparse_fp8, and the machine code of sgl-kernel's build.
#pragma once

#include "dodona/exec.h"
#include "ops/softmax/flash_mla/schedule.h"
#include "ops/softmax/layouts/sparse_mla.h"

namespace dodona::ops {

void flash_mla_sparse_prefill_hopper(const SparseMla& call, const Exec& exec);
void flash_mla_sparse_decode_hopper(const SparseMla& call, const FlashMlaWork& work, const Exec& exec);

}  // namespace dodona::ops
