#pragma once

#include "ops/schemes/kv_transfer.h"

namespace dodona::ops {

/// dst_ptrs[g*N + l, d + s] = src_ptrs[g, p, layer_id + l, s] for every page of indices, s < page_size, every group g and l < N, where p is
/// the source's first index over page_size and d the destination's first index. Source: sgl-kernel `transfer_kv_per_layer_direct_pf_lf`
/// (kvcacheio).
struct TransferKvPerLayerDirectPfLf : KvTransfer {
  std::int64_t layer_id = 0, page_size = 0;
  static constexpr std::int64_t word = 1;

  static constexpr OpInfo info{"transfer_kv_per_layer_direct_pf_lf", Category::kv_cache, Source::sgl_kernel};
  static constexpr PoolSide from{
      "src_ptrs",
      "",
      PoolLayout::page_of_layers,
      "C pages L page_size D | C pages L page_size H D",
      "pages*page_size",
      "[groups, pages, layers, slots of a page, item] or [.., heads, head]; upstream's list of K and V (2 groups) or of MLA's pool (1)"};
  static constexpr PoolSide to{"dst_ptrs",
                               "",
                               PoolLayout::layer_first,
                               "C*N Sd D | C*N Sd H D",
                               "Sd",
                               "[groups*layers, slots, item] or [.., heads, head], the layers of one group behind those of the other; "
                               "slots that are not named keep their bits"};
  void describe(auto& op) {
    op.signature("src_ptrs, dst_ptrs, src_indices, dst_indices, layer_id, page_size");
    describe_pools(op, from, to);
    describe_pages(op, from, to);
    op.attr("layer_id", layer_id, at_least(0)).required().doc("first layer of the source");
    op.attr("page_size", page_size, between(1, 1 << 20)).required().doc("slots of a page, whole pages of which are copied");
  }
  /// Layers that each group of the destination takes.
  std::int64_t group_layers() const { return dst_k.size(0) / std::max<std::int64_t>(1, src_k.size(0)); }
  std::vector<ItemTransfer> transfers() const {
    return copies(from, to, {.from = {.first_layer = layer_id, .group_layers = group_layers()}, .layers = dst_k.size(0), .run = page_size});
  }
};

}  // namespace dodona::ops
