#include "ops/softmax/leaked_values.h"

#include <cmath>
#include <limits>

#include "quant/element.h"

namespace dodona::ops {
namespace {

double number(const Tensor& t, std::int64_t token, std::int64_t head, std::int64_t i) {
  return quant::load(t.dtype(), t.data(), token * t.stride(0) + head * t.stride(1) + i * t.stride(2));
}

}  // namespace

bool holds_infinite_value(const Tensor& values, Tokens tokens, std::int64_t head, std::int64_t i) {
  for (std::int64_t t = tokens.first; t < tokens.first + tokens.count; ++t)
    if (!std::isfinite(number(values, t, head, i))) return true;
  return false;
}

bool may_have_infinite_score(const Tensor& queries, std::int64_t query, std::int64_t query_head, const Tensor& keys, Tokens tokens,
                             std::int64_t head) {
  for (std::int64_t t = tokens.first; t < tokens.first + tokens.count; ++t) {
    double magnitude = 0;
    for (std::int64_t i = 0; i < keys.size(2); ++i)
      magnitude += std::fabs(number(queries, query, query_head, i) * number(keys, t, head, i));
    // A score is multiplied with at most 2 before its mask is added.
    if (!(2 * magnitude < static_cast<double>(std::numeric_limits<float>::max()))) return true;
  }
  return false;
}

}  // namespace dodona::ops
