// Moves, comparisons with more than one result, carries, and what only names another instruction.
#include "ptx/lanes.h"
#include "ptx/memory_access.h"

namespace dodona::ptx {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

u64 read(Machine& m, Slot slot, int lane, std::size_t bytes) {
  return bytes == 8 ? m.wide(slot)[lane] : m.narrow(slot)[lane];
}
void write(Machine& m, Slot slot, int lane, std::size_t bytes, u64 value) {
  if (bytes == 8) {
    m.wide(slot)[lane] = value;
  } else {
    m.narrow(slot)[lane] = static_cast<u32>(value);
  }
}

/// {a, b} = c; width: bytes of a part, registers: of the whole.
void take_apart(Machine& m, const Instruction& i) {
  const Slot* const to = m.list(i);
  const u64 mask = i.width == 8 ? ~u64{0} : (u64{1} << 8 * i.width) - 1;
  for_lanes(m.mask, [&](int lane) {
    const u64 whole = read(m, i.slots[0], lane, i.registers);
    for (std::size_t k = 0; k < i.list_count; ++k)
      if (to[k] != no_slot) write(m, to[k], lane, i.width, whole >> 8 * i.width * k & mask);
  });
}
void put_together(Machine& m, const Instruction& i) {
  const Slot* const from = m.list(i);
  const u64 mask = (u64{1} << 8 * i.width) - 1;
  for_lanes(m.mask, [&](int lane) {
    u64 whole = 0;
    for (std::size_t k = 0; k < i.list_count; ++k) whole |= (read(m, from[k], lane, i.width) & mask) << 8 * i.width * k;
    write(m, i.slots[0], lane, i.registers, whole);
  });
}
void clock_now(Machine& m, const Instruction& i) {
  for_lanes(m.mask, [&](int lane) { write(m, i.slots[0], lane, i.width, m.time()); });
  m.yield();
}

/// Adds (what the space says) to an address, where it is not null.
template <int sign>
void move_window(Machine& m, const Instruction& i) {
  for_lanes(m.mask, [&](int lane) {
    const u64 a = m.wide(i.slots[1])[lane];
    m.wide(i.slots[0])[lane] = sign > 0 ? a + i.immediate : a - i.immediate;
  });
}
void window_of(Machine& m, const Instruction& i) {
  u32 bits = 0;
  for_lanes(m.mask, [&](int lane) {
    const u64 window = m.wide(i.slots[1])[lane] >> 32;
    const bool global = window >= 16 || window == 3;
    bits |= static_cast<u32>(i.immediate == 0 ? global : window == i.immediate) << lane;
  });
  u32& to = m.predicate(i.slots[0]);
  to = (to & ~m.mask) | bits;
}
void copy_narrow(Machine& m, const Instruction& i) {
  for_lanes(m.mask, [&](int lane) { m.narrow(i.slots[0])[lane] = m.narrow(i.slots[1])[lane]; });
}

template <u32 (*f)(u32, u32)>
void of_predicates(Machine& m, const Instruction& i) {
  const u32 r = f(m.predicate(i.slots[1]), m.predicate(i.slots[2]));
  u32& to = m.predicate(i.slots[0]);
  to = (to & ~m.mask) | (r & m.mask);
}
u32 p_and(u32 a, u32 b) {
  return a & b;
}
u32 p_or(u32 a, u32 b) {
  return a | b;
}
u32 p_xor(u32 a, u32 b) {
  return a ^ b;
}
u32 p_same(u32 a, u32) {
  return a;
}
u32 p_not(u32 a, u32) {
  return ~a;
}

/// setp.cmp{.bool}{.ftz}.type p{|q}, a, b{, {!}c}.
bool assemble_setp(Assembler& a, const Statement& s, const Opcode& op) {
  Handler combine = nullptr;
  std::string plain = "setp";
  for (std::size_t k = 1; k < op.parts.size(); ++k) {
    if (op.parts[k] == "and") {
      combine = of_predicates<p_and>;
    } else if (op.parts[k] == "or") {
      combine = of_predicates<p_or>;
    } else if (op.parts[k] == "xor") {
      combine = of_predicates<p_xor>;
    } else {
      plain += "." + std::string(op.parts[k]);
    }
  }
  if (s.operands.size() != (combine != nullptr ? 4U : 3U)) throw NotThere{"the number of operands is another"};
  const Operation* operation = find_integer(plain);
  if (operation == nullptr) operation = find_float(plain);
  if (operation == nullptr) operation = find_half(plain);
  if (operation == nullptr) throw NotThere{};
  const bool two = s.operands[0].kind == OperandKind::pair;
  const Operand& p = two ? s.operands[0].parts[0] : s.operands[0];
  const Slot first = a.source(s.operands[1], operation->bytes[1]), second = a.source(s.operands[2], operation->bytes[2]);
  const Slot third = combine != nullptr ? a.source(s.operands[3], 0) : no_slot;
  const Slot to = a.destination(p, 0);
  if (!two && combine == nullptr) {
    Instruction& i = a.emit(operation->run, {to, first, second});
    i.family = InstructionFamily::plain;
    i.sources = 2;
    return true;
  }
  const Slot compared = a.scratch(false), other = two ? a.destination(s.operands[0].parts[1], 0) : no_slot;
  a.emit(operation->run, {compared, first, second});
  if (two) {
    const Slot inverted = a.scratch(false);
    a.emit(of_predicates<p_not>, {inverted, compared, compared});
    if (combine != nullptr) a.emit(combine, {inverted, inverted, third});
    if (combine != nullptr) a.emit(combine, {compared, compared, third});
    a.emit(of_predicates<p_same>, {other, inverted, inverted});
    a.emit(of_predicates<p_same>, {to, compared, compared});
  } else {
    a.emit(combine, {to, compared, third});
  }
  return true;
}

/// set.cmp{.ftz}.dtype.stype d, a, b: all ones or 1.0 where true.
void set_numbers(Machine& m, const Instruction& i) {
  const u32 truth = m.predicate(i.slots[1]);
  for_lanes(m.mask, [&](int lane) { m.narrow(i.slots[0])[lane] = truth >> lane & 1 ? static_cast<u32>(i.immediate) : 0; });
}
bool assemble_set(Assembler& a, const Statement& s, const Opcode& op) {
  if (s.operands.size() != 3) throw NotThere{"the number of operands is another"};
  std::string plain = "setp";
  for (std::size_t k = 1; k < op.parts.size(); ++k)
    if (k + 2 != op.parts.size()) plain += "." + std::string(op.parts[k]);
  const std::string_view result = op.behind(1);
  const Operation* operation = find_integer(plain);
  if (operation == nullptr) operation = find_float(plain);
  if (operation == nullptr) operation = find_half(plain);
  if (operation == nullptr) throw NotThere{};
  const u64 truth = result == "f32"                      ? 0x3F800000u
                    : result == "u32" || result == "s32" ? 0xFFFFFFFFu
                    : result == "f16"                    ? 0x3C00u
                    : result == "bf16"                   ? 0x3F80u
                                                         : 0;
  if (truth == 0) throw NotThere{};
  const Slot first = a.source(s.operands[1], operation->bytes[1]), second = a.source(s.operands[2], operation->bytes[2]);
  const Slot to = a.destination(s.operands[0], 4), compared = a.scratch(false);
  a.emit(operation->run, {compared, first, second});
  a.emit(set_numbers, {to, compared}).immediate = truth;
  return true;
}

/// mov.b128: two moves of 64 bits.
bool assemble_mov_b128(Assembler& a, const Operand& to, const Operand& from) {
  const auto halves = [&](const Operand& o, bool written) -> std::array<Slot, 2> {
    const auto slot = [&](const Operand& one, int bytes) { return written ? a.destination(one, bytes) : a.source(one, bytes); };
    if (o.kind == OperandKind::vector) {
      if (o.parts.size() != 2) throw NotThere{"the parts do not fit"};
      return {slot(o.parts[0], 8), slot(o.parts[1], 8)};
    }
    const Slot whole = slot(o, 16);
    return {whole, whole + 2};
  };
  const std::array<Slot, 2> read = halves(from, false), written = halves(to, true);
  // Through places of its own: the parts may change places.
  const std::array<Slot, 2> held{a.scratch(true), a.scratch(true)};
  const Handler move = find_integer("mov.b64")->run;
  const auto copy = [&](Slot into, Slot of) {
    Instruction& i = a.emit(move, {into, of});
    i.family = InstructionFamily::move;
    i.first = false;
  };
  for (std::size_t k = 0; k < 2; ++k) copy(held[k], read[k]);
  for (std::size_t k = 0; k < 2; ++k) copy(written[k], held[k]);
  return true;
}

bool assemble_mov(Assembler& a, const Statement& s, const Opcode& op) {
  if (s.operands.size() != 2) throw NotThere{"the number of operands is another"};
  const Operand &to = s.operands[0], &from = s.operands[1];
  if (op.type() == "b128") return assemble_mov_b128(a, to, from);
  const auto whole = static_cast<int>(bytes_of(op.type()));
  if (from.kind == OperandKind::name && (from.text == "%clock" || from.text == "%clock64" || from.text == "%clock_hi" ||
                                         from.text == "%globaltimer" || from.text == "%globaltimer_lo")) {
    const Slot slot = a.destination(to, whole);
    a.emit(clock_now, {slot}).width = static_cast<std::uint8_t>(whole);
    return true;
  }
  if (to.kind != OperandKind::vector && from.kind != OperandKind::vector) {
    if (from.kind == OperandKind::name && whole == 8 && a.register_bytes(from) == 4) {  // a special register, widened
      const Slot narrow = a.source(from, 4), wide = a.destination(to, 8);
      a.emit([](Machine& m,
                const Instruction& i) { for_lanes(m.mask, [&](int lane) { m.wide(i.slots[0])[lane] = m.narrow(i.slots[1])[lane]; }); },
             {wide, narrow});
      return true;
    }
    return false;
  }
  const Operand& parts = to.kind == OperandKind::vector ? to : from;
  if (parts.parts.empty() || static_cast<std::size_t>(whole) % parts.parts.size() != 0 || whole > 8) throw NotThere{"the parts do not fit"};
  const int part = whole / static_cast<int>(parts.parts.size());
  std::vector<Slot> slots;
  for (const Operand& o : parts.parts) {
    if (&parts == &to) {
      slots.push_back(o.kind == OperandKind::nothing ? no_slot : a.destination(o, part == 1 ? 2 : part));
    } else {
      slots.push_back(a.source(o, part == 1 ? 2 : part));
    }
  }
  const Slot slot = &parts == &to ? a.source(from, whole) : a.destination(to, whole);
  Instruction& i = a.emit(&parts == &to ? take_apart : put_together, {slot});
  i.width = static_cast<std::uint8_t>(part);
  i.registers = static_cast<std::uint8_t>(whole);
  i.family = &parts == &to ? InstructionFamily::parts : InstructionFamily::whole;
  a.list(i, slots);
  return true;
}

/// Addresses of parameters fit into 32 bits, and a register of 32 bits may have held one: then the window is lost.
void enter_parameters(Machine& m, const Instruction& i) {
  for_lanes(m.mask, [&](int lane) {
    const u64 a = m.wide(i.slots[1])[lane];
    m.wide(i.slots[0])[lane] = a >> 32 == 0 ? a + parameter_window : a;
  });
}

bool assemble_cvta(Assembler& a, const Statement& s, const Opcode& op) {
  if (s.operands.size() != 2 || bytes_of(op.type()) != 8) throw NotThere{};
  const Slot from = a.source(s.operands[1], 8), to = a.destination(s.operands[0], 8);
  if (space_of(op) == Space::parameter && !op.has("to")) {
    a.emit(enter_parameters, {to, from});
    return true;
  }
  const u64 window = space_of(op) == Space::shared ? shared_window : 0;  // elsewhere addresses are generic ones already
  a.emit(op.has("to") ? move_window<-1> : move_window<1>, {to, from}).immediate = window;
  return true;
}

// ---- carries: one for each lane, in a register of its own

template <bool subtracts, bool takes, bool leaves>
void with_carry(Machine& m, const Instruction& i) {
  u32& carry = m.predicate(i.slots[5]);
  u32 out = 0;
  for_lanes(m.mask, [&](int lane) {
    const u64 a = read(m, i.slots[1], lane, i.width), b = read(m, i.slots[2], lane, i.width), c = takes ? carry >> lane & 1 : 0;
    const u64 mask = i.width == 8 ? ~u64{0} : 0xFFFFFFFFu;
    const u64 r = (subtracts ? a - b - c : a + b + c) & mask;
    const bool over = subtracts ? (c != 0 ? a <= b : a < b) : (c != 0 ? r <= a : r < a);
    out |= static_cast<u32>(over) << lane;
    write(m, i.slots[0], lane, i.width, r);
  });
  if (leaves) carry = (carry & ~m.mask) | out;
}
bool assemble_carry(Assembler& a, const Statement& s, const Opcode& op) {
  const bool takes = op.name() == "addc" || op.name() == "subc", leaves = op.has("cc"), subtracts = op.name()[0] == 's';
  if (!takes && !leaves) return false;
  const auto bytes = static_cast<int>(bytes_of(op.type()));
  if (s.operands.size() != 3 || bytes < 4) throw NotThere{};
  constexpr Handler handlers[2][2][2] = {
      {{with_carry<false, false, false>, with_carry<false, false, true>}, {with_carry<false, true, false>, with_carry<false, true, true>}},
      {{with_carry<true, false, false>, with_carry<true, false, true>}, {with_carry<true, true, false>, with_carry<true, true, true>}}};
  const Slot first = a.source(s.operands[1], bytes), second = a.source(s.operands[2], bytes), to = a.destination(s.operands[0], bytes);
  a.emit(handlers[subtracts][takes][leaves], {to, first, second, 0, 0, a.carry()}).width = static_cast<std::uint8_t>(bytes);
  return true;
}
/// The product into a register of its own, then the sum with its carry.
bool assemble_mad_carry(Assembler& a, const Statement& s, const Opcode& op) {
  const bool takes = op.name() == "madc", leaves = op.has("cc");
  if (!takes && !leaves) return false;
  const auto bytes = static_cast<int>(bytes_of(op.type()));
  const Operation* const product = find_integer((op.has("hi") ? "mul.hi." : "mul.lo.") + std::string(op.type()));
  if (s.operands.size() != 4 || product == nullptr || bytes < 4) throw NotThere{};
  const Slot x = a.source(s.operands[1], bytes), y = a.source(s.operands[2], bytes), z = a.source(s.operands[3], bytes);
  const Slot to = a.destination(s.operands[0], bytes), between = a.scratch(bytes == 8);
  a.emit(product->run, {between, x, y});
  const Handler sum = takes ? (leaves ? with_carry<false, true, true> : with_carry<false, true, false>) : with_carry<false, false, true>;
  a.emit(sum, {to, between, z, 0, 0, a.carry()}).width = static_cast<std::uint8_t>(bytes);
  return true;
}

}  // namespace

