// What turns statements into instructions: names looked up, constants given registers.
#pragma once

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptx/program.h"

namespace dodona::ptx {

/// An opcode and its modifiers.
struct Opcode {
  std::string_view whole;
  std::vector<std::string_view> parts;

  explicit Opcode(std::string_view text);
  std::string_view name() const { return parts.front(); }
  std::string_view type() const { return parts.back(); }
  bool has(std::string_view part) const;
  /// The nth from behind.
  std::string_view behind(std::size_t n) const { return n < parts.size() ? parts[parts.size() - 1 - n] : std::string_view(); }
};

/// Why a statement cannot be compiled: the message for its line.
struct NotThere {
  std::string what;
};

struct Place64 {
  Slot base = no_slot;  ///< no_slot: none
  std::uint64_t offset = 0;
};

class Assembler {
 public:
  Assembler(const Syntax& syntax, Program& program, Code& code) : syntax_(syntax), program_(program), code_(code) {}

  void assemble();

  // ---- for the families

  /// A place that holds the operand's number. `bytes`: 0 a predicate, up to 4 a narrow row, 8 a wide one.
  Slot source(const Operand& o, int bytes);
  Slot destination(const Operand& o, int bytes);
  /// Bytes of the register as it is declared, 0 for predicates; -1 for what is no register.
  int register_bytes(const Operand& o);
  Slot constant(std::uint64_t value, bool wide);
  Slot scratch(bool wide);
  /// The carries of the lanes.
  Slot carry();
  /// The base register and the offset of `[a + 8]`, as a wide place; what else stands in the brackets is left to the caller.
  Slot address(const Operand& o, std::uint64_t& offset);
  Instruction& emit(Handler run);
  Instruction& emit(Handler run, std::initializer_list<Slot> slots);
  void list(Instruction& i, const std::vector<Slot>& slots);
  const Statement& statement() const { return *statement_; }
  const std::vector<std::string>* targets(std::string_view name) const;
  void patch(std::size_t instruction, std::string_view label);
  Instruction& at(std::size_t instruction) { return code_.instructions[instruction]; }
  std::size_t next() const { return code_.instructions.size(); }
  void uses_memory_of_others() { in_order_ = true; }
  bool in_entry() const { return function_->entry; }
  Slot return_slot() const { return return_slot_; }
  void call(const Statement& s);
  /// Whether a register holds one constant for good.
  bool is_constant(const Operand& o) const;

 private:
  struct Register {
    Slot slot;
    int bytes;
  };
  struct Home {
    std::size_t offset = 0;
    std::uint32_t entry = 0;
    std::vector<std::size_t> parameters, results;
    std::vector<std::size_t> parameter_bytes, result_bytes;
    Slot return_slot = no_slot;
    bool in_order = false;
  };

  void lay_out_variables();
  void assemble_function(const Function& f, CompiledKernel* kernel);
  void order_functions(const Function& f, std::vector<const Function*>& order, std::set<std::string>& open);
  void assemble_statement(const Statement& s);
  const Register* find_register(std::string_view name);
  /// The value of a variable's name: its address. False for unknown names.
  bool symbol(std::string_view name, std::uint64_t& value) const;
  std::uint64_t lay_out_local(const Variable& v);
  std::uint64_t lay_out_shared(const Variable& v);
  Slot rows(std::size_t count);
  std::vector<std::byte> initial(const Variable& v) const;
  [[noreturn]] void fail(int line, const std::string& what) const;
  void count_definitions(const Function& f);
  void keep_text(const Statement& s);

  const Syntax& syntax_;
  Program& program_;
  Code& code_;

  std::map<std::string, std::uint64_t, std::less<>> globals_;  ///< addresses of the module's variables
  std::size_t static_shared_ = 0, local_bytes_ = 0, dynamic_align_ = 16;
  std::vector<std::string> dynamic_;  ///< names of external shared arrays
  std::map<const Variable*, std::uint64_t> shared_of_functions_;
  std::map<std::string, Home, std::less<>> homes_;

  // Of the function at hand.
  const Function* function_ = nullptr;
  const Statement* statement_ = nullptr;
  std::vector<std::unordered_map<std::string, Register>> registers_;       ///< by scope
  std::vector<std::map<std::string, std::uint64_t, std::less<>>> locals_;  ///< by scope: addresses
  std::map<std::string, std::uint64_t, std::less<>> formals_;
  std::map<std::string, int, std::less<>> definitions_;
  std::set<std::string, std::less<>> constants_;
  std::map<std::pair<std::uint64_t, bool>, Slot> constant_slots_;
  std::map<std::string, Slot, std::less<>> special_slots_;
  struct Patch {
    std::size_t instruction;
    std::size_t statement;  ///< where the label stands
    std::size_t list = SIZE_MAX;
  };
  std::vector<Patch> patches_;
  Slot return_slot_ = no_slot, carry_slot_ = no_slot;
  bool in_order_ = false;
  std::int32_t text_ = -1;
};

/// Compiles a statement into the assembler; false: the family does not know it. Throws NotThere.
using Family = bool (*)(Assembler&, const Statement&, const Opcode&);
struct FamilyName {
  std::string_view opcode;  ///< first part
  Family family;
};

bool assemble_control(Assembler& a, const Statement& s, const Opcode& op);
bool assemble_memory(Assembler& a, const Statement& s, const Opcode& op);
bool assemble_atomics(Assembler& a, const Statement& s, const Opcode& op);
bool assemble_conversion(Assembler& a, const Statement& s, const Opcode& op);
bool assemble_movement(Assembler& a, const Statement& s, const Opcode& op);
bool assemble_warp(Assembler& a, const Statement& s, const Opcode& op);
bool assemble_matrix(Assembler& a, const Statement& s, const Opcode& op);
bool assemble_warpgroup(Assembler& a, const Statement& s, const Opcode& op);
bool assemble_copies(Assembler& a, const Statement& s, const Opcode& op);
bool assemble_mbarrier(Assembler& a, const Statement& s, const Opcode& op);

}  // namespace dodona::ptx
