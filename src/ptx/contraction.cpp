#include "ptx/contraction.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

namespace dodona::ptx {
namespace {

/// `add.ftz.f32`: name, what stands between (modifiers), type.
struct Kind {
  std::string_view name, between, type;
  bool flushes() const { return between.find(".ftz") != std::string_view::npos; }
};
Kind kind_of(std::string_view opcode) {
  const std::size_t first = opcode.find('.'), last = opcode.rfind('.');
  if (first == std::string_view::npos) return {};
  return {opcode.substr(0, first), first == last ? std::string_view() : opcode.substr(first, last - first), opcode.substr(last + 1)};
}
struct Contractible {
  std::string_view type, registers;
};
/// Types, and what a register of them is declared as.
constexpr Contractible contractible[] = {{"f32", "f32"},  {"f64", "f64"},   {"f16", "b16"},
                                         {"bf16", "b16"}, {"f16x2", "b32"}, {"bf16x2", "b32"}};
const Contractible* find_contractible(std::string_view type) {
  const auto found = std::find_if(std::begin(contractible), std::end(contractible), [&](const Contractible& c) { return c.type == type; });
  return found == std::end(contractible) ? nullptr : found;
}
bool is_half(std::string_view type) {
  return type != "f32" && type != "f64";
}
bool is_sum(const Statement& s) {
  const Kind k = kind_of(s.opcode);
  if ((k.name != "add" && k.name != "sub") || s.operands.size() != 3 || find_contractible(k.type) == nullptr) return false;
  if (is_half(k.type)) return k.between.empty() || k.between == ".sat";
  return k.between.empty() || k.between == ".ftz" || k.between == ".sat" || k.between == ".ftz.sat";
}
bool is_product(const Statement& s, std::string_view name) {
  const Kind k = kind_of(s.opcode);
  if (k.name != name || s.operands.size() != 3 || !s.guard.empty()) return false;
  if (name == "div") return k.type == "f32" && (k.between == ".full" || k.between == ".full.ftz");
  return find_contractible(k.type) != nullptr && (k.between.empty() || (k.between == ".ftz" && !is_half(k.type)));
}

struct Use {
  std::size_t statement, operand;  ///< operand: of sums their place, else npos
};

/// Registers by where they are declared, and the statements that define and use them.
class Flow {
 public:
  explicit Flow(const Function& f) : f_(f) {
    blocks_.resize(f.statements.size());
    std::vector<bool> begins(f.statements.size() + 1);
    for (const Scope& scope : f.scopes)
      for (const auto& [name, at] : scope.labels) begins[at] = true;
    std::size_t block = 0;
    for (std::size_t i = 0; i < f.statements.size(); ++i) {
      const Statement& s = f.statements[i];
      if (begins[i]) ++block;
      blocks_[i] = block;
      if (s.opcode.starts_with("bra") || s.opcode.starts_with("brx")) ++block;
      if (!s.guard.empty()) used(i, s.scope, s.guard, std::string::npos);
      const bool stores = s.opcode.starts_with("st.") || s.opcode.starts_with("red.");
      for (std::size_t k = 0; k < s.operands.size(); ++k) visit(i, s.operands[k], k == 0 && !stores, k);
    }
  }

  std::size_t block(std::size_t statement) const { return blocks_[statement]; }
  int id(int scope, const std::string& name) const {
    const auto found = ids_.find({home(scope, name), name});
    return found == ids_.end() ? -1 : found->second;
  }
  const std::vector<std::size_t>& definitions(int id) const { return definitions_[static_cast<std::size_t>(id)]; }

  /// The statement that gave the register its number, where that is in the same block.
  std::optional<std::size_t> source(std::size_t at, const Operand& o) const {
    if (o.kind != OperandKind::name || o.inverted) return std::nullopt;
    const int register_id = id(f_.statements[at].scope, o.text);
    if (register_id < 0) return std::nullopt;
    const auto& all = definitions(register_id);
    const auto after = std::lower_bound(all.begin(), all.end(), at);
    if (after == all.begin() || block(*std::prev(after)) != block(at)) return std::nullopt;
    return *std::prev(after);
  }
  /// Whether an operand of statement `first` still holds the same number at `last`.
  bool steady(std::size_t first, std::size_t last, const Operand& o) const {
    if (o.kind != OperandKind::name) return true;
    const int register_id = id(f_.statements[first].scope, o.text);
    if (register_id < 0) return true;
    const auto& all = definitions(register_id);
    const auto next = std::lower_bound(all.begin(), all.end(), first);
    return next == all.end() || *next >= last;
  }
  /// The uses of what statement `at` defines; nothing where they cannot be told.
  std::optional<std::vector<Use>> uses_of(std::size_t at) const {
    const Statement& s = f_.statements[at];
    const int register_id = id(s.scope, s.operands[0].text);
    if (register_id < 0) return std::nullopt;
    const auto& all = definitions(register_id);
    const auto mine = std::lower_bound(all.begin(), all.end(), at);
    std::vector<Use> found;
    for (const Use& use : uses_[static_cast<std::size_t>(register_id)]) {
      if (all.size() == 1) {
        found.push_back(use);
        continue;
      }
      const auto after = std::lower_bound(all.begin(), all.end(), use.statement);
      if (after == all.begin() || block(*std::prev(after)) != block(use.statement)) return std::nullopt;
      if (*std::prev(after) == *mine) found.push_back(use);
    }
    return found;
  }

