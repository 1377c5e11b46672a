#pragma once

#include "ops/schemes/kv_transfer.h"

namespace dodona::ops {

/// dst_layers[l, dst_indices[i]] = src_layers[l, src_indices[i]] for every i and every layer l, copied by runs of neighbouring slots.
/// Source: sgl-kernel `transfer_kv_direct` (kvcacheio).
struct TransferKvDirect : KvTransfer {
  std::int64_t page_size = 0;
  static constexpr std::int64_t word = 1;

  static constexpr OpInfo info{"transfer_kv_direct", Category::kv_cache, Source::sgl_kernel};
  static constexpr PoolSide from{
      "src_layers",        "",   PoolLayout::layer_first,
      "L Ss D | L Ss H D", "Ss", "[layers, slots, item] or [layers, slots, heads, head]: upstream's list, of K and V where both go"};
  static constexpr PoolSide to{"dst_layers",        "",   PoolLayout::layer_first,
                               "L Sd D | L Sd H D", "Sd", "as the source; slots that are not named keep their bits"};
  void describe(auto& op) {
    op.signature("src_layers, dst_layers, src_indices, dst_indices, page_size");
    describe_pools(op, from, to);
    describe_indices(op, from, to);
    op.attr("page_size", page_size, between(1, 1 << 20)).required().doc("slots of a page, whole pages of which are copied");
  }
  std::vector<ItemTransfer> transfers() const { return copies(from, to, {.layers = src_k.size(0)}); }
};

}  // namespace dodona::ops
