#include "quant/qserve.h"

#include <algorithm>

#include "quant/sizes.h"

namespace dodona::quant {

namespace {

void require_weight_sizes(std::size_t values, std::size_t packed, std::int64_t rows, std::int64_t columns) {
  require_multiple("rows", rows, 32);
  require_multiple("columns", columns, 32);
  require_size("values", values, area(rows, columns));
  require_size("packed", packed, rows * columns / 2);
}

void require_scale_sizes(std::size_t logical, std::size_t storage, std::int64_t groups, std::int64_t channels) {
  require_multiple("channels", channels, 32);
  require_size("logical", logical, area(groups, channels));
  require_size("storage", storage, groups * channels);
}

}  // namespace

void pack_qserve(std::span<const std::uint8_t> values, std::int64_t rows, std::int64_t columns, std::span<std::uint8_t> packed) {
  require_weight_sizes(values.size(), packed.size(), rows, columns);
  std::fill(packed.begin(), packed.end(), std::uint8_t{0});
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t k = 0; k < columns; ++k) {
      const QserveLocation at = qserve_location(n, k, columns);
      std::uint8_t& byte = packed[static_cast<std::size_t>(at.byte)];
      byte = static_cast<std::uint8_t>(byte | ((values[static_cast<std::size_t>(n * columns + k)] & 0xF) << at.shift));
    }
  }
}

void unpack_qserve(std::span<const std::uint8_t> packed, std::int64_t rows, std::int64_t columns, std::span<std::uint8_t> values) {
  require_weight_sizes(values.size(), packed.size(), rows, columns);
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t k = 0; k < columns; ++k)
      values[static_cast<std::size_t>(n * columns + k)] = qserve_weight(packed.data(), n, k, columns);
  }
}

void permute_qserve_scales(std::span<const std::int8_t> logical, std::int64_t groups, std::int64_t channels,
                           std::span<std::int8_t> storage) {
  require_scale_sizes(logical.size(), storage.size(), groups, channels);
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t n = 0; n < channels; ++n)
      storage[static_cast<std::size_t>(g * channels + qserve_scale_position(n))] = logical[static_cast<std::size_t>(g * channels + n)];
  }
}

void unpermute_qserve_scales(std::span<const std::int8_t> storage, std::int64_t groups, std::int64_t channels,
                             std::span<std::int8_t> logical) {
  require_scale_sizes(logical.size(), storage.size(), groups, channels);
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t n = 0; n < channels; ++n)
      logical[static_cast<std::size_t>(g * channels + n)] = storage[static_cast<std::size_t>(g * channels + qserve_scale_position(n))];
  }
}

}  // namespace dodona::quant
