#include "quant/scale_layout.h"

#include <algorithm>
#include <bit>
#include <string>

#include "dodona/error.h"
#include "quant/ue8m0.h"

namespace dodona::quant {

namespace {

std::uint8_t power_of_two_byte(float scale) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(scale);
  const bool power = (u & 0x807FFFFFu) == 0 && u != 0 && u != 0x7F800000u;
  if (!power) throw Error(ErrorCode::bad_value, "", "scales", "contains " + std::to_string(scale) + ", expected a positive power of two");
  return ue8m0_exponent_field(scale);
}

}  // namespace

void pack_ue8m0(std::span<const std::uint8_t> bytes, PackedUe8m0Layout layout, std::span<std::uint8_t> packed) {
  require_size("bytes", bytes.size(), area(layout.rows, layout.groups));
  require_size("packed", packed.size(), layout.words() * 4);
  std::fill(packed.begin(), packed.end(), std::uint8_t{0});
  for (std::int64_t r = 0; r < layout.rows; ++r) {
    for (std::int64_t g = 0; g < layout.groups; ++g)
      packed[static_cast<std::size_t>(layout.byte_offset(r, g))] = bytes[static_cast<std::size_t>(r * layout.groups + g)];
  }
}

void unpack_ue8m0(std::span<const std::uint8_t> packed, PackedUe8m0Layout layout, std::span<std::uint8_t> bytes) {
  require_size("bytes", bytes.size(), area(layout.rows, layout.groups));
  require_size("packed", packed.size(), layout.words() * 4);
  for (std::int64_t r = 0; r < layout.rows; ++r) {
    for (std::int64_t g = 0; g < layout.groups; ++g)
      bytes[static_cast<std::size_t>(r * layout.groups + g)] = packed[static_cast<std::size_t>(layout.byte_offset(r, g))];
  }
}

void pack_weight_ue8m0(std::span<const float> scales, PackedUe8m0Layout layout, std::span<std::uint8_t> packed) {
  area(layout.rows, layout.groups);
  require_size("scales", scales.size(), ceil_div(layout.rows, 128) * layout.groups);
  require_size("packed", packed.size(), layout.words() * 4);
  std::fill(packed.begin(), packed.end(), std::uint8_t{0});
  for (std::int64_t r = 0; r < layout.rows; ++r) {
    for (std::int64_t g = 0; g < layout.groups; ++g) {
      const float scale = scales[static_cast<std::size_t>(r / 128 * layout.groups + g)];
      packed[static_cast<std::size_t>(layout.byte_offset(r, g))] = power_of_two_byte(scale);
    }
  }
}

}  // namespace dodona::quant
