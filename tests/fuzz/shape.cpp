#include "core/shape_expr.h"

#include <cstring>
#include <stdexcept>

#include "tests/fuzz/target.h"

namespace dodona::fuzz {

/// Eight bytes for each size of a tensor, a byte for its rank, an expression.
void shape(Bytes input) {
  constexpr std::size_t sizes = max_rank * sizeof(std::int64_t);
  if (input.size() < sizes + 1) return;
  std::int64_t values[max_rank];
  std::memcpy(values, input.data(), sizes);
  const int rank = static_cast<int>(input[sizes]) % (max_rank + 1);
  SymbolNames names;
  ShapeExpr shape;
  try {
    shape = ShapeExpr::parse(text_of(input.subspan(sizes + 1)), names);
  } catch (const std::invalid_argument&) {
    return;  // schemas are code
  }
  const ShapeAlternative* alternative = shape.for_rank(rank);
  if (alternative == nullptr) return;
  SymbolValues bound(names.count());
  const int leading = rank - static_cast<int>(alternative->dims.size());
  require(leading >= 0, "an alternative has more dimensions than the tensor");
  bool matched = true;
  for (std::size_t d = 0; d < alternative->dims.size(); ++d) {
    const std::int64_t size = values[static_cast<std::size_t>(leading) + d] & ~(std::int64_t{1} << 63);
    const DimExpr& dim = alternative->dims[d];
    // Nothing times a name matches nothing, and says nothing of the name.
    matched = dim.match(size, bound, 0) == DimExpr::Match::equal && dim.evaluate(bound) >= 0 && matched;
    if (matched) require(dim.evaluate(bound) == size, "an expression that matched has another value");
  }
  if (matched && rank > 0 && alternative == &shape.alternatives().front() && alternative->pack < 0) {
    const Dims solved = shape.evaluate(bound);
    require(solved.rank() == rank, "a shape comes back with another rank");
  }
}

}  // namespace dodona::fuzz
