#include <algorithm>
#include <bit>
#include <cmath>

#include "dodona/error.h"
#include "ptx/lexer.h"
#include "ptx/syntax.h"

namespace dodona::ptx {
namespace {

struct TypeSize {
  std::string_view name;
  std::size_t bytes;
};
constexpr TypeSize types[] = {{"pred", 1}, {"b8", 1},  {"u8", 1},  {"s8", 1},  {"b16", 2},   {"u16", 2},    {"s16", 2},    {"f16", 2},
                              {"bf16", 2}, {"b32", 4}, {"u32", 4}, {"s32", 4}, {"f32", 4},   {"f16x2", 4},  {"bf16x2", 4}, {"tf32", 4},
                              {"b64", 8},  {"u64", 8}, {"s64", 8}, {"f64", 8}, {"b128", 16}, {"e4m3x2", 2}, {"e5m2x2", 2}};

struct SpaceName {
  std::string_view name;
  Space space;
};
constexpr SpaceName spaces[] = {{".reg", Space::registers}, {".global", Space::global},  {".shared", Space::shared},
                                {".local", Space::local},   {".const", Space::constant}, {".param", Space::parameter}};

Space space_of(std::string_view word) {
  for (const SpaceName& space : spaces)
    if (word == space.name) return space.space;
  return Space::none;
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& name) : tokens_(read_tokens(text, name)) { syntax_.name = name; }

  Syntax read() {
    while (now().kind != TokenKind::end) module_part();
    if (syntax_.version.empty()) fail("expected a PTX module: .version is missing");
    if (syntax_.target.empty()) fail("expected a PTX module: .target is missing");
    return std::move(syntax_);
  }