 private:
  void visit(std::size_t at, const Operand& o, bool defines, std::size_t k) {
    const int scope = f_.statements[at].scope;
    if (o.kind == OperandKind::name) {
      if (defines) {
        definitions_[static_cast<std::size_t>(make_id(scope, o.text))].push_back(at);
      } else {
        used(at, scope, o.text, k);
      }
    }
    for (const Operand& part : o.parts) visit(at, part, defines && o.kind != OperandKind::address, std::string::npos);
  }
  void used(std::size_t at, int scope, const std::string& name, std::size_t operand) {
    uses_[static_cast<std::size_t>(make_id(scope, name))].push_back({at, operand});
  }
  int make_id(int scope, const std::string& name) {
    const auto [at, added] = ids_.emplace(std::pair{home(scope, name), name}, static_cast<int>(ids_.size()));
    if (added) {
      definitions_.emplace_back();
      uses_.emplace_back();
    }
    return at->second;
  }
  /// The scope that declares it.
  int home(int scope, std::string_view name) const {
    for (; scope > 0; scope = f_.scopes[static_cast<std::size_t>(scope)].parent)
      for (const Variable& v : f_.scopes[static_cast<std::size_t>(scope)].variables)
        if (v.space == Space::registers && name.starts_with(v.name) && (v.count > 0 ? name.size() > v.name.size() : name == v.name))
          return scope;
    return 0;
  }

