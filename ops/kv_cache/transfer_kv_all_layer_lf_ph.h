#pragma once

#include "ops/schemes/kv_transfer.h"

namespace dodona::ops {

/// dst[p / page_size, h, p mod page_size, l] = src[l, src_indices[i], h], p = dst_indices[i], for every i, head h and layer l: K and V into
/// a pool whose pages hold head after head. Source: sgl-kernel `transfer_kv_all_layer_lf_ph` (kvcacheio).
struct TransferKvAllLayerLfPh : KvTransfer {
  std::int64_t num_layers = 0, dst_layout_dim = 0, page_size = 0, head_num = 0;

  static constexpr OpInfo info{"transfer_kv_all_layer_lf_ph", Category::kv_cache, Source::sgl_kernel};
  static constexpr PoolSide from{"src_k_layers",
                                 "src_v_layers",
                                 PoolLayout::layer_first,
                                 "num_layers Ss head_num*D | num_layers Ss H D",
                                 "Ss",
                                 "[layers, slots, item] or [layers, slots, heads, head], layers as far apart as they like"};
  static constexpr PoolSide to{"dst_k",
                               "dst_v",
                               PoolLayout::page_head,
                               "pages head_num page_size num_layers D",
                               "pages*page_size",
                               "[pages, heads, slots of a page, layers, head]; slots that are not named keep their bits"};
  void describe(auto& op) {
    op.signature(
        "src_k_layers, dst_k, src_v_layers, dst_v, src_indices, dst_indices, item_size, dst_layout_dim, num_layers, page_size, head_num, "
        "block_quota, num_warps_per_block");
    describe_pools(op, from, to);
    describe_indices(op, from, to);
    op.attr("num_layers", num_layers, between(1, 1 << 20)).required().doc("layers of the pools");
    op.attr("dst_layout_dim", dst_layout_dim, at_least(0))
        .doc("bytes of a slot over all layers, which must be what the destination has; 0: not stated");
    op.attr("page_size", page_size, between(1, 1 << 20)).required().doc("slots of a page");
    op.attr("head_num", head_num, between(1, 1 << 20)).required().doc("heads of an item");
    describe_item_size(op);
    describe_launch(op);
  }
  std::vector<ItemTransfer> transfers() const { return copies(from, to, {.layers = num_layers}); }
};

}  // namespace dodona::ops
