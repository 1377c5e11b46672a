// Rows of logits below a threshold set to -infinity.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dodona::ops {

/// The double that logits must exceed for top_k_mask_logits to keep them. `flushed`: denormals count as zero, as fast-math builds have it.
double mask_threshold(std::span<const float> row, std::uint32_t count, bool flushed);
/// Likewise of a search bit by bit, which keeps all that are not below the count-th, wherever the row begins.
double radix_mask_threshold(std::span<const float> row, std::uint32_t count, bool flushed);

}  // namespace dodona::ops
