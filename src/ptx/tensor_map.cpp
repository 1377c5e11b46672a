#include "ptx/tensor_map.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "dodona/error.h"

namespace dodona::ptx {
namespace {

constexpr std::uint32_t mark_of_ours = 0x50414D54;

struct ElementType {
  std::string_view name;
  int bytes;
  bool is_float;
  std::string_view atomic;  ///< its name in atomics
};
/// In the order of `tensormap.replace.elemtype`.
constexpr std::string_view element_codes[] = {"u8",  "u16",     "u32", "i32",  "u64",  "i64", "f16",
                                              "f32", "f32_ftz", "f64", "bf16", "tf32", "tf32"};
constexpr ElementType element_types[] = {{"u8", 1, false, "u8"},    {"u16", 2, false, "u16"},    {"u32", 4, false, "u32"},
                                         {"i32", 4, false, "s32"},  {"u64", 8, false, "u64"},    {"i64", 8, false, "s64"},
                                         {"f16", 2, true, "f16"},   {"f32", 4, true, "f32"},     {"f64", 8, true, "f64"},
                                         {"bf16", 2, true, "bf16"}, {"f32_ftz", 4, true, "f32"}, {"tf32", 4, true, "tf32"}};

void set_type(TensorBox& box, const ElementType& type) {
  box.element_bytes = static_cast<std::uint8_t>(type.bytes);
  box.is_float = type.is_float ? 1 : 0;
  box.type = static_cast<std::uint8_t>(&type - element_types);
}

}  // namespace

std::uint64_t TensorBox::elements() const {
  std::uint64_t count = 1;
  for (int d = 0; d < rank; ++d) count *= box[static_cast<std::size_t>(d)];
  return count;
}

/// Sixteen bytes move within their row by the number of the row: bits 4 to 6 by bits 7 to 9 of the address.
std::uint64_t TensorBox::swizzled(std::uint64_t base, std::uint64_t offset) const {
  const std::uint64_t bits = swizzle == 128 ? 7 : swizzle == 64 ? 3 : swizzle == 32 ? 1 : 0;
  const std::uint64_t at = base + offset;
  return (at ^ ((at >> 7 & bits) << 4)) - base;
}

void TensorBox::fill(std::byte* element) const {
  std::memset(element, nan_fill != 0 && is_float != 0 ? 0xFF : 0, element_bytes);
  if (nan_fill != 0 && is_float != 0) element[element_bytes - 1] = std::byte{0x7F};
}

std::string_view TensorBox::type_name() const {
  return element_types[type].atomic;
}

TensorBox encode(const TensorMap& map, std::size_t arguments, std::size_t index) {
  const std::string name = "args[" + std::to_string(index) + "]";
  const auto fail = [&](ErrorCode code, const std::string& what) { throw Error(code, "ptx", name, what); };
  TensorBox box;
  box.mark = mark_of_ours;
  const std::size_t rank = map.shape.size();
  if (rank < 1 || rank > 5) fail(ErrorCode::bad_shape, "a tensor map has 1 to 5 dimensions, got " + std::to_string(rank));
  if (map.strides.size() + 1 != rank || map.box.size() != rank || (!map.element_strides.empty() && map.element_strides.size() != rank))
    fail(ErrorCode::bad_shape, "a tensor map of " + std::to_string(rank) + " dimensions has as many sizes of a box, and a stride less");
  if (map.buffer >= arguments)
    fail(ErrorCode::bad_value, "the tensor map is of argument " + std::to_string(map.buffer) + ", there are " + std::to_string(arguments));
  if (map.interleave != 0) fail(ErrorCode::unsupported, "interleaved tensor maps are not there");
  if (map.swizzle != 0 && map.swizzle != 32 && map.swizzle != 64 && map.swizzle != 128)
    fail(ErrorCode::bad_value, "swizzle must be 0, 32, 64 or 128, got " + std::to_string(map.swizzle));
  bool known = false;
  for (const ElementType& t : element_types)
    if (t.name == map.dtype) {
      set_type(box, t);
      known = true;
    }
  if (!known) fail(ErrorCode::bad_dtype, "a tensor map has no elements of type '" + map.dtype + "'");
  box.rank = static_cast<std::uint8_t>(rank);
  box.swizzle = static_cast<std::uint8_t>(map.swizzle);
  box.nan_fill = map.nan_fill ? 1 : 0;
  box.address = device_address(map.buffer) + map.offset;
  if (box.address % 16 != 0) fail(ErrorCode::bad_alignment, "a tensor map's memory begins at a multiple of 16 bytes");
  for (std::size_t d = 0; d < rank; ++d) {
    if (map.shape[d] == 0 || map.shape[d] > 0xFFFFFFFFu) fail(ErrorCode::bad_shape, "a size of a tensor map is out of range");
    if (map.box[d] == 0 || map.box[d] > 256)
      fail(ErrorCode::bad_shape, "a box of a tensor map has 1 to 256 elements in each dimension, got " + std::to_string(map.box[d]));
    box.shape[d] = static_cast<std::uint32_t>(map.shape[d]);
    box.box[d] = map.box[d];
    box.element_strides[d] = static_cast<std::uint8_t>(map.element_strides.empty() ? 1 : map.element_strides[d]);
    if (box.element_strides[d] == 0 || box.element_strides[d] > 8)
      fail(ErrorCode::bad_stride, "an element stride of a tensor map is 1 to 8");
    if (d > 0) {
      if (map.strides[d - 1] % 16 != 0)
        fail(ErrorCode::bad_stride, "strides of a tensor map are multiples of 16 bytes, got " + std::to_string(map.strides[d - 1]));
      box.strides[d] = map.strides[d - 1];
    }
  }
  if (map.swizzle != 0 && std::uint64_t{map.box[0]} * box.element_bytes > static_cast<std::uint64_t>(map.swizzle))
    fail(ErrorCode::bad_shape, "a row of the box is longer than the swizzle");
  return box;
}

TensorBox tensor_map_at(Machine& m, std::uint64_t address, int lane, const Instruction& i) {
  TensorBox box;
  const std::byte* const at = m.at(Space::none, address, sizeof box, AccessKind::load, lane, i);
  if (at != nullptr) std::memcpy(static_cast<void*>(&box), at, sizeof box);
  if (at == nullptr || box.mark != mark_of_ours) m.fail("there is no tensor map at this address", i);
  return box;
}

bool find_map_field(std::string_view name, MapField& field) {
  constexpr std::string_view names[] = {"global_address", "rank",     "box_dim",           "global_dim",   "global_stride",
                                        "element_stride", "elemtype", "interleave_layout", "swizzle_mode", "fill_mode"};
  const auto* const found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) return false;
  field = static_cast<MapField>(found - std::begin(names));
  return true;
}

