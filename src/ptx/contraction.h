// What ptxas may read as one fused multiplication and addition.
#pragma once

#include <vector>

#include "dodona/ptx.h"
#include "ptx/syntax.h"

namespace dodona::ptx {

/// `div.full`, which ptxas makes a product with the reciprocal (of a constant: the correctly rounded one), and then `add` or `sub` without
/// a rounding: the product and the sum become one `fma`. An H100 does so.
void contract_quotients(Function& f);
/// The same of `mul`.
void contract_products(Function& f);
/// Pairs of `mul` and `add` or `sub` that are left open.
std::vector<OpenReading> open_products(const Function& f);

}  // namespace dodona::ptx