bool assemble_movement(Assembler& a, const Statement& s, const Opcode& op) {
  const std::string_view name = op.name();
  if (name == "mov") return assemble_mov(a, s, op);
  if (name == "cvta") return assemble_cvta(a, s, op);
  if (name == "setp") return assemble_setp(a, s, op);
  if (name == "set") return assemble_set(a, s, op);
  if (name == "addc" || name == "subc" || name == "add" || name == "sub") return assemble_carry(a, s, op);
  if (name == "mad" || name == "madc") return assemble_mad_carry(a, s, op);
  if (name == "isspacep") {
    const Space space = space_of(op);
    const Slot from = a.source(s.operands.at(1), 8), to = a.destination(s.operands.at(0), 0);
    a.emit(window_of, {to, from}).immediate = space == Space::shared      ? 1
                                              : space == Space::local     ? 2
                                              : space == Space::constant  ? 3
                                              : space == Space::parameter ? 4
                                                                          : 0;
    return true;
  }
  if (name == "mapa") {  // in a cluster of one block an address is that of the block
    const bool wide = bytes_of(op.type()) == 8;
    const Slot from = a.source(s.operands.at(1), wide ? 8 : 4), to = a.destination(s.operands.at(0), wide ? 8 : 4);
    a.emit(wide ? move_window<1> : copy_narrow, {to, from});
    return true;
  }
  if (name == "getctarank") {
    const Slot to = a.destination(s.operands.at(0), 4), zero = a.constant(0, false);
    a.emit(copy_narrow, {to, zero});
    return true;
  }
  if (name == "div" && op.whole == "div.full.f32" && s.operands.size() == 3 && a.is_constant(s.operands[2])) {
    const Operation& operation = *find_float("div.constant.f32");
    const Slot x = a.source(s.operands[1], 4), y = a.source(s.operands[2], 4), to = a.destination(s.operands[0], 4);
    Instruction& i = a.emit(operation.run, {to, x, y});
    i.family = InstructionFamily::plain;
    i.sources = 2;
    return true;
  }
  return false;
}

}  // namespace dodona::ptx
