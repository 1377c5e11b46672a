// A PTX module as it is written: variables and functions, statements and operands, nothing looked up yet.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dodona/ptx.h"

namespace dodona::ptx {

enum class OperandKind {
  name,     ///< a register, a variable, a label, a function: `text`, + `value`
  integer,  ///< `value`
  f32,      ///< bits in `value`
  f64,
  vector,   ///< `parts`: {a, b} or (a, b)
  address,  ///< [a + value]: parts[0], and what else stands in the brackets
  pair,     ///< p|q
  nothing,  ///< _
};

struct Operand {
  OperandKind kind = OperandKind::nothing;
  std::string text = {};
  std::uint64_t value = 0;
  std::vector<Operand> parts = {};
  bool inverted = false;  ///< !p
};

struct SourcePlace {
  int file = 0, line = 0;
};

struct Statement {
  std::string guard = {};  ///< the predicate, empty: none
  bool guard_inverted = false;
  std::string opcode = {};
  std::vector<Operand> operands = {};
  int line = 0;
  int scope = 0;
  SourcePlace source = {};
  std::size_t begin = 0, end = 0;  ///< in the text, with the guard and the semicolon
};

enum class Space { none, registers, global, shared, local, constant, parameter };

/// A variable, or a register (`count` of them: NAME0, NAME1...).
struct Variable {
  Space space = Space::none;
  std::string name = {}, type = {};
  std::uint64_t elements = 1;  ///< of arrays; vectors multiply it
  std::size_t align = 0;
  bool array = false, external = false, pointer = false;
  int count = 0;  ///< of `%r<count>`; 0: one register of this very name
  int line = 0;
  std::vector<Operand> values = {};  ///< of an initialiser, flattened
};

struct Scope {
  int parent = -1;
  std::vector<Variable> variables = {};
  std::map<std::string, std::size_t, std::less<>> labels = {};                ///< index of the statement that follows
  std::map<std::string, std::vector<std::string>, std::less<>> targets = {};  ///< `.branchtargets`
};

struct Function {
  std::string name = {};
  bool entry = false, defined = false;
  std::vector<Variable> results = {}, parameters = {};
  std::vector<Scope> scopes = {};  ///< the first is the body's
  std::vector<Statement> statements = {};
  std::optional<Dim3> block = {};
  std::uint64_t max_threads = 0;
  Dim3 cluster = {1, 1, 1};
  int line = 0;
};

struct Syntax {
  std::string name, version, target;
  std::vector<Variable> variables;
  std::vector<Function> functions;
  std::map<int, std::string> files;
};

std::string text_of(const Operand& o);
/// `add.f32 %f1, %f2, 0f3F800000`: as PTX has it, without its guard.
std::string text_of(const Statement& s);

/// Bytes of a fundamental type ("f32", "b8"...; "pred" is 1), 0 for what is none.
std::size_t bytes_of(std::string_view type);

/// Throws bad_file: `kernel.ptx: line 12: expected...`.
Syntax parse(std::string_view text, const std::string& name);

}  // namespace dodona::ptx