void replace_field(Machine& m, TensorBox& box, MapField field, std::uint64_t ordinal, std::uint64_t value, const Instruction& i) {
  const auto fail = [&](const std::string& what) { m.fail(what, i); };
  if (box.mark != mark_of_ours) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&box);
    if (std::any_of(bytes, bytes + sizeof box, [](std::byte b) { return b != std::byte{0}; }))
      fail("there is neither a tensor map nor zeros at this address");
    box.mark = mark_of_ours;
  }
  const bool is_stride = field == MapField::global_stride;
  if (ordinal + (is_stride ? 1 : 0) >= box.shape.size()) fail("a tensor map has at most 5 dimensions");
  switch (field) {
    case MapField::global_address:
      if (value % 16 != 0) fail("a tensor map's memory begins at a multiple of 16 bytes");
      box.address = value;
      break;
    case MapField::rank:  // less one
      if (value > 4) fail("a tensor map has 1 to 5 dimensions");
      box.rank = static_cast<std::uint8_t>(value + 1);
      break;
    case MapField::box_dim:
      if (value == 0 || value > 256) fail("a box of a tensor map has 1 to 256 elements in each dimension, got " + std::to_string(value));
      box.box[ordinal] = static_cast<std::uint32_t>(value);
      break;
    case MapField::global_dim: box.shape[ordinal] = static_cast<std::uint32_t>(value); break;
    case MapField::global_stride:
      if (value % 16 != 0) fail("strides of a tensor map are multiples of 16 bytes, got " + std::to_string(value));
      box.strides[ordinal + 1] = value;
      break;
    case MapField::element_stride:
      if (value == 0 || value > 8) fail("an element stride of a tensor map is 1 to 8");
      box.element_strides[ordinal] = static_cast<std::uint8_t>(value);
      break;
    case MapField::elemtype: {
      if (value >= std::size(element_codes)) fail("a tensor map has no elements of type " + std::to_string(value));
      for (const ElementType& t : element_types)
        if (t.name == element_codes[value]) set_type(box, t);
      break;
    }
    case MapField::interleave_layout:
      if (value != 0) fail("interleaved tensor maps are not there");
      break;
    case MapField::swizzle_mode:
      if (value > 3) fail("swizzle modes are 0 to 3, got " + std::to_string(value));
      box.swizzle = static_cast<std::uint8_t>(value == 0 ? 0 : 16 << value);
      break;
    case MapField::fill_mode: box.nan_fill = value != 0 ? 1 : 0; break;
  }
}

}  // namespace dodona::ptx
