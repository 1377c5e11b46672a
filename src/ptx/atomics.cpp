// Atomics: lanes in ascending order, warps and blocks in the order in which they run.
#include "ptx/atomics.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ptx/lanes.h"
#include "ptx/memory_access.h"
#include "ptx/rounding.h"
#include "quant/half.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ptx {
namespace {

using u64 = std::uint64_t;
using u32 = std::uint32_t;
using u16 = std::uint16_t;

template <class T>
u64 code(T x) {
  if constexpr (sizeof(T) == 8) return std::bit_cast<u64>(x);
  if constexpr (sizeof(T) == 4) return std::bit_cast<u32>(x);
}
template <class T>
T of_code(u64 x) {
  if constexpr (sizeof(T) == 8) {
    return std::bit_cast<T>(x);
  } else {
    return std::bit_cast<T>(static_cast<u32>(x));
  }
}
template <class T>
u64 add(u64 old, u64 b, u64) {
  return code(static_cast<T>(of_code<T>(old) + of_code<T>(b)));
}
u64 add_f32(u64 old, u64 b, u64) {
  return code(canonical(of_code<float>(old) + of_code<float>(b)));
}
u64 add_f32_flushed(u64 old, u64 b, u64) {
  return code(quant::hopper::add(of_code<float>(old), of_code<float>(b)));
}
template <class T>
u64 smaller(u64 old, u64 b, u64) {
  return code(std::min(of_code<T>(old), of_code<T>(b)));
}
template <class T>
u64 larger(u64 old, u64 b, u64) {
  return code(std::max(of_code<T>(old), of_code<T>(b)));
}
u64 bit_and(u64 old, u64 b, u64) {
  return old & b;
}
u64 bit_or(u64 old, u64 b, u64) {
  return old | b;
}
u64 bit_xor(u64 old, u64 b, u64) {
  return old ^ b;
}
u64 exchange(u64, u64 b, u64) {
  return b;
}
u64 compare_and_swap(u64 old, u64 b, u64 c) {
  return old == b ? c : old;
}
u64 increment(u64 old, u64 b, u64) {
  return old >= b ? 0 : old + 1;
}
u64 decrement(u64 old, u64 b, u64) {
  return old == 0 || old > b ? b : old - 1;
}
u16 add_f16(u16 a, u16 b) {
  return quant::f64_to_f16(static_cast<double>(quant::f16_to_f32(a)) + quant::f16_to_f32(b));
}
u16 add_bf16(u16 a, u16 b) {
  return quant::f64_to_bf16(to_odd(two_sum(quant::bf16_to_f32(a), quant::bf16_to_f32(b))));
}
/// A NaN gives way; of zeros the negative one is smaller.
template <float (*widened)(u16), bool larger>
u16 extreme_half(u16 a, u16 b) {
  const float x = widened(a), y = widened(b);
  if (std::isnan(x)) return b;
  if (std::isnan(y)) return a;
  const bool below = x < y || (x == y && std::signbit(x));
  return below == larger ? b : a;
}
template <u16 (*f)(u16, u16)>
u64 single(u64 old, u64 b, u64) {
  return f(static_cast<u16>(old), static_cast<u16>(b));
}
template <u16 (*f)(u16, u16)>
u64 pair(u64 old, u64 b, u64) {
  return static_cast<u64>(f(static_cast<u16>(old >> 16), static_cast<u16>(b >> 16))) << 16 | f(static_cast<u16>(old), static_cast<u16>(b));
}

struct Atomic {
  std::string_view name, type;
  Change change;
};
constexpr Atomic table[] = {
    {"add", "u32", add<u32>},
    {"add", "s32", add<u32>},
    {"add", "u64", add<u64>},
    {"add", "s64", add<u64>},
    {"add", "f32", add_f32},
    {"add", "f64", add<double>},
    {"add", "f16", single<add_f16>},
    {"add", "bf16", single<add_bf16>},
    {"add", "f16x2", pair<add_f16>},
    {"add", "bf16x2", pair<add_bf16>},
    {"min", "f16", single<extreme_half<quant::f16_to_f32, false>>},
    {"max", "f16", single<extreme_half<quant::f16_to_f32, true>>},
    {"min", "bf16", single<extreme_half<quant::bf16_to_f32, false>>},
    {"max", "bf16", single<extreme_half<quant::bf16_to_f32, true>>},
    {"min", "f16x2", pair<extreme_half<quant::f16_to_f32, false>>},
    {"max", "f16x2", pair<extreme_half<quant::f16_to_f32, true>>},
    {"min", "bf16x2", pair<extreme_half<quant::bf16_to_f32, false>>},
    {"max", "bf16x2", pair<extreme_half<quant::bf16_to_f32, true>>},
    {"min", "u32", smaller<u32>},
    {"min", "s32", smaller<std::int32_t>},
    {"min", "u64", smaller<u64>},
    {"min", "s64", smaller<std::int64_t>},
    {"max", "u32", larger<u32>},
    {"max", "s32", larger<std::int32_t>},
    {"max", "u64", larger<u64>},
    {"max", "s64", larger<std::int64_t>},
    {"and", "b32", bit_and},
    {"and", "b64", bit_and},
    {"or", "b32", bit_or},
    {"or", "b64", bit_or},
    {"xor", "b32", bit_xor},
    {"xor", "b64", bit_xor},
    {"exch", "b32", exchange},
    {"exch", "b64", exchange},
    {"cas", "b16", compare_and_swap},
    {"cas", "b32", compare_and_swap},
    {"cas", "b64", compare_and_swap},
    {"inc", "u32", increment},
    {"dec", "u32", decrement},
};

template <Space space>
void atomic(Machine& m, const Instruction& i) {
  const Slot* const slots = m.list(i);  // results, operands, second operands; `registers` of each
  const std::size_t count = i.registers, width = i.width;
  const auto change = reinterpret_cast<Change>(i.flags);
  const auto get = [&](Slot slot, int lane) -> u64 { return width == 8 ? m.wide(slot)[lane] : m.narrow(slot)[lane]; };
  for_lanes(m.mask, [&](int lane) {
    const u64 address = m.wide(i.slots[0])[lane] + i.immediate;
    m.acquire(address);
    std::byte* const at = m.quick(space, address, width * count, AccessKind::atomic, lane, i);
    for (std::size_t k = 0; k < count; ++k) {
      const u64 old = at == nullptr ? 0 : load_bytes(at + k * width, width);
      const u64 stored = change(old, get(slots[count + k], lane), i.target != 0 ? get(slots[2 * count + k], lane) : 0);
      if (at != nullptr) std::memcpy(at + k * width, &stored, width);
      if (slots[k] == no_slot) continue;
      if (width == 8) {
        m.wide(slots[k])[lane] = old;
      } else {
        m.narrow(slots[k])[lane] = static_cast<u32>(old);
      }
    }
    m.release(address);
  });
}

/// Exchange, or compare and swap, of 128 bits: halves that go together.
void atomic_b128(Machine& m, const Instruction& i) {
  const Slot* const slots = m.list(i);  // the result, the operand, the second one
  for_lanes(m.mask, [&](int lane) {
    const u64 address = m.wide(i.slots[0])[lane] + i.immediate;
    m.acquire(address);
    std::byte* const at = m.quick(static_cast<Space>(i.sources), address, 16, AccessKind::atomic, lane, i);
    const auto halves = [&](Slot slot) { return std::array<u64, 2>{m.wide(slot)[lane], m.wide(slot + 2)[lane]}; };
    std::array<u64, 2> old{}, stored = halves(slots[1]);
    if (at != nullptr) std::memcpy(old.data(), at, sizeof old);
    if (i.list_count == 3) stored = old == stored ? halves(slots[2]) : old;
    if (at != nullptr) std::memcpy(at, stored.data(), sizeof stored);
    m.wide(slots[0])[lane] = old[0];
    m.wide(slots[0] + 2)[lane] = old[1];
    m.release(address);
  });
}
bool assemble_b128(Assembler& a, const Statement& s, const Opcode& op) {
  const std::size_t operands = op.has("cas") ? 4 : op.has("exch") ? 3 : 0;
  if (operands == 0 || s.operands.size() < operands) throw NotThere{};
  std::uint64_t offset = 0;
  const Slot base = a.address(s.operands[1], offset);
  std::vector<Slot> slots{a.destination(s.operands[0], 16)};
  for (std::size_t k = 2; k < operands; ++k) slots.push_back(a.source(s.operands[k], 16));
  const Space space = space_of(op);
  if (space != Space::shared) a.uses_memory_of_others();
  Instruction& i = a.emit(atomic_b128, {base});
  i.immediate = offset;
  i.sources = static_cast<std::uint8_t>(space);
  a.list(i, slots);
  return true;
}

}  // namespace

