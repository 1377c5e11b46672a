// The products of the inventory as one would write them without it: operands dequantized to fp32, then multiplied by Eigen.
#pragma once

#include <string_view>
#include <vector>

#include "dodona/op.h"

namespace dodona {

/// The first output of `op`, [.., columns] in row-major order, unrounded. Empty for ops that are no products.
std::vector<float> eigen_reference(std::string_view op, const Arguments& arguments, int threads);

}  // namespace dodona
