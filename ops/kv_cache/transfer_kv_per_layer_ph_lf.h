#pragma once

#include "ops/schemes/kv_transfer.h"

namespace dodona::ops {

/// dst[dst_indices[i], h] = src[p / page_size, h, p mod page_size, layer_id], p = src_indices[i], for every i and head h: one layer of K
/// and V out of a pool whose pages hold head after head. Source: sgl-kernel `transfer_kv_per_layer_ph_lf` (kvcacheio).
struct TransferKvPerLayerPhLf : KvTransfer {
  std::int64_t layer_id = 0, src_layout_dim = 0, page_size = 0, head_num = 0;

  static constexpr OpInfo info{"transfer_kv_per_layer_ph_lf", Category::kv_cache, Source::sgl_kernel};
  static constexpr PoolSide from{"src_k",
                                 "src_v",
                                 PoolLayout::page_head,
                                 "pages head_num page_size L D",
                                 "pages*page_size",
                                 "[pages, heads, slots of a page, layers, head]"};
  static constexpr PoolSide to{"dst_k",
                               "dst_v",
                               PoolLayout::one_layer,
                               "Sd head_num*D | Sd H D",
                               "Sd",
                               "one layer, [slots, item] or [slots, heads, head]; slots that are not named keep their bits"};
  void describe(auto& op) {
    op.signature(
        "src_k, dst_k, src_v, dst_v, src_indices, dst_indices, layer_id, item_size, src_layout_dim, page_size, head_num, block_quota, "
        "num_warps_per_block");
    describe_pools(op, from, to);
    describe_indices(op, from, to);
    op.attr("layer_id", layer_id, at_least(0)).required().doc("layer of the source");
    op.attr("src_layout_dim", src_layout_dim, at_least(0))
        .doc("bytes of a slot over all layers, which must be what the source has; 0: not stated");
    op.attr("page_size", page_size, between(1, 1 << 20)).required().doc("slots of a page");
    op.attr("head_num", head_num, between(1, 1 << 20)).required().doc("heads of an item");
    describe_item_size(op);
    describe_launch(op);
  }
  std::vector<ItemTransfer> transfers() const { return copies(from, to, {.from = {.first_layer = layer_id}}); }
};

}  // namespace dodona::ops
