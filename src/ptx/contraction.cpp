#include "ptx/contraction.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string>

namespace dodona::ptx {
namespace {

/// How often registers are defined and used, and where they are defined.
struct Uses {
  std::map<std::string, int, std::less<>> defined, used;
  std::map<std::string, std::size_t, std::less<>> where;
};

void count(const Operand& o, std::map<std::string, int, std::less<>>& counts) {
  if (o.kind == OperandKind::name) ++counts[o.text];
  for (const Operand& part : o.parts) count(part, counts);
}

Uses uses_of(const Function& f) {
  Uses uses;
  for (std::size_t i = 0; i < f.statements.size(); ++i) {
    const Statement& s = f.statements[i];
    if (!s.guard.empty()) ++uses.used[s.guard];
    const bool stores = s.opcode.rfind("st.", 0) == 0 || s.opcode.rfind("red.", 0) == 0;
    for (std::size_t k = 0; k < s.operands.size(); ++k) {
      if (k == 0 && !stores) {
        count(s.operands[k], uses.defined);
        if (s.operands[k].kind == OperandKind::name) uses.where[s.operands[k].text] = i;
      } else {
        count(s.operands[k], uses.used);
      }
    }
  }
  return uses;
}

/// `add.f32`: what is left of an opcode whose rounding is not named.
struct Kind {
  std::string_view name;
  bool flushes = false;
  std::string_view type;
};
Kind kind_of(std::string_view opcode) {
  const std::size_t first = opcode.find('.'), last = opcode.rfind('.');
  if (first == std::string_view::npos) return {};
  const std::string_view between = first == last ? std::string_view() : opcode.substr(first, last - first);
  if (between != "" && between != ".ftz" && between != ".full" && between != ".full.ftz") return {};
  return {opcode.substr(0, first), between.ends_with(".ftz"), opcode.substr(last + 1)};
}
bool contracts(std::string_view type) {
  return type == "f32" || type == "f64";
}

/// The constant that a register holds for good, as fp32 bits.
bool constant_of(const Function& f, const Uses& uses, const Operand& o, std::uint32_t& bits) {
  if (o.kind == OperandKind::f32 || o.kind == OperandKind::integer) {
    bits = static_cast<std::uint32_t>(o.value);
    return true;
  }
  if (o.kind != OperandKind::name) return false;
  const auto defined = uses.defined.find(o.text);
  const auto where = uses.where.find(o.text);
  if (defined == uses.defined.end() || defined->second != 1 || where == uses.where.end()) return false;
  const Statement& s = f.statements[where->second];
  if (s.opcode.rfind("mov.", 0) != 0 || s.operands.size() != 2 || !s.guard.empty() || s.operands[1].kind == OperandKind::name) return false;
  return constant_of(f, uses, s.operands[1], bits);
}

/// Registers of negated numbers.
constexpr const char *of_quotients = "%of_quotients_", *of_products = "%of_products_";

struct Pair {
  std::size_t product, sum;
  bool product_first;  ///< the sum's first operand is the product
};

/// Whether whoever does statement `first` comes to `last` next, and from nowhere else.
bool in_one_block(const Function& f, std::size_t first, std::size_t last) {
  for (const Scope& scope : f.scopes)
    for (const auto& [name, at] : scope.labels)
      if (at > first && at <= last) return false;
  return std::none_of(f.statements.begin() + static_cast<std::ptrdiff_t>(first), f.statements.begin() + static_cast<std::ptrdiff_t>(last),
                      [](const Statement& s) { return s.opcode.rfind("bra", 0) == 0 || s.opcode.rfind("brx", 0) == 0; });
}
/// Whether a statement between the two writes the register.
bool defines(const Function& f, std::size_t first, std::size_t last, const std::string& name) {
  for (std::size_t i = first; i < last; ++i) {
    std::map<std::string, int, std::less<>> defined;
    if (!f.statements[i].operands.empty()) count(f.statements[i].operands[0], defined);
    if (defined.count(name) > 0) return true;
  }
  return false;
}

/// Sums of which an operand is a product that is used nowhere else, in the same stretch of statements.
std::vector<Pair> pairs_of(const Function& f, const Uses& uses, std::string_view product) {
  std::vector<Pair> found;
  for (std::size_t i = 0; i < f.statements.size(); ++i) {
    const Statement& sum = f.statements[i];
    const Kind kind = kind_of(sum.opcode);
    if ((kind.name != "add" && kind.name != "sub") || !contracts(kind.type) || sum.operands.size() != 3) continue;
    for (std::size_t k = 1; k <= 2; ++k) {
      const Operand& o = sum.operands[k];
      if (o.kind != OperandKind::name) continue;
      const auto where = uses.where.find(o.text);
      const auto defined = uses.defined.find(o.text), used = uses.used.find(o.text);
      if (where == uses.where.end() || where->second >= i || defined->second != 1 || used->second != 1) continue;
      const Statement& s = f.statements[where->second];
      const Kind of_product = kind_of(s.opcode);
      if (of_product.name != product || of_product.type != kind.type || of_product.flushes != kind.flushes || s.operands.size() != 3)
        continue;
      if (!s.guard.empty() || !sum.guard.empty() || s.scope != sum.scope) continue;
      const bool together = in_one_block(f, where->second, i);
      const auto steady = [&](const Operand& factor) {
        const auto of_factor = uses.defined.find(factor.text);
        return factor.kind != OperandKind::name || of_factor == uses.defined.end() || of_factor->second == 1 ||
               (together && !defines(f, where->second, i, factor.text));
      };
      if (!steady(s.operands[1]) || !steady(s.operands[2])) continue;
      found.push_back({where->second, i, k == 1});
      break;
    }
  }
  return found;
}

/// The sum becomes the fma; the product, which nobody uses any more, is taken away by making it a move of zero.
void fuse(Function& f, const Pair& p, const Operand& second_factor, const char* prefix, std::vector<Statement>& negations) {
  Statement& product = f.statements[p.product];
  Statement& sum = f.statements[p.sum];
  const Kind kind = kind_of(sum.opcode);
  const bool subtracts = kind.name == "sub";
  Operand factor = product.operands[1], addend = sum.operands[p.product_first ? 2 : 1];
  if (subtracts) {
    // a b - c: the addend is negated; c - a b: a factor is.
    Operand& negated = p.product_first ? addend : factor;
    Statement negation = sum;
    negation.opcode = "neg." + std::string(kind.type);
    Operand to{OperandKind::name};
    to.text = prefix + std::to_string(negations.size());
    negation.operands = {to, negated};
    negations.push_back(negation);
    negated = to;
  }
  sum.opcode = std::string("fma.rn.") + (kind.flushes ? "ftz." : "") + std::string(kind.type);
  sum.operands = {sum.operands[0], factor, second_factor, addend};
  Operand zero{OperandKind::integer};
  product.opcode = kind.type == "f64" ? "mov.b64" : "mov.b32";
  product.operands = {product.operands[0], zero};
}

/// Negations stand before their sums: statements and labels move on.
void insert(Function& f, const char* prefix, const std::vector<std::size_t>& before, const std::vector<Statement>& negations) {
  if (negations.empty()) return;
  std::vector<std::size_t> order(negations.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return before[a] < before[b]; });
  std::vector<Statement> statements;
  std::vector<std::size_t> moved(f.statements.size() + 1);
  std::size_t next = 0;
  for (std::size_t i = 0; i <= f.statements.size(); ++i) {
    moved[i] = statements.size();
    while (next < order.size() && before[order[next]] == i) statements.push_back(negations[order[next++]]);
    if (i < f.statements.size()) statements.push_back(f.statements[i]);
  }
  f.statements = std::move(statements);
  for (Scope& scope : f.scopes)
    for (auto& [name, at] : scope.labels) at = moved[at];
  Variable registers;
  registers.space = Space::registers;
  registers.name = prefix;
  registers.count = static_cast<int>(negations.size());
  registers.type = "f32";
  f.scopes.front().variables.push_back(registers);
}

}  // namespace

