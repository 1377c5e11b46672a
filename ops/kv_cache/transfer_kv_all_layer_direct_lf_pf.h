#pragma once

#include "ops/schemes/kv_transfer.h"

namespace dodona::ops {

/// dst_ptrs[g, p, l, s] = src_ptrs[g*L + l, first + s] for every page of indices, s < page_size, every group g and layer l, where p is the
/// destination's first index over page_size and `first` the source's first index.
/// Source: sgl-kernel `transfer_kv_all_layer_direct_lf_pf` (kvcacheio).
struct TransferKvAllLayerDirectLfPf : KvTransfer {
  std::int64_t page_size = 0;
  static constexpr std::int64_t word = 1;

  static constexpr OpInfo info{"transfer_kv_all_layer_direct_lf_pf", Category::kv_cache, Source::sgl_kernel};
  static constexpr PoolSide from{
      "src_ptrs",
      "",
      PoolLayout::layer_first,
      "C*L Ss D | C*L Ss H D",
      "Ss",
      "[groups*layers, slots, item] or [.., heads, head], the layers of one group behind those of the other; upstream's list"};
  static constexpr PoolSide to{"dst_ptrs",
                               "",
                               PoolLayout::page_of_layers,
                               "C pages L page_size D | C pages L page_size H D",
                               "pages*page_size",
                               "[groups, pages, layers, slots of a page, item] or [.., heads, head]: K and V (2 groups) or MLA's pool (1); "
                               "pages that are not named keep their bits"};
  void describe(auto& op) {
    op.signature("src_ptrs, dst_ptrs, src_indices, dst_indices, page_size");
    describe_pools(op, from, to);
    describe_pages(op, from, to);
    op.attr("page_size", page_size, between(1, 1 << 20)).required().doc("slots of a page, whole pages of which are copied");
  }
  std::vector<ItemTransfer> transfers() const {
    return copies(from, to, {.to = {.group_layers = dst_k.size(2)}, .layers = src_k.size(0), .run = page_size});
  }
};

}  // namespace dodona::ops
