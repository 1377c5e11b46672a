// Matrix products in golden mode: operands, scales, accumulator and epilogue are data, so that an op is a schema and one call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dodona/exec.h"
#include "ops/base/golden_output.h"
#include "ops/sums/accumulator.h"
#include "ops/sums/operand.h"
#include "quant/element.h"

namespace dodona::ops {

/// A number for the whole product, or one for each row, each column or each element.
struct Term {
  DType type = DType::f32;
  const void* data = nullptr;        ///< nullptr: 1
  std::int64_t row = 0, column = 0;  ///< strides, in elements

  double at(std::int64_t i, std::int64_t j) const {
    if (data == nullptr) return 1.0;
    const std::int64_t index = i * row + j * column;
    return type == DType::f32 ? static_cast<const float*>(data)[index] : quant::load(type, data, index);
  }
};
Term whole_term(const Tensor& scalar);
Term row_term(const Tensor& vector);
Term column_term(const Tensor& vector);

/// fl32(a * b), or a alone.
struct Factor {
  Term a, b;
};

/// What happens to a sum, in the contract's own order of association: fl32(x * factor) for each factor, then the addend, then the last
/// factor.
struct Epilogue {
  std::vector<Factor> factors;
  Factor addend;                       ///< a bias, or a zero point's outer product; a.data = nullptr: none
  std::optional<DType> narrowed = {};  ///< the product is rounded to this type before the addition
  bool starts = false;                 ///< the sum of products, of one step, may start from the addend; in a GPU's mode it does
  bool subtract = false;
  bool fused = false;            ///< the last product and the addition round once
  bool keeps_denormals = false;  ///< a GPU's mode: fp32 denormals are not flushed (builds without fast math)
  Term last = {};                ///< a factor behind the addend; data = nullptr: none
};

/// One product of a call, a batch or the rows of an expert. Element (i, j) of it is element place(i, j) of the output.
struct Product {
  Operand a, b;
  Epilogue epilogue;
  std::int64_t first = 0;
  /// A GPU's modes: where the parts of K begin that are summed apart, ascending from 0, for each 128 columns. Empty: the accumulator's.
  std::vector<std::vector<std::int64_t>> parts = {};
  /// Which row of the output, counted from `first`, each line of a makes; empty: row i.
  std::vector<std::int64_t> rows = {};

  /// Element (i, j) in the output.
  std::int64_t place(std::int64_t i, std::int64_t j) const {
    return first + (rows.empty() ? i : rows[static_cast<std::size_t>(i)]) * b.count + j;
  }
};

/// a [L, M, K] times b [L, K, N], any strides.
std::vector<Product> batched_products(const Tensor& a, const Tensor& b, const Epilogue& epilogue = {});
/// A matrix [rows, columns] as a batch of one.
Tensor batch_of_one(const Tensor& matrix);

/// Writes all products. `out` has been made open.
void golden_products(std::span<const Product> products, const Accumulator& accumulator, const GoldenOutput& out, bool judged,
                     const Exec& exec);
/// The whole of golden mode for an op that is nothing else.
void golden_products(std::span<const Product> products, const Accumulator& accumulator, const Tensor& out, Reference* reference,
                     std::string_view output, const Exec& exec);

}  // namespace dodona::ops
