#include "ops/rows/cache/pool_items.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/random.h"
#include "core/threads.h"
#include "dodona/error.h"
#include "ops/base/copy_row.h"
#include "ops/base/golden_output.h"
#include "ops/base/index_at.h"
#include "ops/base/last_writers.h"
#include "quant/sizes.h"
#include "simd/tier.h"

namespace dodona::ops {
namespace {

/// Which dimension of a layout is what; -1 for none. Heads may be left out: the element is the last dimension.
struct Dimensions {
  int group, layer, page, slot, head, rank;
};
constexpr std::array<Dimensions, 5> dimensions{{
    {-1, -1, -1, 0, 1, 3},
    {-1, 0, -1, 1, 2, 4},
    {-1, 1, -1, 0, 2, 4},
    {-1, 3, 0, 2, 1, 5},
    {0, 2, 1, 3, 4, 6},
}};
const Dimensions& dimensions_of(const Pool& pool) {
  return dimensions[static_cast<std::size_t>(pool.layout)];
}
std::int64_t size_or_one(const Pool& pool, int dimension) {
  return dimension < 0 ? 1 : pool.tensor.size(dimension);
}
std::int64_t heads_of(const Pool& pool) {
  return pool.tensor.rank() == dimensions_of(pool).rank ? pool.tensor.size(dimensions_of(pool).head) : 1;
}

/// Where parts of items begin, in elements; the strides are those of memory, or those of the shape.
class Places {
 public:
  Places(const Pool& pool, const Dims& strides, std::int64_t parts, std::int64_t part_elements)
      : group_layers_(pool.group_layers), first_layer_(pool.first_layer), page_size_(pool.page_size()) {
    const Dimensions& d = dimensions_of(pool);
    const auto stride = [&](int dimension) { return dimension < 0 ? 0 : strides[dimension]; };
    group_ = stride(d.group), layer_ = stride(d.layer), slot_ = stride(d.slot);
    page_ = d.page < 0 ? slot_ : stride(d.page);
    part_ = parts > 1 && heads_of(pool) == parts ? stride(d.head) : part_elements;
  }
  std::int64_t at(std::int64_t layer, std::int64_t item, std::int64_t part) const {
    return layer / group_layers_ * group_ + (layer % group_layers_ + first_layer_) * layer_ + item / page_size_ * page_ +
           item % page_size_ * slot_ + part * part_;
  }
  bool has_parts_together(std::int64_t part_elements) const { return part_ == part_elements; }

