#include "core/shape_expr.h"

#include <cctype>
#include <charconv>
#include <stdexcept>

namespace dodona {

int SymbolNames::find(std::string_view name) const {
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (names_[i] == name) return static_cast<int>(i);
  return -1;
}

int SymbolNames::intern(std::string_view name) {
  if (const int known = find(name); known >= 0) return known;
  names_.emplace_back(name);
  return count() - 1;
}

/// sum = product { (+|-) product };  product = atom { (*|/) atom };  atom = number | NAME | ceil(a/b) | align(a,b) | (sum)
struct DimExpr::Parser {
  std::string_view text;
  SymbolNames& names;
  DimExpr& out;
  std::size_t at = 0;

  [[noreturn]] void fail(const char* why) const {
    throw std::invalid_argument("shape expression '" + std::string(text) + "': " + why + " at position " + std::to_string(at));
  }
  bool take(char c) {
    if (at >= text.size() || text[at] != c) return false;
    ++at;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail("unexpected character");
  }
  int add(Kind kind, std::int64_t value, int left, int right) {
    out.nodes_.push_back({kind, value, left, right});
    return out.root();
  }
  int sum() {
    int left = product();
    while (at < text.size() && (text[at] == '+' || text[at] == '-')) {
      const Kind kind = text[at++] == '+' ? Kind::add : Kind::subtract;
      const int right = product();
      left = add(kind, 0, left, right);
    }
    return left;
  }
  int product() {
    int left = atom();
    while (at < text.size() && (text[at] == '*' || text[at] == '/')) {
      const Kind kind = text[at++] == '*' ? Kind::multiply : Kind::divide;
      const int right = atom();
      left = add(kind, 0, left, right);
    }
    return left;
  }
  int atom() {
    if (take('(')) {
      const int inner = sum();
      expect(')');
      return inner;
    }
    const std::size_t begin = at;
    while (at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_')) ++at;
    const std::string_view word = text.substr(begin, at - begin);
    if (word.empty()) fail("expected a number or a name");
    if (std::isdigit(static_cast<unsigned char>(word[0]))) {
      std::int64_t value = 0;
      const auto read = std::from_chars(word.data(), word.data() + word.size(), value);
      if (read.ec != std::errc{} || read.ptr != word.data() + word.size()) fail("expected a number");
      return add(Kind::constant, value, -1, -1);
    }
    if (at < text.size() && text[at] == '(') return call(word);
    const int symbol = names.intern(word);
    bool known = false;
    for (const int s : out.symbols_) known = known || s == symbol;
    if (!known) out.symbols_.push_back(symbol);
    return add(Kind::symbol, symbol, -1, -1);
  }
  int call(std::string_view function) {
    const bool is_ceil = function == "ceil";
    if (!is_ceil && function != "align") fail("unknown function");
    expect('(');
    const int left = is_ceil ? atom() : sum();
    expect(is_ceil ? '/' : ',');
    const int right = is_ceil ? atom() : sum();
    expect(')');
    return add(is_ceil ? Kind::ceil_divide : Kind::align, 0, left, right);
  }
};

DimExpr DimExpr::parse(std::string_view text, SymbolNames& names) {
  DimExpr expr;
  expr.text_ = text;
  Parser parser{text, names, expr};
  parser.sum();
  if (parser.at != text.size()) parser.fail("unexpected character");
  return expr;
}

namespace {
/// What does not fit is -1, like everything that has no value.
std::int64_t sum_of(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? -1 : sum;
}
std::int64_t product_of(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? -1 : product;
}
std::int64_t ceil_quotient(std::int64_t a, std::int64_t b) {
  return b != 0 ? a / b + (a % b != 0 ? 1 : 0) : -1;
}
}  // namespace

std::int64_t DimExpr::evaluate(int node, const SymbolValues& values) const {
  const Node& n = nodes_[static_cast<std::size_t>(node)];
  if (n.kind == Kind::constant) return n.value;
  if (n.kind == Kind::symbol) return values.value(static_cast<int>(n.value));
  const std::int64_t left = evaluate(n.left, values);
  const std::int64_t right = evaluate(n.right, values);
  if (left < 0 || right < 0) return -1;
  switch (n.kind) {
    case Kind::add: return sum_of(left, right);
    case Kind::subtract: return left >= right ? left - right : -1;
    case Kind::multiply: return product_of(left, right);
    case Kind::divide: return right != 0 && left % right == 0 ? left / right : -1;
    case Kind::ceil_divide: return ceil_quotient(left, right);
    case Kind::align: return right != 0 ? product_of(ceil_quotient(left, right), right) : -1;
    default: return -1;
  }
}

DimExpr::Match DimExpr::solve(int node, std::int64_t target, SymbolValues& values, int witness) const {
  if (target < 0) return Match::unequal;  // no size, or one beyond all numbers
  const Node& n = nodes_[static_cast<std::size_t>(node)];
  if (n.kind == Kind::symbol && !values.bound(static_cast<int>(n.value))) {
    values.bind(static_cast<int>(n.value), target, witness);
    return Match::equal;
  }
  if (n.kind == Kind::constant || n.kind == Kind::symbol) return evaluate(node, values) == target ? Match::equal : Match::unequal;

  const std::int64_t left = evaluate(n.left, values);
  const std::int64_t right = evaluate(n.right, values);
  if (left >= 0 && right >= 0) return evaluate(node, values) == target ? Match::equal : Match::unequal;
  if (left < 0 && right < 0) return Match::unresolved;
  const int unknown = left < 0 ? n.left : n.right;
  const std::int64_t known = left < 0 ? right : left;
  switch (n.kind) {
    case Kind::add: return solve(unknown, target - known, values, witness);
    case Kind::subtract: return solve(unknown, left < 0 ? sum_of(target, known) : known - target, values, witness);
    case Kind::multiply:
      if (known == 0) return target == 0 ? Match::equal : Match::unequal;  // whatever the other factor is
      return target % known == 0 ? solve(unknown, target / known, values, witness) : Match::unequal;
    case Kind::divide:
      if (left >= 0) return Match::unresolved;
      return known != 0 ? solve(unknown, product_of(target, known), values, witness) : Match::unequal;
    default: return Match::unresolved;
  }
}

DimExpr::Match DimExpr::match(std::int64_t actual, SymbolValues& values, int witness) const {
  return solve(root(), actual, values, witness);
}

namespace {
std::vector<std::string_view> split(std::string_view text, char separator, bool keep_empty) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] != separator) continue;
    if (keep_empty || i > begin) parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return parts;
}
}  // namespace

