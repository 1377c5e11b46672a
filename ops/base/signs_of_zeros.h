// Products whose zeros pass with either sign.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "dodona/op.h"

namespace dodona::ops {

/// Upstream's epilogue adds a source that is not there, +0, and a kernel that adds none is as good: zeros of a 16-bit output pass with
/// either sign. Called when all is written.
inline void open_signs_of_zeros(const Tensor& tensor, Reference* reference, std::string_view name) {
  ReferenceOutput* const record = reference != nullptr ? &reference->output(name, tensor.elements()) : nullptr;
  auto* const codes = tensor.as<std::uint16_t>();
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    if (codes[i] == 0x8000) codes[i] = 0;
    if (record == nullptr || record->exact[static_cast<std::size_t>(i)] != 0) continue;
    record->exact[static_cast<std::size_t>(i)] = 0;
    double& slack = record->slack[static_cast<std::size_t>(i)];
    slack = std::fmax(slack, 0x1p-149);
  }
}

}  // namespace dodona::ops
