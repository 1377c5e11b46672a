#include "ptx/mbarrier.h"

#include "ptx/lanes.h"
#include "ptx/memory_access.h"

namespace dodona::ptx {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

constexpr u64 count_mask = (u64{1} << 20) - 1;
constexpr int count_bits = 20;

/// Of a phase: `expected` arrivals, `pending` of them left, bytes expected less bytes that came.
struct State {
  u64 expected, pending;
  std::int64_t bytes;
  u64 phase;
};
State unpack(u64 word) {
  const auto bytes = static_cast<std::int64_t>(word << 1) >> 41;
  return {word & count_mask, word >> count_bits & count_mask, bytes, word >> 63};
}
u64 pack(const State& s) {
  return s.expected | s.pending << count_bits | (static_cast<u64>(s.bytes) & ((u64{1} << 23) - 1)) << 40 | s.phase << 63;
}

/// Changes the barrier at a shared address; opens it when all have arrived.
template <class Change>
u64 change(Machine& m, u64 address, int lane, const Instruction& i, const Change& body) {
  std::byte* const at = m.quick(Space::shared, address, 8, AccessKind::atomic, lane, i);
  if (at == nullptr) return 0;
  const u64 before = load_bytes(at, 8);
  State s = unpack(before);
  body(s);
  if (s.pending == 0 && s.bytes == 0) {
    s.phase ^= 1;
    s.pending = s.expected;
  }
  const u64 after = pack(s);
  std::memcpy(at, &after, 8);
  return before;
}

void initialise(Machine& m, const Instruction& i) {
  for_lanes(m.mask, [&](int lane) {
    std::byte* const at = m.quick(Space::shared, m.wide(i.slots[0])[lane] + i.immediate, 8, AccessKind::store, lane, i);
    const u64 count = m.narrow(i.slots[1])[lane];
    const u64 word = pack({count, count, 0, 0});
    if (at != nullptr) std::memcpy(at, &word, 8);
  });
}
void invalidate(Machine&, const Instruction&) {}

enum : u64 { arrives = 1, expects = 2, drops = 4 };
void arrive_at(Machine& m, const Instruction& i) {
  for_lanes(m.mask, [&](int lane) {
    const u64 address = m.wide(i.slots[0])[lane] + i.immediate;
    const u32 number = i.slots[1] == no_slot ? 1 : m.narrow(i.slots[1])[lane];
    m.release(address & 0xFFFFFFFFu);
    const u64 before = change(m, address, lane, i, [&](State& s) {
      if ((i.flags & expects) != 0) s.bytes += number;
      if ((i.flags & arrives) != 0) {
        const u64 count = (i.flags & expects) != 0 ? 1 : number;
        if (count > s.pending) m.fail("more arrivals than the barrier expects (" + std::to_string(s.expected) + ")", i);
        s.pending -= count;
        if ((i.flags & drops) != 0) s.expected -= count;
      }
    });
    if (i.slots[2] != no_slot) m.wide(i.slots[2])[lane] = before;
  });
}

/// Of a state (its phase is over?) or of a parity.
void test(Machine& m, const Instruction& i) {
  u32 truths = 0;
  for_lanes(m.mask, [&](int lane) {
    const u64 address = m.wide(i.slots[0])[lane] + i.immediate;
    const std::byte* const at = m.quick(Space::shared, address, 8, AccessKind::strong_load, lane, i);
    const u64 phase = at == nullptr ? 0 : load_bytes(at, 8) >> 63;
    const u64 asked = i.flags != 0 ? m.narrow(i.slots[1])[lane] & 1 : m.wide(i.slots[1])[lane] >> 63;
    const bool over = phase != asked || at == nullptr;
    truths |= static_cast<u32>(over) << lane;
    if (over) m.acquire(address & 0xFFFFFFFFu);
  });
  u32& to = m.predicate(i.slots[2]);
  to = (to & ~m.mask) | truths;
  if (truths != m.mask) m.yield();
  m.meet();
}
void pending_count(Machine& m, const Instruction& i) {
  for_lanes(m.mask, [&](int lane) { m.narrow(i.slots[0])[lane] = static_cast<u32>(unpack(m.wide(i.slots[1])[lane]).pending); });
}

}  // namespace

void complete_bytes(Machine& m, std::uint64_t address, std::uint32_t bytes, int lane, const Instruction& i) {
  m.release(address & 0xFFFFFFFFu);
  change(m, address, lane, i, [&](State& s) { s.bytes -= bytes; });
}
void arrive(Machine& m, std::uint64_t address, std::uint32_t count, int lane, const Instruction& i) {
  m.release(address & 0xFFFFFFFFu);
  change(m, address, lane, i, [&](State& s) { s.pending -= std::min<u64>(count, s.pending); });
}

bool assemble_mbarrier(Assembler& a, const Statement& s, const Opcode& op) {
  const auto operand = [&](std::size_t k) -> const Operand& {
    if (k >= s.operands.size()) throw NotThere{"the number of operands is another"};
    return s.operands[k];
  };
  std::uint64_t offset = 0;
  if (op.has("init")) {
    const Slot at = a.address(operand(0), offset), count = a.source(operand(1), 4);
    a.emit(initialise, {at, count}).immediate = offset;
    return true;
  }
  if (op.has("inval")) {
    a.emit(invalidate);
    return true;
  }
  if (op.has("pending_count")) {
    const Slot from = a.source(operand(1), 8), to = a.destination(operand(0), 4);
    a.emit(pending_count, {to, from});
    return true;
  }
  if (op.has("test_wait") || op.has("try_wait")) {
    const bool parity = op.has("parity");
    const Slot at = a.address(operand(1), offset), asked = a.source(operand(2), parity ? 4 : 8), to = a.destination(operand(0), 0);
    Instruction& i = a.emit(test, {at, asked, to});
    i.immediate = offset;
    i.flags = parity ? 1 : 0;
    return true;
  }
  const bool arrival = op.has("arrive") || op.has("arrive_drop");
  if (!arrival && !op.has("expect_tx") && !op.has("complete_tx")) return false;
  if (op.has("complete_tx")) throw NotThere{};
  const bool returns = operand(0).kind != OperandKind::address;
  const std::size_t first = returns ? 1 : 0;
  const Slot at = a.address(operand(first), offset);
  const Slot number = s.operands.size() > first + 1 ? a.source(operand(first + 1), 4) : no_slot;
  const Slot to = returns && operand(0).kind != OperandKind::nothing ? a.destination(operand(0), 8) : no_slot;
  Instruction& i = a.emit(arrive_at, {at, number, to});
  i.immediate = offset;
  if (arrival) i.flags |= arrives;
  if (op.has("expect_tx")) i.flags |= expects;
  if (op.has("arrive_drop")) i.flags |= drops;
  return true;
}

}  // namespace dodona::ptx
