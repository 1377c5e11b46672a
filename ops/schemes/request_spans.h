// Spans of tokens that belong to requests of a batch, as the bookkeeping around speculative decoding has them: lengths as whole numbers of
// either size, and lengths that add up to a given number, for inputs of case lines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/random.h"
#include "dodona/error.h"
#include "dodona/tensor.h"
#include "ops/base/index_at.h"

namespace dodona::ops {

[[noreturn]] inline void bad_whole(const char* argument, std::int64_t value, std::int64_t i, const std::string& expected) {
  throw Error(ErrorCode::bad_value, "", argument,
              "holds " + std::to_string(value) + " at element " + std::to_string(i) + ", expected " + expected);
}

/// Throws Error unless every element is `least` to `most`.
inline void check_whole(const Tensor& t, const char* argument, std::int64_t least, std::int64_t most) {
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (const std::int64_t value = index_at(t, i); value < least || value > most)
      bad_whole(argument, value, i, std::to_string(least) + " to " + std::to_string(most));
}

/// Throws Error unless elements of `t`, each counted with `more`, add up to `total`, which is what `whose` has.
inline void check_sum(const Tensor& t, const char* argument, std::int64_t more, std::int64_t total, const std::string& whose) {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < t.elements(); ++i) sum += index_at(t, i) + more;
  if (sum != total)
    throw Error(ErrorCode::bad_value, "", argument,
                "asks for " + std::to_string(sum) + " elements, expected the " + std::to_string(total) + " of " + whose);
}

/// One number for each maximum, none above it, that add up to `total` as nearly as can be: one after the other, of those that leave the
/// others possible a choice.
inline std::vector<std::int64_t> shares(const InputDraw& draw, std::span<const std::int64_t> maxima, std::int64_t total) {
  std::int64_t rest = 0;
  for (const std::int64_t most : maxima) rest += most;
  std::vector<std::int64_t> parts;
  for (std::size_t i = 0; i < maxima.size(); ++i) {
    rest -= maxima[i];
    const std::int64_t high = std::min(maxima[i], total), low = std::clamp<std::int64_t>(total - rest, 0, high);
    parts.push_back(low + static_cast<std::int64_t>(draw.below(static_cast<std::int64_t>(i), static_cast<std::uint64_t>(high - low + 1))));
    total -= parts.back();
  }
  return parts;
}
inline std::vector<std::int64_t> shares(const InputDraw& draw, std::int64_t count, std::int64_t most, std::int64_t total) {
  return shares(draw, std::vector<std::int64_t>(static_cast<std::size_t>(count), most), total);
}

inline void put_all(const Tensor& t, const std::vector<std::int64_t>& values, std::int64_t more = 0) {
  for (std::size_t i = 0; i < values.size(); ++i) put_index(t, static_cast<std::int64_t>(i), values[i] + more);
}

}  // namespace dodona::ops
