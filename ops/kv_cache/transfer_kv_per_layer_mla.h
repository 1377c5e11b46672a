#pragma once

#include "ops/schemes/kv_transfer.h"

namespace dodona::ops {

/// dst[dst_indices[i]] = src[src_indices[i]] for every i: items of one layer, the latent, between two pools.
/// Source: sgl-kernel `transfer_kv_per_layer_mla` (kvcacheio).
struct TransferKvPerLayerMla : KvTransfer {
  static constexpr OpInfo info{"transfer_kv_per_layer_mla", Category::kv_cache, Source::sgl_kernel};
  static constexpr PoolSide from{"src",           "",   PoolLayout::one_layer,
                                 "Ss D | Ss H D", "Ss", "one layer, [slots, item] or [slots, heads, head]"};
  static constexpr PoolSide to{
      "dst",           "",   PoolLayout::one_layer,
      "Sd D | Sd H D", "Sd", "one layer, [slots, item] or [slots, heads, head]; slots that are not named keep their bits"};
  void describe(auto& op) {
    op.signature("src, dst, src_indices, dst_indices, item_size, block_quota, num_warps_per_block");
    describe_pools(op, from, to);
    describe_indices(op, from, to);
    describe_item_size(op);
    describe_launch(op);
  }
  std::vector<ItemTransfer> transfers() const { return copies(from, to, {}); }
};

}  // namespace dodona::ops
