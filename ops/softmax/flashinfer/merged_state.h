// States of attention merged in order, as FlashInfer's kernels do on an H200, to the bit: sums about the largest log-sum-exp, base 2.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "quant/element.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {

/// The states merged so far. Without any, a sum of 1 that the first one's maximum takes away.
struct MergedState {
  float top = -std::numeric_limits<float>::infinity(), sum = 1;
  std::vector<float> values;

  explicit MergedState(std::int64_t width) : values(static_cast<std::size_t>(width), 0.0f) {}

  /// The maximum drops the NaN of two states without keys.
  static float weight(float s, float about) {
    return quant::hopper::ex2(std::fmax(quant::hopper::sub(s, about), -std::numeric_limits<float>::infinity()));
  }

  template <typename ValueAt>
  void merge(const ValueAt& value_at, float s) {
    const float before = top;
    top = std::fmax(before, s);
    const float kept = weight(before, top), added = weight(s, top);
    sum = quant::hopper::fma(sum, kept, added);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = quant::hopper::fma(values[i], kept, quant::hopper::mul(value_at(static_cast<std::int64_t>(i)), added));
  }
  void normalize() {
    const float reciprocal = sum > 0 ? quant::hopper::div(1.0f, sum) : 0.0f;
    for (float& value : values) value = quant::hopper::mul(value, reciprocal);
  }
  float lse() const { return quant::hopper::add(top, quant::hopper::lg2(sum)); }
};

/// The mean of states first, first + step, .. of `count`: value_at(state, i) and lse_of(state).
template <typename ValueAt, typename LseOf>
MergedState merged_in_order(std::int64_t width, std::int64_t count, std::int64_t first, std::int64_t step, const ValueAt& value_at,
                            const LseOf& lse_of) {
  MergedState merged(width);
  for (std::int64_t state = first; state < count; state += step)
    merged.merge([&](std::int64_t i) { return value_at(state, i); }, lse_of(state));
  merged.normalize();
  return merged;
}

/// Elements of a head that a thread has where kernels merge states.
constexpr std::int64_t elements_of_merging_thread(std::int64_t width) {
  return std::max<std::int64_t>(8, width / 32);
}

/// 128 threads share the states out: each group of them merges its own in order, its mean is rounded to `type`, and those are merged.
template <typename ValueAt, typename LseOf>
MergedState merged_of_parts(DType type, std::int64_t width, std::int64_t count, const ValueAt& value_at, const LseOf& lse_of) {
  const std::int64_t parts = 128 / (width / elements_of_merging_thread(width));
  std::vector<MergedState> shared;
  for (std::int64_t part = 0; part < parts; ++part) shared.push_back(merged_in_order(width, count, part, parts, value_at, lse_of));
  return merged_in_order(
      width, parts, 0, 1,
      [&](std::int64_t part, std::int64_t i) {
        return static_cast<float>(quant::round_to(type, shared[static_cast<std::size_t>(part)].values[static_cast<std::size_t>(i)]));
      },
      [&](std::int64_t part) { return shared[static_cast<std::size_t>(part)].lse(); });
}

}  // namespace dodona::ops
