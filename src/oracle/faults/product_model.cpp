#include "oracle/faults/product_model.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/shape_expr.h"
#include "core/storage.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using Names = std::vector<std::string>;

/// The one symbol of each dimension; empty where it has none or several.
Names symbols_of(const TensorSpec& spec, int rank) {
  SymbolNames names;
  const ShapeExpr shape = ShapeExpr::parse(spec.shape, names);
  const ShapeAlternative* const dims = shape.for_rank(rank);
  Names symbols;
  if (dims == nullptr || static_cast<int>(dims->dims.size()) != rank) return symbols;
  for (const DimExpr& dim : dims->dims) {
    const auto all = dim.symbols();
    symbols.push_back(all.size() == 1 ? names.name(all.front()) : std::string());
  }
  return symbols;
}
int index_of_name(const Names& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return name.empty() || found == names.end() ? -1 : static_cast<int>(found - names.begin());
}
std::int64_t blocks_in(std::int64_t extent, std::int64_t block) {
  return (extent + block - 1) / block;
}

/// Numbers as the sums have them; whole ones are exact.
bool factor(const Tensor& tensor) {
  return tensor.defined() && tensor.rank() >= 2 && tensor.rank() <= 3 && tensor.elements() > 0 &&
         (is_float(tensor.dtype()) || tensor.dtype() == DType::i8);
}

}  // namespace

std::int64_t ProductModel::Operand::at(std::int64_t batch_index, std::int64_t outer_index, std::int64_t depth_index) const {
  Dims place = tensor.shape();
  if (batch >= 0) place[batch] = batch_index;
  place[outer] = outer_index;
  place[depth] = depth_index;
  std::int64_t linear = 0;
  for (int d = 0; d < place.rank(); ++d) linear = linear * tensor.size(d) + place[d];
  return linear;
}

std::optional<ProductModel> ProductModel::of(const FaultCase& call) {
  if (call.op.info().category != Category::gemm || call.golden.outputs.size() != 1) return std::nullopt;
  const auto& [output, result] = call.golden.outputs.front();
  const ReferenceOutput* const reference = call.golden.reference.find(output);
  if (reference == nullptr || reference->exact.size() != static_cast<std::size_t>(result.elements()) || result.rank() < 2 ||
      result.rank() > 3)
    return std::nullopt;
  const OpSchema& schema = call.op.schema();
  const Names written = symbols_of(*schema.find_tensor(output), result.rank());
  if (written.empty()) return std::nullopt;
  std::vector<Operand> operands;
  for (const TensorSpec& spec : schema.tensors) {
    const Tensor* const given = call.inputs.find(spec.name);
    if (spec.direction != Direction::in || spec.role == Role::scale || given == nullptr || !given->defined()) continue;
    const Tensor tensor = as_codes(*given, spec.storage);
    const Names names = factor(tensor) ? symbols_of(spec, tensor.rank()) : Names();
    if (names.empty()) continue;
    Operand operand{&spec, tensor, -1, -1, -1};
    bool plain = true;
    for (int d = 0; d < tensor.rank(); ++d) {
      const int place = index_of_name(written, names[static_cast<std::size_t>(d)]);
      int& which = place < 0 ? operand.depth : place == 0 && result.rank() == 3 ? operand.batch : operand.outer;
      plain = plain && which < 0;
      which = d;
    }
    if (plain && operand.outer >= 0 && operand.depth >= 0) operands.push_back(operand);
  }
  if (operands.size() != 2) return std::nullopt;
  const auto outer_name = [&](const Operand& operand) {
    return symbols_of(*operand.spec, operand.tensor.rank())[static_cast<std::size_t>(operand.outer)];
  };
  if (outer_name(operands[0]) == written.back()) std::swap(operands[0], operands[1]);
  if (outer_name(operands[1]) != written.back() || outer_name(operands[0]) != written[written.size() - 2]) return std::nullopt;
  ProductModel model(call, operands[0], operands[1], output);
  model.batches_ = result.rank() == 3 ? result.size(0) : 1;
  model.rows_ = result.size(-2);
  model.columns_ = result.size(-1);
  model.depth_ = model.a_.tensor.size(model.a_.depth);
  if (model.depth_ != model.b_.tensor.size(model.b_.depth) || !model.place_scales()) return std::nullopt;
  return model;
}