  const Function& f_;
  std::vector<std::size_t> blocks_;
  std::map<std::pair<int, std::string>, int> ids_;
  std::vector<std::vector<std::size_t>> definitions_;
  std::vector<std::vector<Use>> uses_;
};

bool is_copy(const Statement& s) {
  if (s.operands.size() != 2 || !s.guard.empty()) return false;
  return s.opcode == "mov.f32" || s.opcode == "mov.b32" || s.opcode == "mov.f64" || s.opcode == "mov.b64" || s.opcode == "neg.f32" ||
         s.opcode == "neg.f64";
}

/// The product behind an operand of a sum.
std::optional<Absorption> product_of(const Function& f, const Flow& flow, std::size_t sum, std::size_t operand, std::string_view name) {
  Absorption found{0, sum, operand};
  const Operand* o = &f.statements[sum].operands[operand];
  std::size_t at = sum;
  for (;;) {
    const auto source = flow.source(at, *o);
    if (!source) return std::nullopt;
    const Statement& s = f.statements[*source];
    if (is_copy(s)) {
      found.negated = found.negated != s.opcode.starts_with("neg");
      o = &s.operands[1];
      at = *source;
      continue;
    }
    if (!is_product(s, name) || s.operands[0].kind != OperandKind::name) return std::nullopt;
    const Kind of_product = kind_of(s.opcode), of_sum = kind_of(f.statements[sum].opcode);
    if (of_product.type != of_sum.type || of_product.flushes() != of_sum.flushes()) return std::nullopt;
    for (const std::size_t k : {1, 2}) found.kept[k - 1] = !flow.steady(*source, sum, s.operands[k]);
    if ((found.kept[0] || found.kept[1]) && s.scope != f.statements[sum].scope) return std::nullopt;
    found.product = *source;
    return found;
  }
}

/// The sums that use a product, through moves; nothing if something else uses it.
std::optional<std::vector<Use>> sums_of(const Function& f, const Flow& flow, std::size_t product) {
  const auto uses = flow.uses_of(product);
  if (!uses) return std::nullopt;
  std::vector<Use> found;
  for (const Use& use : *uses) {
    const Statement& s = f.statements[use.statement];
    if (flow.block(use.statement) != flow.block(product) || use.operand == std::string::npos) return std::nullopt;
    if (is_copy(s)) {
      const auto further = sums_of(f, flow, use.statement);
      if (!further) return std::nullopt;
      found.insert(found.end(), further->begin(), further->end());
    } else if (is_sum(s)) {
      found.push_back(use);
    } else {
      return std::nullopt;
    }
  }
  return found;
}

using BySum = std::map<std::size_t, std::vector<Absorption>>;

/// Every sum with the products that it may take in.
BySum candidates(const Function& f, const Flow& flow, std::string_view name) {
  BySum found;
  for (std::size_t i = 0; i < f.statements.size(); ++i) {
    if (!is_sum(f.statements[i])) continue;
    for (const std::size_t operand : {1, 2})
      if (const auto a = product_of(f, flow, i, operand, name)) found[i].push_back(*a);
  }
  return found;
}

/// Products and quotients alike: of a sum one of them goes into it.
BySum all_candidates(const Function& f, const Flow& flow) {
  BySum sums = candidates(f, flow, "mul");
  for (const auto& [sum, of_sum] : candidates(f, flow, "div")) {
    std::vector<Absorption>& all = sums[sum];
    all.insert(all.end(), of_sum.begin(), of_sum.end());
    std::sort(all.begin(), all.end(), [](const Absorption& a, const Absorption& b) { return a.operand < b.operand; });
  }
  return sums;
}

/// Which of them ptxas takes in.
void mark_customary(const Function& f, const Flow& flow, BySum& sums) {
  std::map<std::size_t, std::optional<std::vector<Use>>> uses;
  for (const auto& [sum, of_sum] : sums)
    for (const Absorption& a : of_sum)
      if (uses.count(a.product) == 0) uses[a.product] = sums_of(f, flow, a.product);
  std::map<std::size_t, std::size_t> taken;  // sums, and the operand that they take in
  // A product that is used once goes into its sum, of two the first.
  for (const auto& [sum, of_sum] : sums)
    for (const Absorption& a : of_sum)
      if (uses[a.product] && uses[a.product]->size() == 1 && taken.count(sum) == 0) taken[sum] = a.operand;
  // One that is used more often goes into all of its sums or into none.
  for (const auto& use_of_product : uses) {
    const std::size_t product = use_of_product.first;
    if (!use_of_product.second || use_of_product.second->size() < 2) continue;
    const std::vector<Use>& all = *use_of_product.second;
    const auto is_of_product = [&](const Absorption& a) { return a.product == product; };
    const bool each = std::all_of(all.begin(), all.end(), [&](const Use& use) {
      const auto sum = sums.find(use.statement);
      const bool twice = std::count_if(all.begin(), all.end(), [&](const Use& u) { return u.statement == use.statement; }) > 1;
      return sum != sums.end() && taken.count(use.statement) == 0 && !twice &&
             std::any_of(sum->second.begin(), sum->second.end(), is_of_product);
    });
    if (!each) continue;
    for (const Use& use : all)
      for (const Absorption& a : sums[use.statement])
        if (is_of_product(a)) taken[use.statement] = a.operand;
  }
  for (auto& [sum, of_sum] : sums)
    for (Absorption& a : of_sum) {
      const auto found = taken.find(sum);
      a.customary = found != taken.end() && found->second == a.operand;
    }
}

/// Of each sum the one (`mul` or `div`) that goes into it, should one.
std::vector<Absorption> chosen(const Function& f, const BySum& sums, std::string_view name) {
  std::vector<Absorption> found;
  for (const auto& [sum, of_sum] : sums) {
    const Absorption* best = nullptr;
    for (const Absorption& a : of_sum)
      if (kind_of(f.statements[a.product].opcode).name == name && (best == nullptr || (a.customary && !best->customary))) best = &a;
    if (best == nullptr) continue;
    found.push_back(*best);
    found.back().other_goes_in =
        !best->customary && std::any_of(of_sum.begin(), of_sum.end(), [](const Absorption& a) { return a.customary; });
  }
  return found;
}

/// A register that a reading adds.
std::string added_register(const char* what, std::string_view type, std::size_t statement, std::size_t operand) {
  return std::string("%") + what + "_" + std::string(type) + "_" + std::to_string(statement) + "_" + std::to_string(operand);
}
Operand named(std::string name) {
  Operand o{OperandKind::name};
  o.text = std::move(name);
  return o;
}

/// The sum as an fma, and what stands before the product (factors that change meanwhile) and before the sum (negations).
struct Fused {
  Statement fma;
  std::vector<Statement> before_product, before_sum;
};
Fused fused(const Function& f, const Absorption& a, const Operand* second_factor = nullptr) {
  const Statement &product = f.statements[a.product], &sum = f.statements[a.sum];
  const Kind kind = kind_of(sum.opcode);
  Fused made{sum, {}, {}};
  Operand factors[2] = {product.operands[1], second_factor != nullptr ? *second_factor : product.operands[2]};
  Operand addend = sum.operands[a.operand == 1 ? 2 : 1];
  const auto unary = [&](std::vector<Statement>& to, const std::string& opcode, const char* what, std::size_t at, std::size_t k,
                         Operand& o) {
    Statement s = sum;
    s.guard.clear();
    s.guard_inverted = false;
    s.opcode = opcode;
    s.operands = {named(added_register(what, kind.type, at, k)), o};
    o = s.operands[0];
    to.push_back(std::move(s));
  };
  const std::string type(kind.type), bits = std::to_string(8 * bytes_of(find_contractible(kind.type)->registers));
  for (const std::size_t k : {0, 1})
    if (a.kept[k] && (k == 0 || second_factor == nullptr)) unary(made.before_product, "mov.b" + bits, "kept", a.sum, k, factors[k]);
  // Of 16-bit numbers ptxas makes a negation that costs an instruction of theirs: the signs are turned over instead.
  const auto negate = [&](std::size_t k, Operand& o) {
    unary(made.before_sum, is_half(kind.type) ? "xor.b" + bits : "neg." + type, "negated", a.sum, k, o);
    if (!is_half(kind.type)) return;
    Operand signs{OperandKind::integer};
    signs.value = bits == "16" ? 0x8000 : 0x80008000;
    made.before_sum.back().operands.push_back(signs);
  };
  const bool subtracts = kind.name == "sub";
  if (a.negated != (subtracts && a.operand == 2)) negate(0, factors[0]);
  if (subtracts && a.operand == 1) negate(1, addend);
  made.fma.opcode = "fma.rn" + std::string(kind.between) + "." + type;
  made.fma.operands = {sum.operands[0], factors[0], factors[1], addend};
  return made;
}

using Insertions = std::map<std::size_t, std::vector<Statement>>;

/// Statements before others; labels move on.
void insert(Function& f, const Insertions& before) {
  if (before.empty()) return;
  std::vector<Statement> statements;
  std::vector<std::size_t> moved(f.statements.size() + 1);
  for (std::size_t i = 0; i <= f.statements.size(); ++i) {
    moved[i] = statements.size();
    if (const auto found = before.find(i); found != before.end())
      statements.insert(statements.end(), found->second.begin(), found->second.end());
    if (i < f.statements.size()) statements.push_back(std::move(f.statements[i]));
  }
  f.statements = std::move(statements);
  for (Scope& scope : f.scopes)
    for (auto& [name, at] : scope.labels) at = moved[at];
}

/// `opcode` and the second factor: where they are others than an fma of the product's.
struct Choice {
  Absorption absorption;
  std::optional<Operand> second_factor = std::nullopt;
  std::string opcode = {};
};
void fuse(Function& f, const std::vector<Choice>& choices) {
  Insertions before;
  std::vector<std::pair<std::size_t, Statement>> made;
  for (const Choice& c : choices) {
    Fused one = fused(f, c.absorption, c.second_factor ? &*c.second_factor : nullptr);
    if (!c.opcode.empty()) one.fma.opcode = c.opcode;
    const std::string_view registers = find_contractible(kind_of(f.statements[c.absorption.sum].opcode).type)->registers;
    for (const auto* added : {&one.before_product, &one.before_sum})
      for (const Statement& s : *added) {
        Variable v;
        v.space = Space::registers;
        v.type = registers;
        v.name = s.operands[0].text;
        f.scopes.front().variables.push_back(std::move(v));
        before[added == &one.before_sum ? c.absorption.sum : c.absorption.product].push_back(s);
      }
    made.emplace_back(c.absorption.sum, std::move(one.fma));
  }
  for (auto& [at, statement] : made) f.statements[at] = std::move(statement);
  insert(f, before);
}

/// The constant that a register holds for good, as fp32 bits.
bool constant_of(const Function& f, const Flow& flow, std::size_t at, const Operand& o, std::uint32_t& bits) {
  if (o.kind == OperandKind::f32 || o.kind == OperandKind::integer) {
    bits = static_cast<std::uint32_t>(o.value);
    return true;
  }
  if (o.kind != OperandKind::name) return false;
  const int id = flow.id(f.statements[at].scope, o.text);
  if (id < 0 || flow.definitions(id).size() != 1) return false;
  const Statement& s = f.statements[flow.definitions(id).front()];
  if (!s.opcode.starts_with("mov.") || s.operands.size() != 2 || !s.guard.empty() || s.operands[1].kind == OperandKind::name) return false;
  return constant_of(f, flow, flow.definitions(id).front(), s.operands[1], bits);
}

bool names(const std::vector<std::size_t>& places, const Statement& s) {
  return std::find(places.begin(), places.end(), s.begin) != places.end();
}

}  // namespace

std::vector<Absorption> open_sums(const Function& f) {
  const Flow flow(f);
  BySum sums = all_candidates(f, flow);
  mark_customary(f, flow, sums);
  return chosen(f, sums, "mul");
}

OpenReading told(const Function& f, const Absorption& a) {
  const Statement &product = f.statements[a.product], &sum = f.statements[a.sum];
  return {sum.line, product.opcode + " (line " + std::to_string(product.line) + ") then " + sum.opcode + ", into " + sum.operands[0].text,
          sum.begin, a.customary};
}

void contract_quotients(Function& f) {
  const Flow flow(f);
  BySum sums = all_candidates(f, flow);
  mark_customary(f, flow, sums);
  std::vector<Choice> choices;
  for (const Absorption& a : chosen(f, sums, "div")) {
    if (!a.customary) continue;
    const Statement& quotient = f.statements[a.product];
    Choice choice{a};
    std::uint32_t bits = 0;
    if (constant_of(f, flow, a.product, quotient.operands[2], bits)) {
      choice.second_factor.emplace(Operand{OperandKind::f32});
      choice.second_factor->value = std::bit_cast<std::uint32_t>(1.0f / std::bit_cast<float>(bits));
    } else {
      if (quotient.opcode != "div.full.f32" || !kind_of(f.statements[a.sum].opcode).between.empty()) continue;
      choice.opcode = "div.full.add.f32";
    }
    choices.push_back(std::move(choice));
  }
  fuse(f, choices);
}

void fuse_sums(Function& f, const std::vector<std::size_t>& places) {
  std::vector<Choice> choices;
  for (const Absorption& a : open_sums(f))
    if (names(places, f.statements[a.sum])) choices.push_back({a});
  fuse(f, choices);
}

std::string text_with(const std::string& text, const Syntax& syntax, const std::vector<std::size_t>& fused_places,
                      const std::vector<std::size_t>& apart_places) {
  struct Change {
    std::size_t end;
    std::string text;
  };
  std::map<std::size_t, Change> changes;  // by where they begin
  const auto written = [](const Statement& s) {
    return (s.guard.empty() ? "" : (s.guard_inverted ? "@!" : "@") + s.guard + " ") + text_of(s) + "; ";
  };
  for (const Function& f : syntax.functions)
    for (const Absorption& a : open_sums(f)) {
      const Statement &sum = f.statements[a.sum], &product = f.statements[a.product];
      const Kind kind = kind_of(sum.opcode);
      if (names(apart_places, sum)) {
        if (a.other_goes_in) continue;  // a rounding would keep the quotient out too
        Statement apart = sum;
        apart.opcode = std::string(kind.name) + ".rn" + std::string(kind.between) + "." + std::string(kind.type);
        changes[sum.begin] = {sum.end, written(apart)};
        continue;
      }
      if (!names(fused_places, sum)) continue;
      const Fused one = fused(f, a);
      const std::string declares = ".reg ." + std::string(find_contractible(kind.type)->registers) + " ";
      std::string before_product, before_sum;
      for (const Statement& s : one.before_product) before_product += declares + s.operands[0].text + "; " + written(s);
      for (const Statement& s : one.before_sum) before_sum += declares + s.operands[0].text + "; " + written(s);
      changes[sum.begin] = {sum.end, before_sum.empty() ? written(one.fma) : "{ " + before_sum + written(one.fma) + "}"};
      if (before_product.empty()) continue;
      Change& change = changes.emplace(product.begin, Change{product.begin, ""}).first->second;
      change.text = before_product + change.text;
    }
  std::string closed;
  std::size_t done = 0;
  for (const auto& [begin, change] : changes) {
    closed += text.substr(done, begin - done) + change.text;
    done = change.end;
  }
  return closed + text.substr(done);
}

}  // namespace dodona::ptx
