// Outputs that are written past the caches.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/threads.h"
#include "dodona/tensor.h"
#include "ops/base/writing.h"

namespace dodona::ops {

/// Whether so many bytes are kept by the caches for the next op.
constexpr bool kept_by_caches(std::int64_t bytes) {
  return bytes <= std::int64_t{2} << 20;
}

/// Whether an output is so large that the caches would not keep it for the next op, but lose what they hold to it. Ordinary stores also
/// read each line before they write it; stores past the caches do not, which is a third of the traffic of a copy. Below that size reading
/// the output back costs what was saved. At 3.7 MB, [512, 7168] e4m3 codes of bf16 from memory, it comes to the same on one core of a Zen 5
/// (255 us past the caches and 281 into them, to be read back 79 and 38); two cores of a Zen 4 save a tenth, and a product of so many rows
/// takes a hundred times as long.
inline bool worth_streaming(const Tensor& output) {
  return !kept_by_caches(bytes_for(output.dtype(), output.elements()));
}

/// parallel_for over rows, as body(row, writing). When the output is streamed a task is some 64 KB of rows, for making them visible takes
/// as long as moving some KB.
template <class Body>
void parallel_for_rows(int threads, std::int64_t rows, double cost, bool streamed, std::int64_t row_bytes, const Body& body) {
  if (!streamed) return parallel_for(threads, rows, cost, [&](std::int64_t row) { body(row, Writing::cached); });
  const std::int64_t per_task = std::max<std::int64_t>(1, (std::int64_t{64} << 10) / std::max<std::int64_t>(1, row_bytes));
  parallel_for(threads, (rows + per_task - 1) / per_task, cost * static_cast<double>(per_task), [&](std::int64_t task) {
    const std::int64_t end = std::min(rows, (task + 1) * per_task);
    for (std::int64_t row = task * per_task; row < end; ++row) body(row, row + 1 < end ? Writing::streamed : Writing::streamed_last);
  });
}

}  // namespace dodona::ops
