// What the lanes of a warp tell each other.
#include <algorithm>

#include "ptx/assembler.h"
#include "ptx/lanes.h"

namespace dodona::ptx {
namespace {

using u32 = std::uint32_t;

enum Direction : std::uint64_t { up, down, butterfly, index };

/// shfl: the source lane by PTX's formula, segments by the third operand.
void shuffle(Machine& m, const Instruction& i) {
  m.meet();
  std::array<u32, warp_lanes> given{};
  std::memcpy(given.data(), m.row(i.slots[1]), sizeof given);
  u32 valid = 0;
  for_lanes(m.mask, [&](int lane) {
    const u32 by = m.narrow(i.slots[2])[lane] & 31, bounds = m.narrow(i.slots[3])[lane];
    const int segment = static_cast<int>(bounds >> 8 & 31), clamp = static_cast<int>(bounds & 31);
    const int last = (lane & segment) | (clamp & ~segment), first = lane & segment;
    int from = lane;
    bool inside = false;
    switch (i.flags) {
      case up:
        from = lane - static_cast<int>(by);
        inside = from >= last;
        break;
      case down:
        from = lane + static_cast<int>(by);
        inside = from <= last;
        break;
      case butterfly:
        from = lane ^ static_cast<int>(by);
        inside = from <= last;
        break;
      default: from = first | (static_cast<int>(by) & ~segment); inside = from <= last;
    }
    if (!inside) from = lane;
    valid |= static_cast<u32>(inside) << lane;
    m.narrow(i.slots[0])[lane] = given[static_cast<std::size_t>(from)];
  });
  if (i.slots[4] != no_slot) {
    u32& to = m.predicate(i.slots[4]);
    to = (to & ~m.mask) | (valid & m.mask);
  }
}

void ballot(Machine& m, const Instruction& i) {
  m.meet();
  const u32 truths = m.predicate(i.slots[1]) & m.mask;
  for_lanes(m.mask, [&](int lane) { m.narrow(i.slots[0])[lane] = truths; });
}
enum Vote : std::uint64_t { all, any, uniform };
void vote(Machine& m, const Instruction& i) {
  m.meet();
  const u32 truths = m.predicate(i.slots[1]) & m.mask;
  const bool truth = i.flags == all ? truths == m.mask : i.flags == any ? truths != 0 : truths == 0 || truths == m.mask;
  u32& to = m.predicate(i.slots[0]);
  to = (to & ~m.mask) | (truth ? m.mask : 0);
}
void active(Machine& m, const Instruction& i) {
  const u32 mask = m.mask;
  for_lanes(mask, [&](int lane) { m.narrow(i.slots[0])[lane] = mask; });
}
void elect(Machine& m, const Instruction& i) {
  m.meet();
  const int leader = std::countr_zero(m.mask);
  if (i.slots[0] != no_slot) for_lanes(m.mask, [&](int lane) { m.narrow(i.slots[0])[lane] = static_cast<u32>(leader); });
  u32& to = m.predicate(i.slots[1]);
  to = (to & ~m.mask) | (1u << leader);
}
void match(Machine& m, const Instruction& i) {
  m.meet();
  const auto value = [&](int lane) { return i.width == 8 ? m.wide(i.slots[1])[lane] : m.narrow(i.slots[1])[lane]; };
  std::array<u32, warp_lanes> same{};
  bool all_same = true;
  for_lanes(m.mask, [&](int lane) {
    for_lanes(m.mask, [&](int other) { same[static_cast<std::size_t>(lane)] |= static_cast<u32>(value(lane) == value(other)) << other; });
    all_same = all_same && same[static_cast<std::size_t>(lane)] == m.mask;
  });
  const u32 mask = m.mask;
  for_lanes(mask,
            [&](int lane) { m.narrow(i.slots[0])[lane] = i.flags == all ? (all_same ? mask : 0) : same[static_cast<std::size_t>(lane)]; });
  if (i.slots[2] != no_slot) {
    u32& to = m.predicate(i.slots[2]);
    to = (to & ~mask) | (all_same ? mask : 0);
  }
}

using Reduce = u32 (*)(u32, u32);
u32 r_add(u32 a, u32 b) {
  return a + b;
}
u32 r_min_u(u32 a, u32 b) {
  return std::min(a, b);
}
u32 r_max_u(u32 a, u32 b) {
  return std::max(a, b);
}
u32 r_min_s(u32 a, u32 b) {
  return static_cast<std::int32_t>(a) < static_cast<std::int32_t>(b) ? a : b;
}
u32 r_max_s(u32 a, u32 b) {
  return static_cast<std::int32_t>(a) > static_cast<std::int32_t>(b) ? a : b;
}
u32 r_and(u32 a, u32 b) {
  return a & b;
}
u32 r_or(u32 a, u32 b) {
  return a | b;
}
u32 r_xor(u32 a, u32 b) {
  return a ^ b;
}
struct Reduction {
  std::string_view name, type;
  Reduce reduce;
};
constexpr Reduction reductions[] = {{"add", "u32", r_add},   {"add", "s32", r_add},   {"min", "u32", r_min_u},
                                    {"min", "s32", r_min_s}, {"max", "u32", r_max_u}, {"max", "s32", r_max_s},
                                    {"and", "b32", r_and},   {"or", "b32", r_or},     {"xor", "b32", r_xor}};
template <Reduce reduce>
void reduce_lanes(Machine& m, const Instruction& i) {
  m.meet();
  u32 result = m.narrow(i.slots[1])[std::countr_zero(m.mask)];
  for (u32 rest = m.mask & (m.mask - 1); rest != 0; rest &= rest - 1) result = reduce(result, m.narrow(i.slots[1])[std::countr_zero(rest)]);
  for_lanes(m.mask, [&](int lane) { m.narrow(i.slots[0])[lane] = result; });
}
constexpr Handler reducers[] = {reduce_lanes<r_add>,   reduce_lanes<r_add>,   reduce_lanes<r_min_u>,
                                reduce_lanes<r_min_s>, reduce_lanes<r_max_u>, reduce_lanes<r_max_s>,
                                reduce_lanes<r_and>,   reduce_lanes<r_or>,    reduce_lanes<r_xor>};

/// The lanes that are named come together.
void gathers(Assembler& a, Instruction& i, Slot mask) {
  (void)a;
  i.slots[5] = mask;
  i.meeting = Meeting::warp;
}

}  // namespace

bool assemble_warp(Assembler& a, const Statement& s, const Opcode& op) {
  const std::string_view name = op.name();
  const auto operand = [&](std::size_t k) -> const Operand& {
    if (k >= s.operands.size()) throw NotThere{"the number of operands is another"};
    return s.operands[k];
  };
  const Operand& first = operand(0);
  const bool two = first.kind == OperandKind::pair;
  const Operand& result = two ? first.parts[0] : first;
  const bool sync = op.has("sync");
  const auto named = [&](std::size_t k) { return sync ? a.source(operand(k), 4) : a.constant(all_lanes, false); };

  if (name == "shfl") {
    const std::uint64_t direction = op.has("up") ? up : op.has("down") ? down : op.has("bfly") ? butterfly : index;
    const Slot value = a.source(operand(1), 4), by = a.source(operand(2), 4), bounds = a.source(operand(3), 4), mask = named(4);
    const Slot to = a.destination(result, 4), valid = two ? a.destination(first.parts[1], 0) : no_slot;
    Instruction& i = a.emit(shuffle, {to, value, by, bounds, valid});
    i.flags = direction;
    i.family = InstructionFamily::shuffle;
    gathers(a, i, mask);
    return true;
  }
  if (name == "vote") {
    const Slot given = a.source(operand(1), 0), mask = named(2);
    if (op.has("ballot")) {
      gathers(a, a.emit(ballot, {a.destination(result, 4), given}), mask);
    } else {
      const Slot to = a.destination(result, 0);
      Instruction& i = a.emit(vote, {to, given});
      i.flags = op.has("all") ? all : op.has("any") ? any : uniform;
      gathers(a, i, mask);
    }
    return true;
  }
  if (name == "activemask") {
    const Slot to = a.destination(result, 4);
    a.emit(active, {to});
    return true;
  }
  if (name == "elect") {
    if (!two) throw NotThere{};
    const Slot mask = a.source(operand(1), 4), leader = a.destination(first.parts[1], 0);
    const Slot to = result.kind == OperandKind::nothing ? no_slot : a.destination(result, 4);
    gathers(a, a.emit(elect, {to, leader}), mask);
    return true;
  }
  if (name == "match") {
    const auto bytes = static_cast<int>(op.has("b64") ? 8 : 4);
    const Slot value = a.source(operand(1), bytes), mask = a.source(operand(2), 4), to = a.destination(result, 4);
    const Slot same = two ? a.destination(first.parts[1], 0) : no_slot;
    Instruction& i = a.emit(match, {to, value, same});
    i.width = static_cast<std::uint8_t>(bytes);
    i.flags = op.has("all") ? all : any;
    gathers(a, i, mask);
    return true;
  }
  if (name == "redux") {
    for (std::size_t r = 0; r < std::size(reductions); ++r) {
      if (!op.has(reductions[r].name) || op.type() != reductions[r].type) continue;
      const Slot value = a.source(operand(1), 4), mask = a.source(operand(2), 4), to = a.destination(result, 4);
      gathers(a, a.emit(reducers[r], {to, value}), mask);
      return true;
    }
  }
  return false;
}

}  // namespace dodona::ptx
