// A module as it runs: every function's statements in one table of instructions, every operand the place of a register.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dodona/ptx.h"
#include "ptx/syntax.h"

namespace dodona::ptx {

class Machine;
struct Instruction;
using Handler = void (*)(Machine&, const Instruction&);

/// A register's place in a warp's file, in rows of 32 numbers of 32 bits: 64-bit registers have two, predicates one word of one.
using Slot = std::uint32_t;
inline constexpr std::size_t row_bytes = 128;
inline constexpr Slot no_slot = 0xFFFFFFFFu;

inline constexpr int warp_lanes = 32;
inline constexpr std::uint32_t all_lanes = 0xFFFFFFFFu;

/// Where spaces lie among generic addresses; the memory of arguments begins at device_address(0), above all of them.
inline constexpr std::uint64_t shared_window = std::uint64_t{1} << 32, local_window = std::uint64_t{2} << 32,
                               module_window = std::uint64_t{3} << 32, parameter_window = std::uint64_t{4} << 32;

/// What stands between the lanes of a warp and an instruction.
enum class Meeting : std::uint8_t {
  none,
  warp,   ///< `.sync`: the lanes that are named (a mask in slots[mask_slot]) come together
  whole,  ///< `.aligned`: all lanes that have not left
};

/// What checks and traces must know of an instruction beside its slots.
enum class InstructionFamily : std::uint8_t {
  other,
  plain,  ///< slots[0] of slots[1] and on
  move,   ///< slots[0] is slots[1]
  load,
  store,
  copy,      ///< cp.async
  shuffle,   ///< of slots[1] between lanes
  parts,     ///< a list of slots[0]
  whole,     ///< slots[0] of a list
  matrices,  ///< ldmatrix
  product,   ///< mma.sync
  warpgroup,
  atomic,  ///< a list of results, operands, second operands at the address of slots[0]
  bulk,    ///< copies.h
  branch,  ///< its list holds instructions
};

struct Instruction {
  Handler run = nullptr;
  InstructionFamily family = InstructionFamily::other;
  std::array<Slot, 6> slots{};  ///< destination first
  Slot guard = no_slot;
  bool guard_inverted = false;
  Meeting meeting = Meeting::none;
  bool first = true;                       ///< of its statement: what is counted
  std::uint8_t sources = 0;                ///< of plain instructions
  std::uint8_t width = 0;                  ///< bytes of an element in memory, or what the family says
  std::uint8_t registers = 0;              ///< bytes of a destination register
  std::uint32_t list = 0, list_count = 0;  ///< further slots, in Program::lists
  std::uint64_t immediate = 0, flags = 0;
  std::uint32_t target = 0;
  int line = 0;
  std::int32_t statement = -1;  ///< in Program::texts
};

/// What a warp's file begins with: the same number in all lanes, or what the lane's place gives.
struct Constant {
  Slot slot;
  std::uint64_t value;
  bool wide;
};
struct SpecialRegister {
  Slot slot;
  std::string name;
};

struct CompiledKernel {
  Kernel shown;
  std::uint32_t entry = 0;
  std::size_t parameter_bytes = 0;
  std::size_t static_shared = 0, local_bytes = 0;
  bool in_order = false;  ///< blocks may see each other's writes
  bool clusters = false;  ///< of more than one block
};

struct StatementText {
  std::string text;
  std::string source;  ///< "kernel.py:41" or empty
};

struct Code {
  std::vector<Instruction> instructions;
  std::vector<Slot> lists;
  std::vector<Constant> constants;
  std::vector<SpecialRegister> specials;
  std::size_t rows = 1;  ///< the first belongs to nobody: slots that are not used name it
};

struct Program {
  std::string name, version, target;
  Code code;
  std::shared_ptr<const Syntax> syntax;  ///< as it was read, for other readings of its open sums; nullptr: there are none
  std::string source;                    ///< its text, likewise
  std::vector<StatementText> texts;
  std::vector<CompiledKernel> kernels;
  std::vector<Kernel> shown;
  std::vector<std::byte> variables;  ///< of .global and .const, as they begin
};

/// With the customary reading of open sums. Throws bad_file.
Program compile(Syntax syntax, std::string_view text);
/// With the sums at these places fused, and no others.
Program compile_fused(Syntax syntax, const std::vector<std::size_t>& places);
/// The program as a launch reads it.
std::shared_ptr<const Program> reading_of(const std::shared_ptr<const Program>& program, const Launch& launch);

}  // namespace dodona::ptx
