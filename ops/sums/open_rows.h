// Products whose rows are themselves open, because a kernel quantized them: what that adds to the products' slack.
#pragma once

#include <cstdint>
#include <vector>

#include "dodona/exec.h"
#include "ops/sums/operand.h"

namespace dodona::ops {

/// open [rows, b.k] says how far the numbers of each row may lie from those that were multiplied, their scales included. Element (i, j) of
/// the result: sum over k of open[i, k] * |b's number k of line j|, and what sums of other numbers round besides (4 K units of 2^-24 of
/// that, more than any accumulator loses on them).
std::vector<double> open_products(const double* open, std::int64_t rows, const Operand& b, const Exec& exec);

}  // namespace dodona::ops
