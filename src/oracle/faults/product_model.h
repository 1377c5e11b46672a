// A product of matrices as its schema tells it: which operand has which row, column and depth, and which scale belongs to which element.
// Faults of sums and of scales' blocks are computed from it, op by op alike.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "oracle/faults/faults.h"

namespace dodona::oracle {

/// Where the scales of an operand lie: one for so many of its rows and columns.
struct ScaleBlocks {
  std::string scale;                 ///< the tensor of scales
  std::string operand;               ///< whose elements they multiply
  std::int64_t rows, columns;        ///< elements of a block; the operand's whole extent where one scale is for all
  std::int64_t in_rows, in_columns;  ///< blocks along the operand's rows and columns
  std::int64_t extent_rows, extent_columns;
  bool of_columns = false;    ///< of the operand whose rows are the output's columns
  bool depth_is_row = false;  ///< sums run along the operand's rows
};

class ProductModel {
 public:
  /// Nothing where the call is no single product of two operands, or its scales are no plain blocks.
  static std::optional<ProductModel> of(const FaultCase& call);

  const std::string& output() const { return output_; }
  /// The name of the operand with the output's rows, or with its columns.
  const std::string& operand(bool of_columns) const { return of_columns ? b_.spec->name : a_.spec->name; }
  std::int64_t batches() const { return batches_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t depth() const { return depth_; }
  const std::vector<ScaleBlocks>& blocks() const { return blocks_; }

  /// The factors under their block scales, [batch][row][depth] and [batch][column][depth], and what each sum is multiplied with.
  struct Factors {
    std::vector<float> a, b;
    std::vector<double> outer;  ///< [batch][row][column]
  };
  /// With blocks of these sizes instead of `blocks()`, where they are given.
  Factors factors(const std::vector<ScaleBlocks>& blocks) const;
  Factors factors() const { return factors(blocks_); }
  /// Rows (of all batches, one after the other) and columns; nothing else is filled in.
  struct Some {
    std::set<std::int64_t> rows, columns;
  };
  Factors factors(const Some& some) const;

  /// The products' sums times their factors.
  std::vector<double> sums(const Factors& factors) const;
  /// What golden mode adds to them (a bias, an addend), which is nothing but rounding where there is neither; nothing at all where the
  /// model is not that of golden mode.
  std::optional<std::vector<double>> addends(const Factors& factors) const;

 private:
  struct Operand {
    const TensorSpec* spec;
    Tensor tensor;            ///< codes that are packed are one element each
    int batch, outer, depth;  ///< dimensions; batch: -1 for none
    std::int64_t at(std::int64_t batch_index, std::int64_t outer_index, std::int64_t depth_index) const;
  };
  ProductModel(const FaultCase& call, Operand a, Operand b, std::string output) : call_(call), a_(a), b_(b), output_(std::move(output)) {}
  bool place_scales();
  Factors factors(const std::vector<ScaleBlocks>& blocks, const Some* some) const;
  /// `wanted`: which of the operand's rows, or all.
  void fill(const Operand& operand, std::int64_t extent, const std::vector<ScaleBlocks>& blocks,
            const std::function<bool(std::int64_t batch, std::int64_t row)>& wanted, std::vector<float>& to,
            std::vector<double>& whole) const;

  FaultCase call_;
  Operand a_, b_;
  std::string output_;
  std::int64_t batches_ = 1, rows_ = 0, columns_ = 0, depth_ = 0;
  std::vector<ScaleBlocks> blocks_;
  double scalar_ = 1;
};

}  // namespace dodona::oracle
