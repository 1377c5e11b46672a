// sglang's Triton prefill kernel, `context_attention_fwd`, on an H200, to the bit.
//
// Rows and keys in blocks of 128. Weights are taken about the block's own maximum and normalised by the sum so far before they are rounded;
// what was accumulated is rescaled for it, so that nothing is divided at the end:
//   x = fma(scale, q.k, 0 or -inf); mx = max x; p = exp(x - mx); l_b = sum p; m' = max(m, mx)
//   a = exp(m - m'), b = exp(mx - m'); l' = fma(l, a, b * l_b); p = T(p * (b / l')); acc = acc * (a * (l / l')) + p V
#pragma once

#include <vector>

#include "ops/softmax/layouts/ragged.h"

namespace dodona::ops {

/// Keys and queries are the same tokens.
void triton_context_hopper(const Ragged& call, const std::vector<RaggedRequest>& requests, const Exec& exec);

}  // namespace dodona::ops
