// A number of the call that stands beside each output, as a factor or as a term, may be another one's: which one, by the outputs alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dodona/op.h"

namespace dodona::oracle {

/// `scales_a: row i has the factor of row i mod 32`: inputs with one number for each row, or for each column, of the output with which
/// actual would be golden if that number were taken from elsewhere. `exact`: golden before its last rounding, or empty.
std::vector<std::string> terms_of(const OpSchema& schema, const Arguments& inputs, const std::vector<std::int64_t>& failing,
                                  const Tensor& golden, const Tensor& actual, const std::vector<double>& exact);

}  // namespace dodona::oracle