bool ProductModel::place_scales() {
  for (const TensorSpec& spec : call_.op.schema().tensors) {
    const Tensor* const scale = call_.inputs.find(spec.name);
    if (spec.role != Role::scale || spec.direction != Direction::in || scale == nullptr || !scale->defined()) continue;
    if (!is_float(scale->dtype())) return false;
    if (scale->elements() == 1) {
      scalar_ *= quant::get(*scale, 0);
      continue;
    }
    const auto& scales = spec.storage.scales;
    if (!scales || scales->by_expert || (scales->of != a_.spec->name && scales->of != b_.spec->name)) return false;
    const Operand& operand = scales->of == a_.spec->name ? a_ : b_;
    if (operand.batch > 0) return false;
    const std::int64_t extent_rows = operand.tensor.size(-2), extent_columns = operand.tensor.size(-1);
    ScaleBlocks blocks{spec.name,
                       scales->of,
                       scales->rows > 0 ? scales->rows : extent_rows,
                       scales->columns > 0 ? scales->columns : extent_columns,
                       1,
                       1,
                       extent_rows,
                       extent_columns,
                       &operand == &b_,
                       operand.depth == operand.tensor.rank() - 2};
    blocks.in_rows = blocks_in(extent_rows, blocks.rows);
    blocks.in_columns = blocks_in(extent_columns, blocks.columns);
    const bool tiles = scales->order == ScaleOrder::swizzled_128x4 || scales->order == ScaleOrder::swizzled_8x4;
    if (!tiles && scales->order != ScaleOrder::linear && scales->order != ScaleOrder::m_major) return false;
    const std::int64_t matrices = operand.batch >= 0 ? batches_ : 1;
    if (!tiles && scale->elements() != matrices * blocks.in_rows * blocks.in_columns) {
      // A size that an attribute of the call makes finer: one scale a row.
      if (scale->elements() != matrices * extent_rows * blocks.in_columns) return false;
      blocks.rows = 1;
      blocks.in_rows = extent_rows;
    }
    blocks_.push_back(blocks);
  }
  return true;
}

void ProductModel::fill(const Operand& operand, std::int64_t extent, const std::vector<ScaleBlocks>& blocks,
                        const std::function<bool(std::int64_t, std::int64_t)>& wanted, std::vector<float>& to,
                        std::vector<double>& whole) const {
  const int rank = operand.tensor.rank(), row_dimension = rank - 2;
  to.resize(static_cast<std::size_t>(batches_ * extent * depth_));
  whole.assign(static_cast<std::size_t>(batches_ * extent), 1.0);
  struct Reading {
    const ScaleBlocks* blocks;
    std::vector<double> values;
  };
  std::vector<Reading> inner;
  for (const ScaleBlocks& block : blocks) {
    if (block.operand != operand.spec->name) continue;
    const Tensor& scale = *call_.inputs.find(block.scale);
    const auto& storage = *call_.op.schema().find_tensor(block.scale)->storage.scales;
    const std::int64_t matrices = operand.batch >= 0 ? batches_ : 1, each = block.in_rows * block.in_columns;
    Reading reading{&block, std::vector<double>(static_cast<std::size_t>(matrices * each))};
    for (std::int64_t m = 0; m < matrices; ++m)
      for (std::int64_t i = 0; i < each; ++i) {
        std::int64_t from = m * each + i;
        if (storage.order == ScaleOrder::m_major) from = m * each + i % block.in_columns * block.in_rows + i / block.in_columns;
        if (storage.order == ScaleOrder::swizzled_128x4 || storage.order == ScaleOrder::swizzled_8x4) {
          const fault_tools::ScaleMatrices tiles{scale.size(-2), scale.size(-1), storage.order};
          from = m * tiles.size() + tiles.in_tiles(i / block.in_columns * tiles.columns + i % block.in_columns);
        }
        reading.values[static_cast<std::size_t>(m * each + i)] = quant::get(scale, from);
      }
    inner.push_back(std::move(reading));
  }
  for (std::int64_t l = 0; l < batches_; ++l)
    for (std::int64_t o = 0; o < extent; ++o) {
      if (!wanted(l, o)) continue;
      for (std::int64_t k = 0; k < depth_; ++k) {
        double value = quant::get(operand.tensor, operand.at(l, o, k));
        const bool depth_is_row = operand.depth == row_dimension;
        const std::int64_t row = depth_is_row ? k : o, column = depth_is_row ? o : k;
        for (const Reading& reading : inner) {
          const ScaleBlocks& b = *reading.blocks;
          const std::int64_t matrix = operand.batch >= 0 ? l : 0;
          const std::int64_t r = std::min(row / b.rows, b.in_rows - 1), c = std::min(column / b.columns, b.in_columns - 1);
          const double factor = reading.values[static_cast<std::size_t>((matrix * b.in_rows + r) * b.in_columns + c)];
          // One scale for all of the depth multiplies the sum.
          if ((depth_is_row ? b.in_rows : b.in_columns) > 1) {
            value *= factor;
          } else if (k == 0) {
            whole[static_cast<std::size_t>(l * extent + o)] *= factor;
          }
        }
        to[static_cast<std::size_t>((l * extent + o) * depth_ + k)] = static_cast<float>(value);
      }
    }
}

