// What the ops that copy items between pools of the KV cache share: arguments, checks, and how the copies make an op.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/define.h"
#include "ops/rows/cache/pool_items.h"

namespace dodona::ops {

using enum DType;

/// One side of a transfer as its op's schema has it.
struct PoolSide {
  std::string_view k, v;  ///< names of the arguments; no `v` where there is one pool: MLA, or K and V as groups of one tensor
  PoolLayout layout;
  std::string_view shape, slots;  ///< expressions: of the pool, and how many slots that makes
  std::string_view doc;
};

/// A call. Pools of MLA are `src_k` and `dst_k`. An op adds what it takes beside them, and has `from`, `to` and `transfers()`.
struct KvTransfer {
  /// Bytes that upstream's kernels copy at a time: they leave what is behind the last whole word. The framework's copies have `word` 1.
  static constexpr std::int64_t word = 8;

  Tensor src_k, dst_k, src_v, dst_v, src_indices, dst_indices;
  std::int64_t item_size = 0, block_quota = 2, num_warps_per_block = 32;

  void describe_pools(auto& op, const PoolSide& from, const PoolSide& to) {
    op.in(from.k, src_k, {bf16, f16, f8_e4m3, f8_e5m2, f32, f64, i8, u8}, from.shape).doc(from.doc);
    op.inout(to.k, dst_k, same_as(from.k), to.shape).judged(Judge::exact).doc(to.doc);
    if (from.v.empty()) return;
    op.in(from.v, src_v, same_as(from.k), from.shape).doc("values: as the keys");
    op.inout(to.v, dst_v, same_as(from.k), to.shape).judged(Judge::exact).doc("values: as the keys");
  }
  void describe_indices(auto& op, const PoolSide& from, const PoolSide& to) {
    op.in("src_indices", src_indices, {i64}, "n").role(Role::indices, from.slots).doc("slot of each item in the source");
    op.in("dst_indices", dst_indices, {i64}, "n").role(Role::indices, to.slots).doc("slot of each item in the destination");
  }
  /// Indices of whole pages, of which the first alone is looked at.
  void describe_pages(auto& op, const PoolSide& from, const PoolSide& to) {
    constexpr std::string_view how = "whole pages: page_size times distinct numbers of pages, and the slots behind each";
    op.in("src_indices", src_indices, {i64, i32}, "n")
        .role(Role::indices, from.slots)
        .kin(how)
        .doc("slot of each item in the source, whole pages of them; of a page the first alone is looked at");
    op.in("dst_indices", dst_indices, {i64, i32}, "n")
        .role(Role::indices, to.slots)
        .kin(how)
        .doc("slot of each item in the destination, likewise");
  }
  void describe_item_size(auto& op) {
    op.attr("item_size", item_size, at_least(0)).doc("bytes of an item, which must be what the pools have; 0: not stated");
  }
  void describe_launch(auto& op) {
    op.attr("block_quota", block_quota, at_least(1)).ignored().doc("thread blocks of the launch, without effect on values");
    op.attr("num_warps_per_block", num_warps_per_block, between(1, 32)).ignored().doc("warps of a thread block, without effect on values");
  }

