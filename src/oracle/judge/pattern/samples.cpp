#include "oracle/judge/pattern/samples.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "quant/element.h"

namespace dodona::oracle::pattern {
namespace {

/// Relations are looked for among this many failing elements, evenly taken.
constexpr std::size_t sample_limit = 20000;

}  // namespace

std::vector<Sample> sampled(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual) {
  const std::size_t step = failing.size() / sample_limit + 1;
  std::vector<Sample> samples;
  for (std::size_t k = 0; k < failing.size(); k += step)
    samples.push_back({failing[k], quant::get(golden, failing[k]), quant::get(actual, failing[k])});
  return samples;
}

bool most(const std::vector<Sample>& samples, const std::function<bool(const Sample&)>& holds) {
  const auto count = std::count_if(samples.begin(), samples.end(), holds);
  return static_cast<double>(count) >= nearly_all * static_cast<double>(samples.size());
}

std::string number(double value) {
  std::array<char, 32> buffer;
  std::snprintf(buffer.data(), buffer.size(), "%.5g", value);
  return buffer.data();
}

std::optional<double> median(const std::vector<Sample>& samples, const std::function<double(const Sample&)>& value) {
  std::vector<double> values;
  for (const Sample& s : samples)
    if (const double v = value(s); std::isfinite(v)) values.push_back(v);
  if (2 * values.size() < samples.size() || values.empty()) return std::nullopt;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace dodona::oracle::pattern
