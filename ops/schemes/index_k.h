// What the ops that store keys of the indexer in a paged buffer share.
#pragma once

#include <string_view>
#include <vector>

#include "core/define.h"
#include "ops/base/golden_output.h"
#include "ops/base/index_at.h"
#include "ops/rows/cache/index_k_page.h"

namespace dodona::ops {

/// Slots that several tokens name are left to a race upstream: nothing is said of them.
inline void open_shared_slots(const Tensor& loc, std::int64_t page_size, const Tensor& buffer, Reference* reference,
                              std::string_view output) {
  if (reference == nullptr) return;
  ReferenceOutput& record = reference->output(output, buffer.elements());
  if (record.unspecified.empty()) record.unspecified.assign(record.exact.size(), 0);
  std::vector<bool> named(static_cast<std::size_t>(buffer.elements() / index_k_bytes));
  for (std::int64_t i = 0; i < loc.size(0); ++i) {
    const std::int64_t slot = index_at(loc, i);
    if (named[static_cast<std::size_t>(slot)]) {
      const IndexKPlace place = index_k_place(slot, page_size);
      std::fill_n(record.unspecified.begin() + place.key, index_k_width, std::uint8_t{1});
      std::fill_n(record.unspecified.begin() + place.scale, 4, std::uint8_t{1});
    }
    named[static_cast<std::size_t>(slot)] = true;
  }
}

}  // namespace dodona::ops