 private:
  std::int64_t group_layers_, first_layer_, page_size_;
  std::int64_t group_ = 0, layer_ = 0, page_ = 0, slot_ = 0, part_ = 0;
};

std::int64_t item_at(const Tensor& items, std::int64_t i) {
  return items.defined() ? index_at(items, i) : i;
}

/// Number i of the transfer, in one of its pools.
std::int64_t item_of(const ItemTransfer& t, const Pool& pool, const Tensor& items, std::int64_t i) {
  if (t.run == 1) return item_at(items, i);
  const std::int64_t first = item_at(items, i / t.run * t.run);
  return (dimensions_of(pool).page < 0 ? first : first / t.run * t.run) + i % t.run;
}

/// How items are cut: the finer of the two pools' parts.
struct Cut {
  std::int64_t parts, elements;
};
Cut cut_of(const ItemTransfer& t) {
  const std::int64_t parts = std::max(heads_of(t.from), heads_of(t.to));
  return {parts, t.to.item_elements() / std::max<std::int64_t>(parts, 1)};
}

/// See superseded_writes.
template <class Other>
std::vector<std::uint8_t> superseded_items(const ItemTransfer& t, const Other& other) {
  return superseded_writes(
      t.to_items.elements(), t.to.slots(), [&](std::int64_t i) { return item_of(t, t.to, t.to_items, i); }, other);
}

}  // namespace

std::int64_t Pool::page_size() const {
  const Dimensions& d = dimensions_of(*this);
  return d.page < 0 ? 1 : tensor.size(d.slot);
}
std::int64_t Pool::slots() const {
  const Dimensions& d = dimensions_of(*this);
  return tensor.size(d.slot) * size_or_one(*this, d.page);
}
std::int64_t Pool::layers() const {
  return size_or_one(*this, dimensions_of(*this).layer);
}
std::int64_t Pool::item_elements() const {
  return heads_of(*this) * tensor.size(-1);
}
std::int64_t Pool::item_bytes() const {
  return bytes_for(tensor.dtype(), item_elements());
}

void transfer_elements(const ItemTransfer& t, Reference* reference) {
  const Cut cut = cut_of(t);
  const std::int64_t parts = cut.parts, width = cut.elements;
  // Positions in the order of the shapes; where they lie in memory is the tensors' affair.
  const Places from(t.from, contiguous_strides(t.from.tensor.shape()), parts, width),
      to(t.to, contiguous_strides(t.to.tensor.shape()), parts, width);
  const auto for_each_element = [&](std::int64_t from_item, std::int64_t to_item, const auto& body) {
    for (std::int64_t layer = 0; layer < t.layers; ++layer)
      for (std::int64_t part = 0; part < parts; ++part)
        for (std::int64_t e = 0; e < width; ++e) body(from.at(layer, from_item, part) + e, to.at(layer, to_item, part) + e);
  };
  for (std::int64_t i = 0; i < t.to_items.elements(); ++i)
    for_each_element(item_of(t, t.from, t.from_items, i), item_of(t, t.to, t.to_items, i), [&](std::int64_t source, std::int64_t target) {
      quant::set_bits(t.to.tensor, target, quant::get_bits(t.from.tensor, source));
    });
  record_exact(t.to.tensor, reference, t.output);
  if (reference == nullptr) return;
  GoldenOutput(t.to.tensor, reference, t.output).make_open();
  ReferenceOutput& record = reference->output(t.output, t.to.tensor.elements());
  superseded_items(t, [&](std::int64_t slot) {
    for_each_element(0, slot, [&](std::int64_t, std::int64_t target) { record.unspecified[static_cast<std::size_t>(target)] = 1; });
  });
}

void transfer_bytes(const ItemTransfer& t, const Exec& exec) {
  Cut cut = cut_of(t);
  const Places from(t.from, t.from.tensor.strides(), cut.parts, cut.elements), to(t.to, t.to.tensor.strides(), cut.parts, cut.elements);
  if (from.has_parts_together(cut.elements) && to.has_parts_together(cut.elements)) cut = {1, cut.parts * cut.elements};
  const std::int64_t count = t.to_items.elements(), bytes = bits(t.to.tensor.dtype()) / 8, piece = cut.elements * bytes;
  if (count == 0 || piece * cut.parts == 0) return;
  const std::vector<std::uint8_t> superseded = superseded_items(t, [](std::int64_t) {});
  constexpr std::int64_t task_bytes = std::int64_t{256} << 10;
  const std::int64_t per_task = std::max<std::int64_t>(1, task_bytes / (piece * cut.parts)), tasks = quant::ceil_div(count, per_task);
  // Past the caches where they would not keep what is written.
  const bool streamed = bytes_transferred(t) > 0x1p22;
  const auto* const source = static_cast<const std::byte*>(t.from.tensor.data());
  auto* const target = static_cast<std::byte*>(t.to.tensor.data());
  parallel_for(exec.threads, tasks * t.layers, static_cast<double>(task_bytes), [&](std::int64_t task) {
    const std::int64_t layer = task / tasks, begin = task % tasks * per_task, end = std::min(count, begin + per_task);
    CopyRow row{nullptr, nullptr, piece, streamed ? Writing::streamed : Writing::cached};
    for (std::int64_t i = begin; i < end; ++i) {
      if (superseded[static_cast<std::size_t>(i)] != 0) continue;
      const std::int64_t from_item = item_of(t, t.from, t.from_items, i), to_item = item_of(t, t.to, t.to_items, i);
      for (std::int64_t part = 0; part < cut.parts; ++part) {
        row.from = source + from.at(layer, from_item, part) * bytes;
        row.to = target + to.at(layer, to_item, part) * bytes;
        dispatch<CopyRowKernel>(exec.isa, row);
      }
    }
    row.bytes = 0;
    row.writing = Writing::streamed_last;
    if (streamed) dispatch<CopyRowKernel>(exec.isa, row);
  });
}

double bytes_transferred(const ItemTransfer& t) {
  return static_cast<double>(t.to_items.elements() * t.layers) * static_cast<double>(t.to.item_bytes());
}

void check_transfer(const ItemTransfer& t, std::int64_t word, std::string_view from_name, std::string_view from_items,
                    std::string_view to_items) {
  if (t.to.item_elements() != t.from.item_elements())
    throw Error(ErrorCode::bad_shape, "", std::string(from_name),
                "has shape " + to_string(t.from.tensor.shape()) + ", expected items of " + std::to_string(t.to.item_elements()) +
                    " elements as " + std::string(t.output) + " " + to_string(t.to.tensor.shape()) + " has");
  const bool by_head = t.from.layout == PoolLayout::page_head || t.to.layout == PoolLayout::page_head;
  if (const std::int64_t part = by_head ? bytes_for(t.to.tensor.dtype(), cut_of(t).elements) : t.to.item_bytes(); part % word != 0)
    throw Error(ErrorCode::bad_shape, "", std::string(from_name),
                "has shape " + to_string(t.from.tensor.shape()) + " with " + (by_head ? "heads" : "items") + " of " + std::to_string(part) +
                    " bytes, expected a multiple of " + std::to_string(word) + " bytes");
  if (t.to_items.elements() % t.run != 0)
    throw Error(ErrorCode::bad_shape, "", std::string(to_items),
                "has shape " + to_string(t.to_items.shape()) + ", expected whole pages of page_size = " + std::to_string(t.run));
  if (t.run == 1) return;
  const auto check = [&](const Pool& pool, const Tensor& items, std::string_view name) {
    for (std::int64_t i = 0; i < items.elements(); ++i)
      if (const std::int64_t slot = item_of(t, pool, items, i); slot < 0 || slot >= pool.slots())
        throw Error(ErrorCode::bad_value, "", std::string(name),
                    "leads to slot " + std::to_string(slot) + " at element " + std::to_string(i) + ", expected 0 to " +
                        std::to_string(pool.slots() - 1));
  };
  check(t.from, t.from_items, from_items);
  check(t.to, t.to_items, to_items);
}

void check_stated_bytes(std::string_view attribute, std::int64_t stated, std::int64_t actual, const Pool& pool,
                        std::string_view pool_name) {
  if (stated != 0 && stated != actual)
    throw Error(ErrorCode::bad_value, "", std::string(attribute),
                "is " + std::to_string(stated) + ", expected " + std::to_string(actual) + " bytes as " + std::string(pool_name) + " " +
                    to_string(pool.tensor.shape()) + " has");
}

void draw_pages(const Tensor& items, std::int64_t slots, std::int64_t page_size, std::uint64_t seed, std::string_view argument) {
  const InputDraw draw(seed, argument);
  const std::int64_t count = items.elements() / page_size, pages = slots / page_size;
  std::vector<std::int64_t> pool(static_cast<std::size_t>(pages));
  for (std::size_t p = 0; p < pool.size(); ++p) pool[p] = static_cast<std::int64_t>(p);
  for (std::int64_t i = 0; i < count && pages > 0; ++i) {
    // The first steps of a shuffle.
    auto page = static_cast<std::int64_t>(draw.below(i, static_cast<std::uint64_t>(pages < count ? pages : pages - i)));
    if (pages >= count) {
      std::swap(pool[static_cast<std::size_t>(i)], pool[static_cast<std::size_t>(i + page)]);
      page = pool[static_cast<std::size_t>(i)];
    }
    for (std::int64_t s = 0; s < page_size; ++s) quant::set(items, i * page_size + s, static_cast<double>(page * page_size + s));
  }
}

}  // namespace dodona::ops
