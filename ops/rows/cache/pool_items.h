// Items of the KV cache and the pools that hold them: what the transfers between pools share.
//
// A pool holds an item (a token's keys, values or latent) for each slot of each layer. Pools differ in the order of their dimensions alone,
// so that a transfer is one loop over items, layers and parts of items, whatever lies where.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "dodona/exec.h"
#include "dodona/op.h"
#include "dodona/tensor.h"

namespace dodona::ops {

/// Dimensions of a pool's tensor, by name; H, the heads of an item, may be left out where one part holds the whole item.
enum class PoolLayout {
  one_layer,       ///< [slots, H, D]
  layer_first,     ///< [layers, slots, H, D]
  page_first,      ///< [slots, layers, H, D]
  page_head,       ///< [pages, H, slots of a page, layers, D]
  page_of_layers,  ///< [groups, pages, layers, slots of a page, H, D]; K and V are groups, the layers of one before those of the other
};

struct Pool {
  Tensor tensor = {};
  PoolLayout layout = PoolLayout::one_layer;
  std::int64_t first_layer = 0;
  /// Where there are groups: so many layers of a transfer lie in each.
  std::int64_t group_layers = std::numeric_limits<std::int64_t>::max();

  std::int64_t slots() const;
  std::int64_t layers() const;
  /// Slots of a page; 1 where the layout knows no pages.
  std::int64_t page_size() const;
  /// Elements of an item.
  std::int64_t item_elements() const;
  std::int64_t item_bytes() const;
};

/// For each i and for `layers` layers: item to_items[i] of `to` becomes item from_items[i] of `from`.
struct ItemTransfer {
  std::string_view output;  ///< name of the argument that `to` is
  Pool from = {}, to = {};
  Tensor from_items = {}, to_items = {};  ///< i64 or i32, equally many; `from_items` undefined: item i is number i
  std::int64_t layers = 1;
  /// Above 1: of so many indices in a row the first alone is looked at, and rounded down to a page where the pool has pages; the others are
  /// the slots behind it.
  std::int64_t run = 1;
};

/// The definition, element by element in the order of the items. Slots that several items name are left open.
void transfer_elements(const ItemTransfer& transfer, Reference* reference);
/// The same items as bytes; of items that name one slot the last is stored, whatever the number of threads.
void transfer_bytes(const ItemTransfer& transfer, const Exec& exec);
/// Bytes that are copied.
double bytes_transferred(const ItemTransfer& transfer);

/// Throws bad_shape, bad_value: the pools' items have one size, a multiple of `word` bytes, and so have their heads where a pool holds them
/// apart; runs are whole and stay inside the pools. (Indices that are looked at one by one are the schema's affair.)
void check_transfer(const ItemTransfer& transfer, std::int64_t word, std::string_view from_name, std::string_view from_items,
                    std::string_view to_items);
/// Throws bad_value where a size in bytes that the caller states (0: does not) is not what the pools have.
void check_stated_bytes(std::string_view attribute, std::int64_t stated, std::int64_t actual, const Pool& pool, std::string_view pool_name);

/// Fills indices of case lines: `page_size` times distinct numbers of pages (any numbers where there are too few), and the slots
/// behind.
void draw_pages(const Tensor& items, std::int64_t slots, std::int64_t page_size, std::uint64_t seed, std::string_view argument);

}  // namespace dodona::ops
