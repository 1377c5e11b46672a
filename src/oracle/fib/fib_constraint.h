// The constraints of FlashInfer-Bench Definitions: the few Python expressions that occur in them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "dodona/tensor.h"

namespace dodona::oracle::fib {

struct ConstraintContext {
  const std::map<std::string, std::int64_t>& axes;
  /// The tensor called so, or null when its values are not known.
  std::function<const Tensor*(std::string_view)> tensor;
};

enum class Holds { yes, no, unknown };

/// Evaluates `len_indptr == batch_size + 1`, `n == kv_indptr[-1].item()`, `w.shape[1] % 128 == 0 and a <= b`: whole numbers, axes, elements
/// and sizes of tensors, + - * // %, comparisons (chains too), and, parentheses. `why` tells both sides of a comparison that fails, or what
/// could not be evaluated.
Holds evaluate_constraint(std::string_view text, const ConstraintContext& context, std::string& why);

}  // namespace dodona::oracle::fib
