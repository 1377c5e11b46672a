#include "core/storage.h"

#include <array>

namespace dodona {
namespace {

struct Order {
  std::string_view name, text;
};

constexpr std::array<Order, 6> orders{{
    {"linear", "row by row"},
    {"swizzled-128x4", "in tiles of 128 x 4: row r of a tile at (r mod 32)*16 + (r/32)*4, padded to whole tiles"},
    {"swizzled-8x4", "in tiles of 8 x 4, row by row inside, padded to whole tiles"},
    {"m-major", "group by group"},
    {"ue8m0-words", "four ue8m0 exponents to a 32-bit word, words group by group, rows padded to 4"},
    {"interleaved-4", "four groups of a row next to each other"},
}};

const Order& order_of(ScaleOrder order) {
  return orders[static_cast<std::size_t>(order)];
}

/// "a scale for each row of A".
std::string scaled_text(const Storage::Scales& scales) {
  if (scales.rows == 0 && scales.columns == 0) return "the scale of " + scales.of;
  if (scales.rows == 1 && scales.columns == 0) return "a scale for each row of " + scales.of;
  if (scales.rows == 0 && scales.columns == 1) return "a scale for each column of " + scales.of;
  const auto extent = [](std::int64_t count) { return count == 0 ? std::string("all") : std::to_string(count); };
  return "a scale for " + extent(scales.rows) + " x " + extent(scales.columns) + " elements of " + scales.of;
}

}  // namespace

Tensor as_codes(const Tensor& tensor, const Storage& storage) {
  if (!storage.code || tensor.rank() == 0 || is_float(tensor.dtype())) return tensor;
  const Tensor dense = tensor.contiguous() ? tensor : tensor.clone();
  Dims shape = dense.shape();
  shape[shape.rank() - 1] *= bits(dense.dtype()) / bits(*storage.code);
  return {dense.owner(), dense.data(), *storage.code, shape, contiguous_strides(shape), dense.writable()};
}

std::string_view name(ScaleOrder order) {
  return order_of(order).name;
}

std::string to_string(const Storage& storage) {
  std::string text;
  if (storage.code) {
    text = std::string(name(*storage.code)) + " codes";
    if (bits(*storage.code) == 4) text += ", two a byte, the even column in the low nibble";
  }
  if (!storage.scales) return text;
  const Storage::Scales& scales = *storage.scales;
  if (!text.empty()) text += "; ";
  text += scaled_text(scales);
  if (scales.order != ScaleOrder::linear) text += ", " + std::string(order_of(scales.order).text);
  if (scales.by_expert) text += "; each expert's rows begin a tile of their own";
  return text;
}

}  // namespace dodona
