// FlashInfer's ragged prefill on an H200, to the bit: its fa3 kernels for heads of 64, 128, 192/128 and 256.
//
// Keys are gone through in tiles whose borders are multiples of keys_of_tile from a request's first on, from the last that a block of
// queries needs to the first; nothing is split. fp32 with fast-math: denormals flushed, exp2 and log2 the hardware's. sigma = sm_scale *
// log2 e.
//   z    one chain of the tensor core over the head, from zero; -inf where a key is not seen
//   m'   = max(m, max z);  a = ex2((m - m') * sigma);  p = ex2(fma(z, sigma, -(m' * sigma)));  m and m * sigma at least -FLT_MAX
//   l_t  of a row's thread t: the first tile's p one after the other, later fma(l_t, a, p_0) and then the others; its columns are 8g + 2t
//        and 8g + 2t + 1
//   o    = o * a, and on from there the chain over the tile's keys of p, rounded to the element type, times v
// At last l = (l_0 + l_2) + (l_1 + l_3), out = o * rcp(l), 0 where l is not positive, and lse = fma(m, sigma, lg2(l)).
//
// Source: include/flashinfer/attention/hopper, as nvcc 13 compiles it for sm_90a with -use_fast_math.
#pragma once

#include <vector>

#include "ops/softmax/layouts/ragged.h"

namespace dodona::ops {

void flashinfer_ragged_hopper(const Ragged& call, const std::vector<RaggedRequest>& requests, const Exec& exec);

}  // namespace dodona::ops
