#pragma once

#include "ops/schemes/kv_transfer.h"

namespace dodona::ops {

/// dst[dst_indices[i]] = src[src_indices[i], layer_id] for every i: one layer, K and V, out of a pool whose slots hold all layers.
/// Source: sgl-kernel `transfer_kv_per_layer_pf_lf` (kvcacheio).
struct TransferKvPerLayerPfLf : KvTransfer {
  std::int64_t layer_id = 0, src_layout_dim = 0;

  static constexpr OpInfo info{"transfer_kv_per_layer_pf_lf", Category::kv_cache, Source::sgl_kernel};
  static constexpr PoolSide from{"src_k",
                                 "src_v",
                                 PoolLayout::page_first,
                                 "Ss L D | Ss L H D",
                                 "Ss",
                                 "[slots, layers, item] or [slots, layers, heads, head]: a slot holds all layers"};
  static constexpr PoolSide to{
      "dst_k",         "dst_v", PoolLayout::one_layer,
      "Sd D | Sd H D", "Sd",    "one layer, [slots, item] or [slots, heads, head]; slots that are not named keep their bits"};
  void describe(auto& op) {
    op.signature(
        "src_k, dst_k, src_v, dst_v, src_indices, dst_indices, layer_id, item_size, src_layout_dim, block_quota, num_warps_per_block");
    describe_pools(op, from, to);
    describe_indices(op, from, to);
    op.attr("layer_id", layer_id, at_least(0)).required().doc("layer of the source");
    op.attr("src_layout_dim", src_layout_dim, at_least(0))
        .doc("bytes of a slot over all layers, which must be what the source has; 0: not stated");
    describe_item_size(op);
    describe_launch(op);
  }
  std::vector<ItemTransfer> transfers() const { return copies(from, to, {.from = {.first_layer = layer_id}}); }
};

}  // namespace dodona::ops
