// Tensors of case files that are too large to store: `attrs.generated` names a rule that makes them.
#pragma once

#include <string>

#include "dodona/tensor.h"
#include "io/json.h"

namespace dodona::oracle {

/// The tensor that `rule` describes. The only rule, `hash32`, fills [rows, cols] row by row: element i is ((h(i) >> 24) - offset) / divisor
/// with, modulo 2^32, x = i * 2654435761 + seed; x ^= x >> 15; x *= 2246822519; x ^= x >> 13; x *= 3266489917; h(i) = x ^ (x >> 16).
/// The argument is a view of that with `logical_shape` and `strides`. Throws Error(bad_file) naming `path` and `argument`.
Tensor generated_tensor(const io::Json& rule, const std::string& path, const std::string& argument);

/// Throws Error(bad_file) unless `sample` (stored in the file) equals the first rows of what the rule made.
void check_sample(const Tensor& generated, const Tensor& sample, const std::string& path, const std::string& argument);

}  // namespace dodona::oracle
