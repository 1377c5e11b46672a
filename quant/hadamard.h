// Hadamard matrices of sizes that are no powers of two.
#pragma once

#include <cstdint>
#include <span>

namespace dodona::quant {

/// Rows of the matrix of this size, 12, 20, 28 or 40: bit j of a row is set where its column j is -1. Empty for other sizes.
/// Source: the fast-hadamard-transform project, whose kernels add columns up in this order.
std::span<const std::uint64_t> hadamard_signs(std::int64_t size);

}  // namespace dodona::quant
