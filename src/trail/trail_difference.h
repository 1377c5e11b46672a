// Where two runs of a layer part.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "trail/trail_reference.h"

namespace dodona::trail {

struct TrailDifference {
  std::string name;      ///< of the output, as trail.h has it
  std::string expected;  ///< dtype and shape, and without tensors digest and statistics, of this run
  std::string found;     ///< of the file
  bool has_element = false;
  std::int64_t beyond = 0, elements = 0;  ///< elements that are wrong, of how many
  Dims index;                             ///< of the worst
  double expected_value = 0, found_value = 0, allowed = 0;
};

/// The first output in which two trails differ, bit by bit: `expected` is of `a`, `found` of `b`. `same` counts those before it. Throws
/// Error (bad_file) for what is no trail, and bad_value for trails of different runs, naming what differs.
std::optional<TrailDifference> first_difference(const TrailReference& a, const TrailReference& b, std::int64_t& same);

/// "bf16 [3, 768]"
std::string type_and_shape(const Tensor& tensor);
/// With the digest and what the values are like.
std::string described(const std::string& shape, const std::string& digest, const model::Statistics& statistics);

/// The elements of `found` that lie further from `expected` than `allowed(row-major index of the row's first element, expected, found)`:
/// the worst, and how many. Equal values and two NaNs are no difference.
std::optional<TrailDifference> differing_elements(const std::string& name, const Tensor& expected, const Tensor& found,
                                                  const std::function<double(std::int64_t, double, double)>& allowed);

}  // namespace dodona::trail
