// Packed weights of experts, one part for each.
#pragma once

#include <string>

#include "dodona/error.h"
#include "dodona/prepared.h"

namespace dodona::ops {

/// The part of an expert that has `rows` of them, some. Throws where it was left out.
inline const std::byte* packed_expert(const Prepared& prepared, std::int64_t expert, std::int64_t rows) {
  const std::byte* const part = prepared.part(expert);
  if (part == nullptr)
    throw Error(ErrorCode::missing_argument, "", "prepared",
                "holds no weights of expert " + std::to_string(expert) + ", which has " + std::to_string(rows) + " rows");
  return part;
}

}  // namespace dodona::ops