ShapeExpr ShapeExpr::parse(std::string_view text, SymbolNames& names) {
  ShapeExpr shape;
  shape.text_ = text;
  for (const std::string_view part : split(text, '|', true)) {
    ShapeAlternative alternative;
    for (const std::string_view word : split(part, ' ', false)) {
      alternative.text += (alternative.text.empty() ? "" : ", ") + std::string(word);
      if (word.ends_with("...")) {
        if (!alternative.dims.empty() || alternative.pack >= 0) throw std::invalid_argument("a pack must come first: " + std::string(text));
        alternative.pack = names.intern(word.substr(0, word.size() - 3));
      } else {
        alternative.dims.push_back(DimExpr::parse(word, names));
      }
    }
    alternative.text = "[" + alternative.text + "]";
    shape.alternatives_.push_back(std::move(alternative));
  }
  return shape;
}

const ShapeAlternative* ShapeExpr::for_rank(int rank) const {
  const ShapeAlternative* packed = nullptr;
  for (const ShapeAlternative& alternative : alternatives_) {
    const int dims = static_cast<int>(alternative.dims.size());
    if (alternative.pack < 0 && dims == rank) return &alternative;
    if (alternative.pack >= 0 && dims <= rank) packed = &alternative;
  }
  return packed;
}

Dims ShapeExpr::evaluate(const SymbolValues& values) const {
  const ShapeAlternative& alternative = alternatives_.front();
  Dims shape;
  const auto push = [&](std::int64_t size) {
    if (size < 0) throw std::invalid_argument("shape " + alternative.text + " is not determined");
    shape.push_back(size);
  };
  if (alternative.pack >= 0) push(values.value(alternative.pack));
  for (const DimExpr& dim : alternative.dims) push(dim.evaluate(values));
  return shape;
}

}  // namespace dodona
