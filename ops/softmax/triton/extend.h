// sglang's Triton extend kernel, `extend_attention_fwd`, on an H200, to the bit.
//
// Rows in blocks of block_rows, keys in blocks of 64, first the prefix, then the new tokens. About a running maximum, never below -1e20:
//   x = q.k * scale, capped, tempered, or -inf; m' = max(m, max x); a = exp(m - m'); p = exp(x - m')
//   l = fma(l, a, sum p); acc = acc * a + T(p) V; at last l + exp(sink - m), T(acc / l)
// Blocks of 128 rows lie in warps of whole rows. In blocks of 32 rows eight warps have eight keys each, and where a mask of bytes is
// applied the tensor core takes the keys of each 32 in another order.
//
// Keys of e4m3 pools: queries and weights rounded to e4m3 too; blocks of 128 rows on the fp8 tensor core, of 32 rows widened to f16 in that
// other order. Scores are the sum of a chain over triton_main_columns and a chain over the rest, and acc = fma(acc, a, T(p) V), T(p) V from
// zero.
#pragma once

#include <vector>

#include "ops/softmax/layouts/extend.h"

namespace dodona::ops {

inline constexpr std::int64_t triton_wide_rows = 128;
/// Rows of a block as upstream chooses them for keys of this width.
inline std::int64_t triton_extend_rows(std::int64_t key_width) {
  return key_width <= 256 ? triton_wide_rows : 32;
}

/// `call.block_rows`: 128 or 32.
void triton_extend_hopper(const Extend& call, const std::vector<ExtendRequest>& requests, const Exec& exec);

}  // namespace dodona::ops
