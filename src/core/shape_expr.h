// Shape expressions: what a schema says of a tensor's sizes, solved against real shapes.
//
//   shape       = alternative { "|" alternative }          told apart by rank; an empty alternative is rank 0
//   alternative = [ pack ] { dim }                          dims are separated by spaces
//   pack        = NAME "..."                                 zero or more leading dimensions whose product is NAME
//   dim         = products and sums of numbers and NAMEs:  N   2*D   M/16   Lkv+Dr   ceil(N/128)   align(M,128)
//
// "/" is exact division: K/16 asks that K be a multiple of 16. A NAME binds on first use; attributes that are whole numbers, or yes or no
// (1 or 0), are bound beforehand.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dodona/tensor.h"

namespace dodona {

/// Names of symbols, in order of first appearance in a schema; shared by all expressions of one op.
class SymbolNames {
 public:
  int find(std::string_view name) const;  ///< -1 when unknown
  int intern(std::string_view name);
  const std::string& name(int index) const { return names_[static_cast<std::size_t>(index)]; }
  int count() const { return static_cast<int>(names_.size()); }

 private:
  std::vector<std::string> names_;
};

/// Values found while matching one call, and where each came from.
class SymbolValues {
 public:
  explicit SymbolValues(int count) : values_(static_cast<std::size_t>(count), -1), witness_(static_cast<std::size_t>(count), -1) {}
  bool bound(int symbol) const { return values_[static_cast<std::size_t>(symbol)] >= 0; }
  std::int64_t value(int symbol) const { return values_[static_cast<std::size_t>(symbol)]; }
  /// Index of the tensor that bound the symbol; -1 for attributes and values given from outside.
  int witness(int symbol) const { return witness_[static_cast<std::size_t>(symbol)]; }
  void bind(int symbol, std::int64_t value, int witness) {
    values_[static_cast<std::size_t>(symbol)] = value;
    witness_[static_cast<std::size_t>(symbol)] = witness;
  }

 private:
  std::vector<std::int64_t> values_;
  std::vector<int> witness_;
};

/// One dimension's expression, as a tree in an array (children come before their parent; the root is last).
class DimExpr {
 public:
  /// Throws std::invalid_argument naming the text when it does not parse: schemas are code, a wrong one is a bug.
  static DimExpr parse(std::string_view text, SymbolNames& names);

  enum class Match { equal, unequal, unresolved };
  /// Compares with `actual`; binds the one unknown symbol when the expression can be solved for it.
  Match match(std::int64_t actual, SymbolValues& values, int witness) const;
  /// Value, or -1 when a symbol is unbound or a division is not exact.
  std::int64_t evaluate(const SymbolValues& values) const { return evaluate(root(), values); }
  /// Symbols of the expression.
  const std::vector<int>& symbols() const { return symbols_; }
  const std::string& text() const { return text_; }

 private:
  enum class Kind : std::uint8_t { constant, symbol, add, subtract, multiply, divide, ceil_divide, align };
  struct Node {
    Kind kind;
    std::int64_t value;  // constant, or symbol index
    int left, right;
  };
  struct Parser;

  int root() const { return static_cast<int>(nodes_.size()) - 1; }
  std::int64_t evaluate(int node, const SymbolValues& values) const;
  Match solve(int node, std::int64_t target, SymbolValues& values, int witness) const;

  std::vector<Node> nodes_;
  std::vector<int> symbols_;
  std::string text_;
};

struct ShapeAlternative {
  int pack = -1;  ///< symbol of the leading pack, -1 for none
  std::vector<DimExpr> dims;
  std::string text;
};

class ShapeExpr {
 public:
  static ShapeExpr parse(std::string_view text, SymbolNames& names);
  /// The alternative for a tensor of this rank; an alternative of exactly that rank is preferred to a pack. nullptr for none.
  const ShapeAlternative* for_rank(int rank) const;
  const std::vector<ShapeAlternative>& alternatives() const { return alternatives_; }
  const std::string& text() const { return text_; }
  /// Shape by the first alternative (a pack becomes one dimension), every symbol bound. Throws std::invalid_argument otherwise.
  Dims evaluate(const SymbolValues& values) const;

 private:
  std::vector<ShapeAlternative> alternatives_;
  std::string text_;
};

}  // namespace dodona
