#include "quant/int4.h"

#include "quant/sizes.h"

namespace dodona::quant {

void pack_int4(std::span<const std::int8_t> values, std::span<std::uint8_t> packed) {
  require_size("values", values.size(), static_cast<std::int64_t>(packed.size()) * 2);
  for (std::size_t j = 0; j < packed.size(); ++j)
    packed[j] = pack_nibbles(static_cast<std::uint8_t>(values[2 * j]), static_cast<std::uint8_t>(values[2 * j + 1]));
}

void unpack_int4(std::span<const std::uint8_t> packed, std::span<std::int8_t> values) {
  require_size("values", values.size(), static_cast<std::int64_t>(packed.size()) * 2);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::int8_t>(signed_nibble(nibble(packed.data(), static_cast<std::int64_t>(i))));
}

void unpack_uint4(std::span<const std::uint8_t> packed, std::span<std::uint8_t> values) {
  require_size("values", values.size(), static_cast<std::int64_t>(packed.size()) * 2);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = nibble(packed.data(), static_cast<std::int64_t>(i));
}

void pack_wna16_zero_points(std::span<const std::uint8_t> values, std::int64_t n, std::int64_t groups, std::span<std::uint8_t> packed) {
  require_multiple("n", n, 2);
  require_size("values", values.size(), area(n, groups));
  require_size("packed", packed.size(), n / 2 * groups);
  for (std::int64_t pair = 0; pair < n / 2; ++pair) {
    const std::uint8_t* even = values.data() + 2 * pair * groups;
    for (std::int64_t g = 0; g < groups; ++g) packed[static_cast<std::size_t>(pair * groups + g)] = pack_nibbles(even[g], even[groups + g]);
  }
}

void unpack_wna16_zero_points(std::span<const std::uint8_t> packed, std::int64_t n, std::int64_t groups, std::span<std::uint8_t> values) {
  require_multiple("n", n, 2);
  require_size("values", values.size(), area(n, groups));
  require_size("packed", packed.size(), n / 2 * groups);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t g = 0; g < groups; ++g)
      values[static_cast<std::size_t>(i * groups + g)] = wna16_zero_point(packed.data(), groups, i, g);
  }
}

void interleave_w4a8_scales(std::span<const std::uint16_t> logical, std::int64_t n_channels, std::int64_t groups,
                            std::span<std::uint16_t> storage) {
  require_size("logical", logical.size(), area(n_channels, groups));
  require_size("storage", storage.size(), n_channels * groups);
  for (std::int64_t n = 0; n < n_channels; ++n) {
    for (std::int64_t g = 0; g < groups; ++g)
      storage[static_cast<std::size_t>(w4a8_scale_offset(n_channels, groups, n, g))] = logical[static_cast<std::size_t>(n * groups + g)];
  }
}

void deinterleave_w4a8_scales(std::span<const std::uint16_t> storage, std::int64_t n_channels, std::int64_t groups,
                              std::span<std::uint16_t> logical) {
  require_size("logical", logical.size(), area(n_channels, groups));
  require_size("storage", storage.size(), n_channels * groups);
  for (std::int64_t n = 0; n < n_channels; ++n) {
    for (std::int64_t g = 0; g < groups; ++g)
      logical[static_cast<std::size_t>(n * groups + g)] = storage[static_cast<std::size_t>(w4a8_scale_offset(n_channels, groups, n, g))];
  }
}

}  // namespace dodona::quant