  /// K's copy, and V's where there is one. `whole` holds what they have in common: layers, run and the pools' layers.
  std::vector<ItemTransfer> copies(const PoolSide& from, const PoolSide& to, ItemTransfer whole) const {
    whole.from.layout = from.layout;
    whole.to.layout = to.layout;
    whole.from_items = src_indices;
    whole.to_items = dst_indices;
    std::vector<ItemTransfer> made;
    const auto add = [&](std::string_view output, const Tensor& source, const Tensor& target) {
      whole.output = output;
      whole.from.tensor = source;
      whole.to.tensor = target;
      made.push_back(whole);
    };
    add(to.k, src_k, dst_k);
    if (!from.v.empty()) add(to.v, src_v, dst_v);
    return made;
  }
};

/// What a caller states beside the pools.
struct StatedSizes {
  std::int64_t layer_id = -1;         ///< last layer of the source that is read, where the caller says
  std::string_view layout_attr = {};  ///< bytes of a slot over all layers, of the side that has them together
  std::int64_t layout_dim = 0, page_size = 1;
};

/// Throws Error where sizes that are stated are not those of the pools, or indices lead outside.
template <class Op>
void check_kv_transfer(const Op& op, const StatedSizes& stated) {
  for (const ItemTransfer& transfer : op.transfers()) {
    check_transfer(transfer, Op::word, Op::from.k, "src_indices", "dst_indices");
    check_stated_bytes("item_size", op.item_size, transfer.to.item_bytes(), transfer.to, transfer.output);
    const bool gathers = Op::from.layout == PoolLayout::page_first || Op::from.layout == PoolLayout::page_head;
    const Pool& together = gathers ? transfer.from : transfer.to;
    if (!stated.layout_attr.empty())
      check_stated_bytes(stated.layout_attr, stated.layout_dim, together.layers() * together.item_bytes(), together,
                         gathers ? Op::from.k : Op::to.k);
    if (stated.layer_id >= 0 && stated.layer_id >= transfer.from.layers())
      throw Error(ErrorCode::bad_value, "", "layer_id",
                  "is " + std::to_string(stated.layer_id) + ", expected below " + std::to_string(transfer.from.layers()) +
                      ", the layers of " + std::string(Op::from.k) + " " + to_string(transfer.from.tensor.shape()));
  }
  if (stated.page_size < 1 || op.dst_indices.elements() % stated.page_size != 0)
    throw Error(
        ErrorCode::bad_shape, "", "dst_indices",
        "has shape " + to_string(op.dst_indices.shape()) + ", expected whole pages of page_size = " + std::to_string(stated.page_size));
}

/// The op of `Op`'s transfers; `check` is what it demands beyond its schema.
template <class Op>
Implementation<Op> kv_transfer(const std::string& what, void (*check)(const Op&), const std::vector<std::string>& cases,
                               const std::vector<std::string>& bench_cases) {
  Implementation<Op> made;
  const std::string sizes = Op::word > 1 ? R"(Items, and heads that lie
apart, are multiples of 8 bytes (upstream refuses such items, and of such heads leaves what is behind the last 8 or faults). No items:
nothing is copied (upstream divides by zero).)"
                                         : R"(Items have any size.)";
  made.contract = what + R"(
 A copy of bits, whatever the element type; slots that no index names keep theirs. )" +
                  sizes + R"( Of items that name one slot of the destination upstream stores any
(here the last), and that slot is not judged. Here errors: indices out of range (upstream reads and writes wherever they lead), pools of
two types (upstream's kernels copy their bytes, the framework's copies convert), and stated sizes that are not those of the pools. Pools are tensors in which layers are a dimension of their own, and
dimensions may lie anywhere as long as the elements of a head lie together (upstream's kernels look at no strides); upstream takes the
layers of some pools as a table of addresses (as dodona.compat does) or a list.)";
  made.golden = [](const Op& op, const Exec&, Reference* reference) {
    for (const ItemTransfer& transfer : op.transfers()) transfer_elements(transfer, reference);
  };
  made.fast = [](const Op& op, const Exec& exec) {
    for (const ItemTransfer& transfer : op.transfers()) transfer_bytes(transfer, exec);
  };
  made.hopper = made.fast;
  made.check = check;
  made.bytes_read = [](const Op& op) {
    double bytes = 0;
    for (const ItemTransfer& transfer : op.transfers()) bytes += bytes_transferred(transfer);
    return bytes;
  };
  made.cases = cases;
  made.bench_cases = bench_cases;
  return made;
}

/// Input lines of whole pages: see KvTransfer::describe_pages.
template <class Op>
void make_pages(Op& op, std::uint64_t seed) {
  const ItemTransfer transfer = op.transfers().front();
  draw_pages(op.src_indices, transfer.from.slots(), op.page_size, seed, "src_indices");
  draw_pages(op.dst_indices, transfer.to.slots(), op.page_size, seed, "dst_indices");
}

}  // namespace dodona::ops
