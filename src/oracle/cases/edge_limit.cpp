#include "oracle/cases/edge_limit.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "core/shape_expr.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

/// The sizes of an argument that its shape expression names: symbols, and numbers that stand alone.
std::set<std::string> sizes_of(const TensorSpec& spec) {
  SymbolNames names;
  std::set<std::string> sizes;
  const ShapeExpr shape = ShapeExpr::parse(spec.shape, names);
  for (const ShapeAlternative& alternative : shape.alternatives())
    for (const DimExpr& dim : alternative.dims) {
      if (dim.symbols().empty() && dim.text() != "1") sizes.insert(dim.text());
      for (const int symbol : dim.symbols()) sizes.insert(names.name(symbol));
    }
  return sizes;
}

bool adds_up_products(const OpSchema& schema) {
  std::set<std::string> written;
  std::map<std::string, int> operands;
  for (const TensorSpec& spec : schema.tensors)
    if (spec.direction != Direction::in) written.merge(sizes_of(spec));
  for (const TensorSpec& spec : schema.tensors)
    if (spec.direction == Direction::in && spec.role == Role::values)
      for (const std::string& size : sizes_of(spec)) operands[size] += written.count(size) == 0 ? 1 : 0;
  return std::any_of(operands.begin(), operands.end(), [](const auto& size) { return size.second >= 2; });
}

/// Ops that add up the elements of a single operand: sums of the largest overflow in some orders and not in others, and all of it is open
/// then.
struct Adder {
  std::string_view op;
  double most;  ///< whatever the type; layernorm adds up squares too, and the sparse decode multiplies with codes in bytes
};
constexpr double unlimited = std::numeric_limits<double>::infinity();
constexpr std::array<Adder, 9> adders{{{"layernorm", 0x1p58},
                                       {"flash_mla_sparse_decode", 8.0},
                                       {"mean_dim", unlimited},
                                       {"hadamard_transform", unlimited},
                                       {"hadamard_transform_12n", unlimited},
                                       {"hadamard_transform_20n", unlimited},
                                       {"hadamard_transform_28n", unlimited},
                                       {"hadamard_transform_40n", unlimited},
                                       {"per_token_quant_int8", unlimited}}};

/// Ops that make scores of sums, or multiply them with each other and add up again.
bool multiplies_sums(const OpInfo& info) {
  return info.category == Category::attention || info.name.starts_with("trtllm_") || info.name == "cutlass_fused_moe";
}

}  // namespace

double edge_limit_of(const Op& op, const TensorSpec& spec, DType type) {
  if (spec.role != Role::values || !is_float(type)) return 0;
  for (const Adder& adder : adders)
    if (adder.op == op.name()) return std::min(adder.most, quant::max_finite(type) / 2048);
  if (!adds_up_products(op.schema())) return 0;
  return multiplies_sums(op.info()) ? 8.0 : 0x1p58;
}

}  // namespace dodona::oracle
