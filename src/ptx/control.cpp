// Where a warp goes on, and barriers.
#include <algorithm>

#include "ptx/assembler.h"
#include "ptx/lanes.h"

namespace dodona::ptx {
namespace {

void jump(Machine& m, const Instruction& i) {
  m.branch(i.target);
}
void jump_by_index(Machine& m, const Instruction& i) {
  std::array<std::uint32_t, warp_lanes> targets{};
  for_lanes(m.mask, [&](int lane) {
    const std::uint32_t index = m.narrow(i.slots[0])[lane];
    if (index >= i.list_count)
      m.fail("the index " + std::to_string(index) + " has no target, there are " + std::to_string(i.list_count), i);
    targets[static_cast<std::size_t>(lane)] = m.launch().code->instructions[m.list(i)[index]].target;
  });
  m.jump(targets.data());
}
void marker(Machine&, const Instruction&) {}
void give_back(Machine& m, const Instruction& i) {
  m.jump(m.narrow(i.slots[0]));
}
void leave(Machine& m, const Instruction&) {
  m.leave();
}
void trap(Machine& m, const Instruction& i) {
  m.finding("trap", "", "", std::countr_zero(m.mask), i);
  m.leave();
}
void nothing(Machine&, const Instruction&) {}
void meet_warp(Machine& m, const Instruction&) {
  m.meet();
}
void fence_proxy(Machine& m, const Instruction&) {
  m.fence();
}
void pause(Machine& m, const Instruction&) {
  m.yield();
}

void barrier(Machine& m, const Instruction& i) {
  const int lane = std::countr_zero(m.mask);
  const std::uint32_t count = i.slots[1] == no_slot ? 0 : m.narrow(i.slots[1])[lane];
  if (count % warp_lanes != 0) m.fail("a barrier of " + std::to_string(count) + " threads: expected a multiple of 32", i);
  m.arrive(m.narrow(i.slots[0])[lane], count, i.flags != 0, i);
}

/// Barriers that also reduce a predicate: what all threads gave is there when they go on, for they read it a step later.
void offer(Machine& m, const Instruction& i) {
  m.offer(m.narrow(i.slots[0])[std::countr_zero(m.mask)], m.predicate(i.slots[2]) & m.mask);
}
void collect(Machine& m, const Instruction& i) {
  const auto [given, threads] = m.offered(m.narrow(i.slots[0])[std::countr_zero(m.mask)]);
  if (i.flags == 0) {
    for_lanes(m.mask, [&, given = given](int lane) { m.narrow(i.slots[1])[lane] = given; });
    return;
  }
  const bool truth = i.flags == 1 ? given == threads : given > 0;
  std::uint32_t& to = m.predicate(i.slots[1]);
  to = (to & ~m.mask) | (truth ? m.mask : 0);
}

bool assemble_barrier(Assembler& a, const Statement& s, const Opcode& op) {
  if (op.has("warp")) {
    if (s.operands.size() != 1) throw NotThere{"expected a mask"};
    const Slot mask = a.source(s.operands[0], 4);
    Instruction& i = a.emit(meet_warp);
    i.slots[5] = mask;
    i.meeting = Meeting::warp;
    return true;
  }
  if (op.has("cluster")) {  // of one block
    if (op.has("arrive")) {
      a.emit(nothing);
      return true;
    }
    const Slot zero = a.constant(barrier_of_clusters, false);
    Instruction& i = a.emit(barrier, {zero, no_slot});
    i.flags = 1;
    return true;
  }
  if (op.has("red")) {
    const bool counts = op.has("popc");
    if (s.operands.size() < 3) throw NotThere{"the number of operands is another"};
    const bool threads = s.operands.size() == 4;
    const Slot number = a.source(s.operands[1], 4), count = threads ? a.source(s.operands[2], 4) : no_slot;
    const Slot given = a.source(s.operands.back(), 0), to = a.destination(s.operands[0], counts ? 4 : 0);
    Instruction& gives = a.emit(offer, {number, no_slot, given});
    gives.meeting = Meeting::whole;
    a.emit(barrier, {number, count}).flags = 1;
    a.emit(collect, {number, to}).flags = counts ? 0 : op.has("and") ? 1 : 2;
    return true;
  }
  const bool waits = op.has("sync");
  if (!waits && !op.has("arrive")) return false;
  if (s.operands.empty() || s.operands.size() > 2 || (!waits && s.operands.size() != 2))
    throw NotThere{"the number of operands is another"};
  const Slot number = a.source(s.operands[0], 4), count = s.operands.size() == 2 ? a.source(s.operands[1], 4) : no_slot;
  Instruction& i = a.emit(barrier, {number, count});
  i.flags = waits ? 1 : 0;
  if (op.name() == "bar" || op.has("aligned")) i.meeting = Meeting::whole;
  return true;
}

}  // namespace

bool assemble_control(Assembler& a, const Statement& s, const Opcode& op) {
  const std::string_view name = op.name();
  if (name == "bra") {
    if (s.operands.size() != 1) throw NotThere{"expected a label"};
    a.emit(jump);
    a.patch(a.next() - 1, s.operands[0].text);
  } else if (name == "brx") {
    const auto* const targets = s.operands.size() == 2 ? a.targets(s.operands[1].text) : nullptr;
    if (targets == nullptr) throw NotThere{"expected an index and the name of a .branchtargets list"};
    // The targets stand in instructions of their own, which nobody runs: a list of labels.
    const Slot index = a.source(s.operands[0], 4);
    const std::size_t at = a.next();
    a.emit(jump_by_index, {index}).family = InstructionFamily::branch;
    std::vector<Slot> places;
    for (const std::string& target : *targets) {
      a.emit(marker).guard = no_slot;
      a.patch(a.next() - 1, target);
      places.push_back(static_cast<Slot>(a.next() - 1));
    }
    a.list(a.at(at), places);
  } else if (name == "call") {
    a.call(s);
  } else if (name == "ret") {
    if (a.in_entry()) {
      a.emit(leave);
    } else {
      a.emit(give_back, {a.return_slot()});
    }
  } else if (name == "exit") {
    a.emit(leave);
  } else if (name == "trap" || name == "brkpt") {
    a.emit(trap);
  } else if (name == "bar" || name == "barrier") {
    return assemble_barrier(a, s, op);
  } else if (name == "fence" && op.has("proxy")) {
    a.emit(fence_proxy);
  } else if (name == "nanosleep") {
    a.emit(pause);
  } else if (name == "createpolicy") {
    const Slot to = a.destination(s.operands.at(0), 8);
    a.emit([](Machine& m, const Instruction& i) { for_lanes(m.mask, [&](int lane) { m.wide(i.slots[0])[lane] = 0; }); }, {to});
  } else {
    a.emit(nothing);
  }
  return true;
}

}  // namespace dodona::ptx
