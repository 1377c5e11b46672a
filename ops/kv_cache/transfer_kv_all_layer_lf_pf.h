#pragma once

#include "ops/schemes/kv_transfer.h"

namespace dodona::ops {

/// dst[dst_indices[i], l] = src[l, src_indices[i]] for every i and every layer l: K and V into a pool whose slots hold all layers.
/// Source: sgl-kernel `transfer_kv_all_layer_lf_pf` (kvcacheio).
struct TransferKvAllLayerLfPf : KvTransfer {
  std::int64_t num_layers = 0, dst_layout_dim = 0;

  static constexpr OpInfo info{"transfer_kv_all_layer_lf_pf", Category::kv_cache, Source::sgl_kernel};
  static constexpr PoolSide from{"src_k_layers",
                                 "src_v_layers",
                                 PoolLayout::layer_first,
                                 "num_layers Ss D | num_layers Ss H D",
                                 "Ss",
                                 "[layers, slots, item] or [layers, slots, heads, head], layers as far apart as they like"};
  static constexpr PoolSide to{
      "dst_k",
      "dst_v",
      PoolLayout::page_first,
      "Sd num_layers D | Sd num_layers H D",
      "Sd",
      "[slots, layers, item] or [slots, layers, heads, head]: a slot holds all layers; slots that are not named keep their bits"};
  void describe(auto& op) {
    op.signature(
        "src_k_layers, dst_k, src_v_layers, dst_v, src_indices, dst_indices, item_size, dst_layout_dim, num_layers, block_quota, "
        "num_warps_per_block");
    describe_pools(op, from, to);
    describe_indices(op, from, to);
    op.attr("num_layers", num_layers, between(1, 1 << 20)).required().doc("layers of the pools");
    op.attr("dst_layout_dim", dst_layout_dim, at_least(0))
        .doc("bytes of a slot over all layers, which must be what the destination has; 0: not stated");
    describe_item_size(op);
    describe_launch(op);
  }
  std::vector<ItemTransfer> transfers() const { return copies(from, to, {.layers = num_layers}); }
};

}  // namespace dodona::ops
