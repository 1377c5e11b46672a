#pragma once

#include "ops/schemes/kv_transfer.h"

namespace dodona::ops {

/// dst[l, dst_indices[i]] = src[l, src_indices[i]] for every i and every layer l: items of all layers, K and V, between two pools.
/// Source: sgl-kernel `transfer_kv_all_layer` (kvcacheio).
struct TransferKvAllLayer : KvTransfer {
  std::int64_t num_layers = 0;

  static constexpr OpInfo info{"transfer_kv_all_layer", Category::kv_cache, Source::sgl_kernel};
  static constexpr PoolSide from{"src_k_layers",
                                 "src_v_layers",
                                 PoolLayout::layer_first,
                                 "num_layers Ss D | num_layers Ss H D",
                                 "Ss",
                                 "[layers, slots, item] or [layers, slots, heads, head], layers as far apart as they like"};
  static constexpr PoolSide to{"dst_k_layers",
                               "dst_v_layers",
                               PoolLayout::layer_first,
                               "num_layers Sd D | num_layers Sd H D",
                               "Sd",
                               "as the source; slots that are not named keep their bits"};
  void describe(auto& op) {
    op.signature(
        "src_k_layers, dst_k_layers, src_v_layers, dst_v_layers, src_indices, dst_indices, item_size, num_layers, block_quota, "
        "num_warps_per_block");
    describe_pools(op, from, to);
    describe_indices(op, from, to);
    op.attr("num_layers", num_layers, between(1, 1 << 20)).required().doc("layers of the pools");
    describe_item_size(op);
    describe_launch(op);
  }
  std::vector<ItemTransfer> transfers() const { return copies(from, to, {.layers = num_layers}); }
};

}  // namespace dodona::ops
