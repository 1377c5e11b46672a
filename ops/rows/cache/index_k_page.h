// Pages of the indexer's keys: the keys of all slots, 128 codes of e4m3 each, then their scales in fp32.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dodona::ops {

inline constexpr std::int64_t index_k_width = 128, index_k_bytes = index_k_width + 4;

/// Where slot `slot` of a buffer has its key and its scale, in bytes.
struct IndexKPlace {
  std::int64_t key, scale;
};
inline IndexKPlace index_k_place(std::int64_t slot, std::int64_t page_size) {
  const std::int64_t page = slot / page_size * page_size * index_k_bytes, in_page = slot % page_size;
  return {page + in_page * index_k_width, page + page_size * index_k_width + 4 * in_page};
}

}  // namespace dodona::ops