 private:
  const Token& now(std::size_t ahead = 0) const { return tokens_[std::min(place_ + ahead, tokens_.size() - 1)]; }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::bad_file, "", syntax_.name, "line " + std::to_string(now().line) + ": " + what);
  }
  std::string shown() const {
    if (now().kind == TokenKind::end) return "the end of the text";
    return now().text.empty() ? "a number" : "'" + now().text + "'";
  }
  bool is(std::string_view text) const { return (now().kind == TokenKind::word || now().kind == TokenKind::mark) && now().text == text; }
  bool take(std::string_view text) {
    if (!is(text)) return false;
    ++place_;
    return true;
  }
  void expect(std::string_view text) {
    if (!take(text)) fail("expected '" + std::string(text) + "', got " + shown());
  }
  std::string word(const char* what) {
    if (now().kind != TokenKind::word) fail(std::string("expected ") + what + ", got " + shown());
    return tokens_[place_++].text;
  }
  std::uint64_t number() {
    const bool negative = take("-");
    if (now().kind != TokenKind::integer) fail("expected a whole number, got " + shown());
    const std::uint64_t value = tokens_[place_++].value;
    return negative ? 0 - value : value;
  }
  /// Sums of numbers: sizes of arrays, offsets.
  std::uint64_t sum() {
    std::uint64_t value = number();
    while (is("+") || is("-") || is("*")) {
      if (take("*")) {
        value *= number();
      } else {
        take("+");
        value += number();  // which takes a minus
      }
    }
    return value;
  }

  // ---- the module

  void module_part() {
    if (take(".version")) {
      // "8.7" is read as a number, "8" "." "7" never.
      if (now().kind != TokenKind::f64 && now().kind != TokenKind::integer) fail("expected a version, got " + shown());
      const double version = now().kind == TokenKind::f64 ? std::bit_cast<double>(now().value) : static_cast<double>(now().value);
      const long tenths = std::lround(version * 10);
      if (tenths < 60 || tenths > 99)
        fail("PTX of version " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " is not known here");
      syntax_.version = std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
      ++place_;
    } else if (take(".target")) {
      syntax_.target = word("a target");
      if (syntax_.target.rfind("sm_", 0) != 0) fail("the target " + syntax_.target + " is not known here");
      while (take(",")) word("an option of the target");
    } else if (take(".address_size")) {
      if (number() != 64) fail("addresses of 64 bits are known here, no others");
    } else if (take(".file")) {
      file();
    } else if (take(".section")) {
      while (!is("{")) skip();
      skip_braces();
    } else if (take(".pragma")) {
      while (!take(";")) skip();
    } else if (take(".alias")) {
      fail(".alias is not there");
    } else if (take(";")) {
    } else {
      declaration();
    }
  }
  void skip() {
    if (now().kind == TokenKind::end) fail("the text ends too early");
    ++place_;
  }
  void skip_braces() {
    int depth = 0;
    do {
      depth += is("{") ? 1 : is("}") ? -1 : 0;
      skip();
    } while (depth > 0);
  }
  void file() {
    const int index = static_cast<int>(number());
    if (now().kind != TokenKind::text) fail("expected a file name, got " + shown());
    syntax_.files[index] = now().text;
    ++place_;
    while (now().kind == TokenKind::text || is(",") || now().kind == TokenKind::integer) ++place_;
  }

  void declaration() {
    bool external = false;
    for (;; skip()) {
      if (is(".extern")) {
        external = true;
      } else if (!is(".visible") && !is(".weak") && !is(".common")) {
        break;
      }
    }
    if (is(".entry") || is(".func")) return function();
    const Space space = space_of(now().text);
    if (now().kind != TokenKind::word || space == Space::none) fail("expected a declaration, got " + shown());
    ++place_;
    for (Variable& v : variables(space)) {
      v.external = external;
      syntax_.variables.push_back(std::move(v));
    }
    expect(";");
  }

  /// `.align 16`, or `.ptr` with the space that it points to.
  bool alignment_or_pointer(Variable& variable) {
    if (take(".align")) {
      variable.align = number();
      return true;
    }
    if (!take(".ptr")) return false;
    variable.pointer = true;
    while (is(".global") || is(".shared") || is(".const") || is(".local") || is(".generic")) skip();
    return true;
  }

  /// What follows the space: `.align 16 .b8 name[4] = {...}, other`.
  std::vector<Variable> variables(Space space) {
    Variable common;
    common.space = space;
    common.line = now().line;
    std::uint64_t vector = 1;
    for (;;) {
      if (alignment_or_pointer(common)) continue;
      if (is(".v2") || is(".v4") || is(".v8")) {
        vector = static_cast<std::uint64_t>(now().text[2] - '0');
        skip();
      } else if (is(".attribute")) {
        while (!take(")")) skip();
      } else if (now().kind == TokenKind::word && now().text[0] == '.') {
        common.type = word("a type").substr(1);
        if (common.type != "texref" && bytes_of(common.type) == 0) fail("expected a type, got '." + common.type + "'");
      } else {
        break;
      }
    }
    if (common.type.empty()) fail("expected a type, got " + shown());
    if (vector > 1 && space == Space::registers) fail("vector registers are not there");
    std::vector<Variable> found;
    do {
      Variable v = common;
      v.elements = vector;
      v.name = word("a name");
      if (space == Space::registers && take("<")) {
        v.count = static_cast<int>(number());
        expect(">");
      }
      while (take("[")) {
        v.array = true;
        v.elements *= is("]") ? 0 : sum();
        expect("]");
      }
      if (take("=")) initialiser(v.values);
      if (v.elements == 0 && !v.values.empty()) v.elements = v.values.size();
      if (v.align == 0) v.align = std::max<std::size_t>(bytes_of(v.type) * vector, 1);
      found.push_back(std::move(v));
    } while (take(","));
    return found;
  }
  void initialiser(std::vector<Operand>& values) {
    if (!take("{")) {
      if (is("generic")) {
        skip();
        expect("(");
        values.push_back(operand());
        expect(")");
      } else {
        values.push_back(operand());
      }
      return;
    }
    if (take("}")) return;
    do initialiser(values);
    while (take(","));
    expect("}");
  }

  // ---- functions

  void function() {
    Function f;
    f.line = now().line;
    f.entry = word("a function") == ".entry";
    if (is("(")) f.results = formal_parameters();
    f.name = word("the name of a function");
    if (is("(")) f.parameters = formal_parameters();
    while (!is("{") && !is(";")) attribute(f);
    if (take(";")) {
      if (std::none_of(syntax_.functions.begin(), syntax_.functions.end(), [&](const Function& g) { return g.name == f.name; }))
        syntax_.functions.push_back(std::move(f));
      return;
    }
    f.defined = true;
    expect("{");
    f.scopes.emplace_back();
    function_ = &f;
    source_ = {};
    body(0);
    const auto declared =
        std::find_if(syntax_.functions.begin(), syntax_.functions.end(), [&](const Function& g) { return g.name == f.name; });
    if (declared == syntax_.functions.end()) {
      syntax_.functions.push_back(std::move(f));
    } else if (declared->defined) {
      fail("the function " + f.name + " is there twice");
    } else {
      *declared = std::move(f);
    }
  }
  std::vector<Variable> formal_parameters() {
    std::vector<Variable> found;
    expect("(");
    while (!take(")")) {
      const Space space = space_of(now().text);
      if (space != Space::parameter && space != Space::registers) fail("expected a parameter, got " + shown());
      ++place_;
      // One at a time: a comma is followed by the next one's space.
      Variable common;
      common.space = space;
      common.line = now().line;
      for (;;) {
        if (alignment_or_pointer(common)) continue;
        if (now().kind == TokenKind::word && now().text[0] == '.') {
          common.type = word("a type").substr(1);
          if (bytes_of(common.type) == 0) fail("expected a type, got '." + common.type + "'");
        } else {
          break;
        }
      }
      if (common.type.empty()) fail("expected a type, got " + shown());
      common.name = word("a parameter's name");
      while (take("[")) {
        common.array = true;
        common.elements *= is("]") ? 0 : sum();
        expect("]");
      }
      if (common.align == 0) common.align = bytes_of(common.type);
      found.push_back(std::move(common));
      if (!is(")")) expect(",");
    }
    return found;
  }
  Dim3 dimensions() {
    Dim3 d;
    d.x = static_cast<std::uint32_t>(number());
    if (take(",")) d.y = static_cast<std::uint32_t>(number());
    if (take(",")) d.z = static_cast<std::uint32_t>(number());
    return d;
  }
  void attribute(Function& f) {
    if (take(".reqntid")) {
      f.block = dimensions();
    } else if (take(".maxntid")) {
      f.max_threads = dimensions().count();
    } else if (take(".reqnctapercluster")) {
      f.cluster = dimensions();
    } else if (take(".pragma")) {
      while (!take(";")) skip();
    } else if (now().kind == TokenKind::word && now().text[0] == '.') {
      skip();
      while (now().kind == TokenKind::integer || is(",")) skip();
    } else {
      fail("expected a function's body, got " + shown());
    }
  }

  void body(int scope) {
    while (!take("}")) {
      if (now().kind == TokenKind::end) fail("a function does not end");
      body_part(scope);
    }
  }
  void body_part(int scope) {
    if (take("{")) {
      const int inner = static_cast<int>(function_->scopes.size());
      function_->scopes.emplace_back();
      function_->scopes.back().parent = scope;
      return body(inner);
    }
    if (take(";")) return;
    if (now().kind == TokenKind::word && now(1).kind == TokenKind::mark && now(1).text == ":") return label(scope);
    if (now().kind == TokenKind::word && now().text[0] == '.') return directive(scope);
    statement(scope);
  }
  void label(int scope) {
    const std::string name = word("a label");
    expect(":");
    Scope& s = function_->scopes[static_cast<std::size_t>(scope)];
    if (take(".branchtargets")) {
      std::vector<std::string>& targets = s.targets[name];
      do targets.push_back(word("a label"));
      while (take(","));
      expect(";");
      return;
    }
    if (is(".callprototype") || is(".calltargets")) {
      while (!take(";")) skip();
      return;
    }
    if (!s.labels.emplace(name, function_->statements.size()).second) fail("the label " + name + " is there twice");
  }
  void directive(int scope) {
    if (take(".loc")) {
      source_.file = static_cast<int>(number());
      source_.line = static_cast<int>(number());
      number();
      while (take(",")) {
        // Of a function that was inlined: the place of the call says more to who wrote the kernel.
        const bool call = word("function_name or inlined_at") == "inlined_at";
        if (now().kind == TokenKind::word) skip();
        if (take("+")) number();
        if (!call) continue;
        source_.file = static_cast<int>(number());
        source_.line = static_cast<int>(number());
        number();
      }
      return;
    }
    if (take(".pragma")) {
      while (!take(";")) skip();
      return;
    }
    if (take(".file")) return file();
    if (take(".section")) {
      while (!is("{")) skip();
      return skip_braces();
    }
    const Space space = space_of(now().text);
    if (space == Space::none) fail("the directive " + now().text + " is not there");
    ++place_;
    auto found = variables(space);
    auto& all = function_->scopes[static_cast<std::size_t>(scope)].variables;
    all.insert(all.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
    expect(";");
  }
  void statement(int scope) {
    Statement s;
    s.scope = scope;
    s.source = source_;
    s.begin = now().begin;
    if (take("@")) {
      s.guard_inverted = take("!");
      s.guard = word("a predicate");
    }
    s.line = now().line;
    s.opcode = word("an instruction");
    if (!is(";")) {
      do s.operands.push_back(operand());
      while (take(","));
    }
    s.end = now().begin + 1;
    expect(";");
    function_->statements.push_back(std::move(s));
  }

  // ---- operands

  Operand operand() {
    if (is("{") || is("(")) return list(is("{") ? "}" : ")", OperandKind::vector);
    if (is("[")) return list("]", OperandKind::address);
    const bool inverted = take("!");
    Operand o = single();
    o.inverted = inverted;
    if (take("|")) {
      Operand pair{OperandKind::pair};
      pair.parts = {std::move(o), single()};
      return pair;
    }
    return o;
  }
  Operand list(std::string_view end, OperandKind kind) {
    Operand o{kind};
    skip();
    while (!take(end)) {
      o.parts.push_back(operand());
      if (!is(end)) expect(",");
    }
    return o;
  }
  Operand single() {
    Operand o;
    const Token& t = now();
    if (t.kind == TokenKind::f32 || t.kind == TokenKind::f64) {
      o.kind = t.kind == TokenKind::f32 ? OperandKind::f32 : OperandKind::f64;
      o.value = t.value;
      ++place_;
      return o;
    }
    if (is("-") && (now(1).kind == TokenKind::f64 || now(1).kind == TokenKind::f32)) {
      ++place_;
      o = single();
      o.value ^= o.kind == OperandKind::f32 ? 0x80000000u : std::uint64_t{1} << 63;
      return o;
    }
    if (is("~")) {
      ++place_;
      o = single();
      o.value = ~o.value;
      return o;
    }
    if (t.kind == TokenKind::integer || is("-")) {
      o.kind = OperandKind::integer;
      o.value = sum();
      return o;
    }
    o.text = word("an operand");
    if (o.text == "_") return Operand{};
    o.kind = OperandKind::name;
    if (is("+") || (is("-") && now(1).kind == TokenKind::integer)) {
      take("+");
      o.value = sum();
    }
    return o;
  }

  std::vector<Token> tokens_;
  std::size_t place_ = 0;
  Syntax syntax_;
  Function* function_ = nullptr;
  SourcePlace source_;
};

}  // namespace

