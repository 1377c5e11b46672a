// FlashMLA's dense decode of 16-bit caches on an H200, to the bit: rows, the heads of all queries of a request, 64 at a time, over the
// pairs of blocks of each split (pairs.h), and the splits combined (splits.h). Keys that a row does not see score
// -1e33, and values behind the sequence's end count as zeros.
//
// Source: FlashMLA csrc/sm90/decode/dense/splitkv_mla.cu, and the machine code of sgl-kernel's build.
#pragma once

#include <cstdint>
#include <vector>

#include "dodona/exec.h"
#include "dodona/tensor.h"
#include "ops/softmax/flash_mla/splits.h"

namespace dodona::ops {

struct FlashMla {
  Tensor q;            ///< [B, Q, N, 576] bf16, f16 or e4m3, inner stride 1
  Tensor cache;        ///< [pages, 64, 1, 576], contiguous
  Tensor block_table;  ///< [B, W] i32, contiguous
  FlashMlaWork work;
  Tensor out;  ///< [B, Q, N, 512]
  Tensor lse;  ///< f32 [B, N, Q]
  double scale;
  bool causal;
  float descale_q = 1, descale_k = 1;  ///< of e4m3

  std::int32_t length(std::int64_t request) const { return work.lengths[static_cast<std::size_t>(request)]; }
  /// Row `row` of a request: the heads of its first query, then those of the next.
  const std::byte* query(std::int64_t request, std::int64_t row) const;
  /// Query tokens behind that of the row; 0 of rows that are none.
  std::int32_t behind(std::int64_t row) const;
  /// A token of a block of a request.
  const std::byte* key(std::int64_t request, std::int32_t block, std::int64_t token) const;
};

/// The rows of a request, 64 to a block.
std::vector<FlashMlaRun::Rows> flash_mla_row_blocks(const FlashMla& call);

void flash_mla_hopper(const FlashMla& call, const Exec& exec);

}  // namespace dodona::ops
