// What relations are looked for among: some of the failing elements, evenly taken.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dodona/tensor.h"

namespace dodona::oracle::pattern {

/// A relation counts when it holds for this share of the failing elements.
constexpr double nearly_all = 0.95;

struct Sample {
  std::int64_t index;
  double golden, actual;
};
using Samples = std::vector<Sample>;

Samples sampled(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual);
/// Whether it holds for nearly all.
bool most(const Samples& samples, const std::function<bool(const Sample&)>& holds);
/// The median of value(sample) over the samples for which it is finite; nothing when those are few.
std::optional<double> median(const Samples& samples, const std::function<double(const Sample&)>& value);

/// A number in five digits; a whole one.
std::string number(double value);
inline std::string text(std::int64_t value) {
  return std::to_string(value);
}

}  // namespace dodona::oracle::pattern
