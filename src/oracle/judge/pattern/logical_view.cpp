// An output's shape as a kernel writer sees it.
#include <algorithm>

#include "core/shape_expr.h"
#include "oracle/judge/pattern.h"

namespace dodona::oracle {

LogicalView logical_view(const Op& op, const TensorSpec& spec, const Dims& shape, const Arguments& inputs) {
  SymbolNames symbols;
  const ShapeExpr expression = ShapeExpr::parse(spec.shape, symbols);
  const ShapeAlternative* alternative = expression.for_rank(shape.rank());
  LogicalView view{shape, std::vector<std::string>(static_cast<std::size_t>(shape.rank()))};
  if (alternative == nullptr) return view;
  const bool heads = op.info().category == Category::attention || op.info().category == Category::rope;
  const auto word = [&](const std::string& symbol) -> std::string {
    if (symbol == "E") return "expert";
    if (symbol == "T") return "token";
    if (symbol == "R" && op.info().category == Category::utility) return "rank";
    if (symbol == "L" && op.info().category == Category::gemm) return "matrix";
    if (heads && (symbol == "N" || symbol == "H" || symbol == "Nh" || symbol == "Nq" || symbol == "Nk" || symbol == "Nv")) return "head";
    return symbol;
  };
  const auto lead = static_cast<std::size_t>(shape.rank()) - std::min(alternative->dims.size(), view.names.size());
  if (lead == 1 && alternative->pack >= 0) view.names[0] = word(symbols.name(alternative->pack));
  for (std::size_t d = lead; d < view.names.size(); ++d) view.names[d] = word(alternative->dims[d - lead].text());
  // Heads side by side: the last dimension is a product with a whole-number attribute.
  if (view.names.empty() || shape.rank() == max_rank) return view;
  const std::string last = view.names.back();
  const std::size_t star = last.find('*');
  if (star == std::string::npos) return view;
  const AttrValue* attr = inputs.find_attr(last.substr(star + 1));
  const auto* width = attr != nullptr ? std::get_if<std::int64_t>(attr) : nullptr;
  if (width == nullptr || *width <= 0 || shape.at(-1) % *width != 0) return view;
  view.shape[shape.rank() - 1] = shape.at(-1) / *width;
  view.shape.push_back(*width);
  view.names.back() = word(last.substr(0, star));
  view.names.push_back(last.substr(star + 1));
  return view;
}

}  // namespace dodona::oracle
