// The splits of FlashMLA's decode kernels, and how their results are combined, to the bit of an H200.
//
// Source: FlashMLA csrc/smxx/mla_combine.cu, csrc/extension/sm90/dense_fp8/flash_fwd_mla_kernel.h.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dodona/exec.h"
#include "ops/softmax/flash_mla/schedule.h"
#include "ops/softmax/layouts/mla_decode.h"

namespace dodona::ops {

/// One row of one split.
struct FlashMlaRow {
  std::array<float, static_cast<std::size_t>(mla_latent)> out;  ///< divided by the sum of the weights
  float lse;                                                    ///< natural: the result where the row has one split
  float split_lse;  ///< what splits are combined by: base 2, of the fp8 kernel natural; -inf where no key is seen
};

struct FlashMlaRun {
  /// Rows of a request that one block of the GPU takes: the first of them, and how many.
  struct Rows {
    std::int64_t first, count;
  };
  FlashMlaWork work;
  std::vector<Rows> blocks;
  bool natural = false;  ///< split_lse
  std::function<void(std::int64_t request, const Rows& rows, const FlashMlaRange& range, FlashMlaRow* results)> tile;
};

/// Output and natural log-sum-exp of each row, `out` [B, Q, N, 512], `lse` [B, N, Q].
void run_flash_mla(const FlashMlaRun& run, const Tensor& out, const Tensor& lse, const Exec& exec);

}  // namespace dodona::ops
