// What kernels show that share the keys of a query among splits and put their results together by their log-sum-exps.
#pragma once

#include <cstdint>

#include "ops/softmax/layouts/ragged.h"

namespace dodona::ops {

/// The keys that one query sees.
struct SeenKeys {
  std::int64_t token, head;  ///< of the query
  std::int64_t first, count;
};
SeenKeys keys_seen(const Ragged& call, const std::vector<RaggedRequest>& requests, std::int64_t token, std::int64_t head);

/// A split whose weight about the largest is 0 in fp32 is not added: what is not finite among its values does not show. Whether `value`,
/// column `column` of the output, is what the keys whose weights lie above that give, all values that are not finite lying below.
bool lacks_splits_of_no_weight(const Ragged& call, const SeenKeys& keys, std::int64_t column, double value);

/// The first split takes the sink, about the largest of its own scores: of a sink more than 126 ln 2 above them, or above 0
/// where the query sees none of its keys, its sum of weights is infinite. Whether that may be so of these keys.
bool sink_may_overflow_first_split(const Ragged& call, const SeenKeys& keys);

}  // namespace dodona::ops
