// A bulk copy's descriptor: 128 bytes of our own making.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "dodona/ptx.h"
#include "ptx/machine.h"

namespace dodona::ptx {

struct TensorBox {
  std::uint32_t mark = 0;
  std::uint8_t rank = 0, element_bytes = 0, swizzle = 0, nan_fill = 0;  ///< swizzle: bytes of a row
  std::uint64_t address = 0;
  std::array<std::uint64_t, 5> strides{};  ///< bytes; of the first dimension nothing is read
  std::array<std::uint32_t, 5> shape{}, box{};
  std::array<std::uint8_t, 5> element_strides{};
  std::uint8_t is_float = 0;
  std::uint8_t type = 0;  ///< of elements: a place among the types that maps have
  std::array<std::uint8_t, 25> unused{};

  std::uint64_t elements() const;
  /// Where a byte of the box lies, as an offset from the box's beginning at a shared address.
  std::uint64_t swizzled(std::uint64_t base, std::uint64_t offset) const;
  void fill(std::byte* element) const;
  /// Of elements, as atomics name it ("s32").
  std::string_view type_name() const;
};
static_assert(sizeof(TensorBox) == 128);

/// Throws bad_value and bad_dtype, naming the argument.
TensorBox encode(const TensorMap& map, std::size_t arguments, std::size_t index);
/// The map that a kernel's address leads to; what is none is an error.
TensorBox tensor_map_at(Machine& m, std::uint64_t address, int lane, const Instruction& i);

/// Fields of a map that a kernel fills, as `tensormap.replace` names them.
enum class MapField {
  global_address,
  rank,
  box_dim,
  global_dim,
  global_stride,
  element_stride,
  elemtype,
  interleave_layout,
  swizzle_mode,
  fill_mode
};
/// False for what is none.
bool find_map_field(std::string_view name, MapField& field);
/// Memory that was zeros becomes a map. Numbers that no map has are errors of the instruction.
void replace_field(Machine& m, TensorBox& box, MapField field, std::uint64_t ordinal, std::uint64_t value, const Instruction& i);

}  // namespace dodona::ptx
