// Slots of tokens sorted by the expert that they name, those of one expert in their order: what permutes of expert-parallel layers begin
// with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "dodona/error.h"
#include "quant/element.h"

namespace dodona::ops {

struct SlotsByExpert {
  std::vector<std::int64_t> ids;    ///< of every slot
  std::vector<std::int64_t> order;  ///< slots, sorted

  explicit SlotsByExpert(const Tensor& topk_ids) : order(static_cast<std::size_t>(topk_ids.elements())) {
    for (std::int64_t slot = 0; slot < topk_ids.elements(); ++slot) ids.push_back(static_cast<std::int64_t>(quant::get(topk_ids, slot)));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return ids[static_cast<std::size_t>(a)] < ids[static_cast<std::size_t>(b)]; });
  }
  /// How many name an expert below e.
  std::int64_t below(std::int64_t e) const {
    return std::count_if(ids.begin(), ids.end(), [&](std::int64_t id) { return id < e; });
  }
};

/// Throws unless all ids lie in [least, most].
inline void require_ids(const Tensor& topk_ids, std::int64_t least, std::int64_t most, const char* expected) {
  for (std::int64_t slot = 0; slot < topk_ids.elements(); ++slot)
    if (const auto id = static_cast<std::int64_t>(quant::get(topk_ids, slot)); id < least || id > most)
      throw Error(ErrorCode::bad_value, "", "topk_ids",
                  "holds " + std::to_string(id) + " at element " + std::to_string(slot) + ", expected " + expected);
}

}  // namespace dodona::ops
