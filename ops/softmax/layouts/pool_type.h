// Pools of keys and values: of the queries' type, or e4m3.
#pragma once

#include <string_view>

#include "core/define.h"

namespace dodona::ops {

/// The type of another argument, or e4m3: pools of keys and values.
inline DTypeRule same_as_or_e4m3(std::string_view argument) {
  static constexpr std::initializer_list<DType> e4m3{DType::f8_e4m3};
  DTypeRule rule(same_as(argument));
  rule.list = e4m3;
  return rule;
}

}  // namespace dodona::ops
