#pragma once

#include "ops/schemes/kv_transfer.h"

namespace dodona::ops {

/// dst[dst_indices[i]] = src[src_indices[i]] for every i: items of one layer, K and V, between two pools.
/// Source: sgl-kernel `transfer_kv_per_layer` (kvcacheio).
struct TransferKvPerLayer : KvTransfer {
  static constexpr OpInfo info{"transfer_kv_per_layer", Category::kv_cache, Source::sgl_kernel};
  static constexpr PoolSide from{"src_k",         "src_v", PoolLayout::one_layer,
                                 "Ss D | Ss H D", "Ss",    "one layer, [slots, item] or [slots, heads, head]"};
  static constexpr PoolSide to{
      "dst_k",         "dst_v", PoolLayout::one_layer,
      "Sd D | Sd H D", "Sd",    "one layer, [slots, item] or [slots, heads, head]; slots that are not named keep their bits"};
  void describe(auto& op) {
    op.signature("src_k, dst_k, src_v, dst_v, src_indices, dst_indices, item_size, block_quota, num_warps_per_block");
    describe_pools(op, from, to);
    describe_indices(op, from, to);
    describe_item_size(op);
    describe_launch(op);
  }
  std::vector<ItemTransfer> transfers() const { return copies(from, to, {}); }
};

}  // namespace dodona::ops