void contract_quotients(Function& f) {
  const Uses uses = uses_of(f);
  std::vector<Statement> negations;
  std::vector<std::size_t> before;
  for (const Pair& p : pairs_of(f, uses, "div")) {
    const Statement& quotient = f.statements[p.product];
    if (quotient.opcode.find(".full") == std::string::npos) continue;
    std::uint32_t bits = 0;
    if (!constant_of(f, uses, quotient.operands[2], bits)) {
      if (quotient.opcode != "div.full.f32") continue;
      fuse(f, p, Operand(quotient.operands[2]), of_quotients, negations);
      f.statements[p.sum].opcode = "div.full.add.f32";
      before.resize(negations.size(), p.sum);
      continue;
    }
    Operand reciprocal{OperandKind::f32};
    reciprocal.value = std::bit_cast<std::uint32_t>(1.0f / std::bit_cast<float>(bits));
    fuse(f, p, reciprocal, of_quotients, negations);
    before.resize(negations.size(), p.sum);
  }
  insert(f, of_quotients, before, negations);
}

void contract_products(Function& f) {
  std::vector<Statement> negations;
  std::vector<std::size_t> before;
  for (const Pair& p : pairs_of(f, uses_of(f), "mul")) {
    const bool wide = kind_of(f.statements[p.sum].opcode).type == "f64";
    if (wide && f.statements[p.sum].opcode.rfind("sub", 0) == 0) continue;  // a register for the negated number would be a wide one
    fuse(f, p, Operand(f.statements[p.product].operands[2]), of_products, negations);
    before.resize(negations.size(), p.sum);
  }
  insert(f, of_products, before, negations);
}

std::vector<OpenReading> open_products(const Function& f) {
  std::vector<OpenReading> open;
  for (const Pair& p : pairs_of(f, uses_of(f), "mul")) {
    const Statement &product = f.statements[p.product], &sum = f.statements[p.sum];
    open.push_back(
        {sum.line, product.opcode + " (line " + std::to_string(product.line) + ") then " + sum.opcode + ", into " + sum.operands[0].text});
  }
  return open;
}

}  // namespace dodona::ptx