Change find_change(std::string_view name, std::string_view type) {
  for (const Atomic& atom : table)
    if (atom.name == name && atom.type == type) return atom.change;
  return nullptr;
}
Change find_bulk_change(std::string_view name, std::string_view type, std::size_t bytes) {
  const bool of_bits = name == "and" || name == "or" || name == "xor";
  if (of_bits) type = bytes == 8 ? "b64" : bytes == 4 && type.front() != 'f' ? "b32" : "none";
  return find_change(name, type);
}

bool assemble_atomics(Assembler& a, const Statement& s, const Opcode& op) {
  if (op.type() == "b128") return assemble_b128(a, s, op);
  const bool returns = op.name() == "atom";
  const Space space = space_of(op);
  // The type comes last, or, of vectors, before the operation.
  const Atomic* found = nullptr;
  for (const Atomic& atom : table)
    if (op.has(atom.name) && op.has(atom.type)) found = &atom;
  const std::string_view type = found == nullptr ? std::string_view() : found->type;
  if (found == nullptr) throw NotThere{};
  const std::size_t first = returns ? 1 : 0;
  const bool second = found->name == "cas";
  if (s.operands.size() < first + (second ? 3 : 2)) throw NotThere{"the number of operands is another"};
  std::uint64_t offset = 0;
  const Slot base = a.address(s.operands[first], offset);
  const int bytes = static_cast<int>(bytes_of(type)), row = bytes == 8 ? 8 : bytes == 2 ? 2 : 4;
  const auto parts = [](const Operand& o) { return o.kind == OperandKind::vector ? o.parts : std::vector<Operand>{o}; };
  const std::vector<Operand> given = parts(s.operands[first + 1]);
  std::vector<Slot> slots;
  for (std::size_t k = 0; k < given.size(); ++k) {
    if (!returns) {
      slots.push_back(no_slot);
      continue;
    }
    const std::vector<Operand> results = parts(s.operands[0]);
    if (results.size() != given.size()) throw NotThere{"the number of registers is another"};
    slots.push_back(a.destination(results[k], row));
  }
  for (const Operand& o : given) slots.push_back(a.source(o, row));
  if (second)
    for (const Operand& o : parts(s.operands[first + 2])) slots.push_back(a.source(o, row));
  Change change = found->change;
  if (found->change == add_f32 && space != Space::shared) change = add_f32_flushed;
  if (space != Space::shared) a.uses_memory_of_others();
  Instruction& i = a.emit(space == Space::shared   ? atomic<Space::shared>
                          : space == Space::global ? atomic<Space::global>
                                                   : atomic<Space::none>,
                          {base});
  i.immediate = offset;
  i.width = static_cast<std::uint8_t>(bytes);
  i.registers = static_cast<std::uint8_t>(given.size());
  i.target = second ? 1 : 0;
  i.family = InstructionFamily::atomic;
  i.sources = static_cast<std::uint8_t>(space);
  i.flags = reinterpret_cast<std::uint64_t>(change);
  a.list(i, slots);
  if (op.has("async")) assemble_completion(a, s.operands.at(first + 2), static_cast<std::size_t>(bytes) * given.size());
  return true;
}

}  // namespace dodona::ptx