ProductModel::Factors ProductModel::factors(const std::vector<ScaleBlocks>& blocks) const {
  return factors(blocks, nullptr);
}
ProductModel::Factors ProductModel::factors(const Some& some) const {
  return factors(blocks_, &some);
}
ProductModel::Factors ProductModel::factors(const std::vector<ScaleBlocks>& blocks, const Some* some) const {
  Factors factors;
  std::vector<double> of_a, of_b;
  const auto row = [&](std::int64_t l, std::int64_t m) { return some == nullptr || some->rows.count(l * rows_ + m) > 0; };
  const auto column = [&](std::int64_t, std::int64_t n) { return some == nullptr || some->columns.count(n) > 0; };
  fill(a_, rows_, blocks, row, factors.a, of_a);
  fill(b_, columns_, blocks, column, factors.b, of_b);
  factors.outer.resize(static_cast<std::size_t>(batches_ * rows_ * columns_));
  for (std::int64_t i = 0; i < batches_ * rows_ * columns_; ++i) {
    const std::int64_t l = i / (rows_ * columns_), m = i / columns_ % rows_, n = i % columns_;
    factors.outer[static_cast<std::size_t>(i)] =
        scalar_ * of_a[static_cast<std::size_t>(l * rows_ + m)] * of_b[static_cast<std::size_t>(l * columns_ + n)];
  }
  return factors;
}

std::vector<double> ProductModel::sums(const Factors& factors) const {
  std::vector<double> sums(factors.outer.size());
  for (std::int64_t l = 0; l < batches_; ++l)
    for (std::int64_t m = 0; m < rows_; ++m)
      for (std::int64_t n = 0; n < columns_; ++n) {
        const float* const a = factors.a.data() + (l * rows_ + m) * depth_;
        const float* const b = factors.b.data() + (l * columns_ + n) * depth_;
        double sum = 0;
        for (std::int64_t k = 0; k < depth_; ++k) sum += static_cast<double>(a[k]) * static_cast<double>(b[k]);
        const auto at = static_cast<std::size_t>((l * rows_ + m) * columns_ + n);
        sums[at] = sum * factors.outer[at];
      }
  return sums;
}

std::optional<std::vector<double>> ProductModel::addends(const Factors& factors) const {
  const ReferenceOutput& reference = *call_.golden.reference.find(output_);
  const auto& tensors = call_.op.schema().tensors;
  const bool added = std::any_of(tensors.begin(), tensors.end(), [&](const TensorSpec& spec) {
    const Tensor* const tensor = call_.inputs.find(spec.name);
    return spec.direction == Direction::in && spec.role != Role::scale && &spec != a_.spec && &spec != b_.spec && tensor != nullptr &&
           tensor->defined() && is_float(tensor->dtype());
  });
  std::vector<double> rest = sums(factors);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const double distance = reference.exact[i] - rest[i];
    const bool near = std::fabs(distance) <= reference.slack[i] + 1e-4 * std::fabs(reference.exact[i]) + 1e-30;
    if (!added && !near && std::isfinite(reference.exact[i])) return std::nullopt;
    rest[i] = added && std::isfinite(distance) ? distance : 0.0;
  }
  return rest;
}

}  // namespace dodona::oracle
