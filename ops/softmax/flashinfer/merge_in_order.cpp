#include "ops/softmax/flashinfer/merge_in_order.h"

#include <limits>

#include "core/threads.h"
#include "ops/softmax/flashinfer/merged_state.h"
#include "quant/element.h"

namespace dodona::ops {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Whether states are shared out.
bool shares_out(const StatesMerge& merge) {
  return merge.v.size(1) >= merge.v.size(0);
}

MergedState merged_row(const StatesMerge& merge, std::int64_t row) {
  const std::int64_t width = merge.v.size(3), states = merge.v.size(1), heads = merge.v.size(2), token = row / heads, head = row % heads;
  const auto place = [&](std::int64_t state) { return (token * states + state) * heads + head; };
  const auto value_at = [&](std::int64_t state, std::int64_t i) {
    return static_cast<float>(quant::get(merge.v, place(state) * width + i));
  };
  const auto lse_of = [&](std::int64_t state) { return static_cast<float>(quant::get(merge.s, place(state))); };
  return shares_out(merge) ? merged_of_parts(merge.v.dtype(), width, states, value_at, lse_of)
                           : merged_in_order(width, states, 0, 1, value_at, lse_of);
}

}  // namespace

std::int64_t threads_of_merge(const StatesMerge& merge) {
  return shares_out(merge) ? 128 : merge.v.size(2) * merge.v.size(3) / elements_of_merging_thread(merge.v.size(3));
}

void merge_in_order_hopper(const StatesMerge& merge, const Exec& exec) {
  const std::int64_t width = merge.v.size(3), states = merge.v.size(1);
  parallel_for(exec.threads, merge.s_merged.elements(), static_cast<double>(states * width), [&](std::int64_t index) {
    const bool none = states == 0, copied = states == 1 && !shares_out(merge);
    if (none) quant::set(merge.s_merged, index, -infinity);
    if (copied) quant::set_bits(merge.s_merged, index, quant::get_bits(merge.s, index));
    for (std::int64_t i = index * width; (none || copied) && i < (index + 1) * width; ++i)
      quant::set_bits(merge.v_merged, i, none ? 0 : quant::get_bits(merge.v, i));
    if (none || copied) return;
    const MergedState merged = merged_row(merge, index);
    quant::set(merge.s_merged, index, merged.lse());
    for (std::int64_t i = 0; i < width; ++i) quant::set(merge.v_merged, index * width + i, merged.values[static_cast<std::size_t>(i)]);
  });
}

}  // namespace dodona::ops
