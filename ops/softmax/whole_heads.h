// Heads of any width for what takes whole sixteens of elements: zeros behind those that are not, as upstream's kernels have them up to the
// next power of two.
#pragma once

#include "ops/softmax/attention.h"

namespace dodona::ops {

/// `heads` [.., .., width] itself, or of a width that is no multiple of 16 a dense copy that is wider.
Tensor whole_heads(const Tensor& heads);
/// Pools of keys and values, and the list of slots through which they are read.
struct Pools {
  Tensor keys, values;  ///< [slots, .., width]
  Tensor slots;         ///< i32 or i64
};
/// These pools themselves, or where one has heads of no whole sixteens dense wider copies of those slots alone that the first `read`
/// entries of the list name, with a list of their places in the copies.
Pools whole_pools(const Pools& pools, std::int64_t read);

/// `out` itself, or where results go that are wider.
Tensor whole_heads_of_output(const Tensor& out);
/// Those results, to `out`.
void store_heads(const Tensor& whole, const Tensor& out);

/// attention_golden of an attention to whole_heads_of_output(out), with records of the elements that `out` has.
void attention_golden_of_heads(const Attention& attention, const Tensor& out, WeightSum sum, const Exec& exec, Reference* reference);

}  // namespace dodona::ops