std::size_t bytes_of(std::string_view type) {
  for (const TypeSize& t : types)
    if (type == t.name) return t.bytes;
  return 0;
}

std::string text_of(const Operand& o) {
  switch (o.kind) {
    case OperandKind::name:
      return (o.inverted ? "!" : "") + o.text + (o.value != 0 ? "+" + std::to_string(static_cast<std::int64_t>(o.value)) : "");
    case OperandKind::integer: return std::to_string(static_cast<std::int64_t>(o.value));
    case OperandKind::f32:
    case OperandKind::f64: {
      char text[24];
      std::snprintf(text, sizeof text, o.kind == OperandKind::f32 ? "0f%08llX" : "0d%016llX", static_cast<unsigned long long>(o.value));
      return text;
    }
    case OperandKind::nothing: return "_";
    default: break;
  }
  if (o.kind == OperandKind::pair) return text_of(o.parts[0]) + "|" + text_of(o.parts[1]);
  std::string text = o.kind == OperandKind::address ? "[" : "{";
  for (std::size_t i = 0; i < o.parts.size(); ++i) text += (i == 0 ? "" : ", ") + text_of(o.parts[i]);
  return text + (o.kind == OperandKind::address ? "]" : "}");
}

std::string text_of(const Statement& s) {
  std::string text = s.opcode;
  for (std::size_t i = 0; i < s.operands.size(); ++i) text += (i == 0 ? " " : ", ") + text_of(s.operands[i]);
  return text;
}

Syntax parse(std::string_view text, const std::string& name) {
  return Parser(text, name).read();
}

}  // namespace dodona::ptx
