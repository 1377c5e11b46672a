#include "ptx/dead_reads.h"

#include <algorithm>
#include <string_view>

#include "dodona/ptx.h"
#include "ptx/memory_access.h"

namespace dodona::ptx {
namespace {

/// What an instruction reads and writes among registers, as far as its family says it.
struct Flow {
  std::vector<Slot> from, to;
  bool computes = false;  ///< does nothing but to write `to`
};

Flow flow_of(const Code& code, const Instruction& i) {
  const Slot* const list = code.lists.data() + i.list;
  const std::vector<Slot> listed(list, list + i.list_count);
  switch (i.family) {
    case InstructionFamily::plain: return {{i.slots.begin() + 1, i.slots.begin() + 1 + i.sources}, {i.slots[0]}, true};
    case InstructionFamily::move: return {{i.slots[1]}, {i.slots[0]}, true};
    case InstructionFamily::parts: return {{i.slots[0]}, listed, true};
    case InstructionFamily::whole: return {listed, {i.slots[0]}, true};
    case InstructionFamily::load: return {{i.slots[0]}, listed, false};
    case InstructionFamily::branch: return {{i.slots[0]}, {}, false};
    case InstructionFamily::store: {
      Flow flow{listed, {}, false};
      flow.from.push_back(i.slots[0]);
      return flow;
    }
    default: {
      // Either way, for all that is known.
      Flow flow{listed, listed, false};
      for (const Slot slot : i.slots) flow.from.push_back(slot), flow.to.push_back(slot);
      return flow;
    }
  }
}

constexpr std::string_view of_the_place[] = {"%tid", "%ntid", "%ctaid", "%nctaid", "%laneid", "%warpid"};
constexpr Slot nobodys = 0;  ///< the first row, which slots that are not used name

}  // namespace

DeadReads::DeadReads(const Code& code) : code_(code), writers_(code.rows + 1), writer_(code.rows + 1) {
  for (std::uint32_t pc = 0; pc < code.instructions.size(); ++pc)
    for (const Slot slot : flow_of(code, code.instructions[pc]).to)
      if (slot < writers_.size()) ++writers_[slot], writer_[slot] = pc;
}

/// Written once, or never, from constants, arguments and the thread's place.
bool DeadReads::is_of_the_place(Slot slot, int depth) const {
  if (slot >= writers_.size() || depth == 0) return false;
  if (writers_[slot] == 0) {
    for (const SpecialRegister& s : code_.specials)
      if (s.slot == slot)
        return std::any_of(std::begin(of_the_place), std::end(of_the_place),
                           [&](std::string_view name) { return s.name.starts_with(name); });
    return std::any_of(code_.constants.begin(), code_.constants.end(), [&](const Constant& c) { return c.slot == slot; });
  }
  if (writers_[slot] != 1) return false;
  const Instruction& i = code_.instructions[writer_[slot]];
  if (i.guard != no_slot) return false;
  if (i.family == InstructionFamily::load) return static_cast<Space>(i.sources) == Space::parameter;
  const Flow flow = flow_of(code_, i);
  return flow.computes && std::all_of(flow.from.begin(), flow.from.end(), [&](Slot from) { return is_of_the_place(from, depth - 1); });
}

const std::vector<DeadReads::Use>& DeadReads::uses_of(std::uint32_t pc) {
  const auto [known, added] = uses_.try_emplace(pc);
  std::vector<Use>& uses = known->second;
  if (!added) return uses;
  constexpr int deepest = 64;
  std::vector<bool> reached(code_.rows + 1);
  const auto is_reached = [&](Slot slot) { return slot != nobodys && slot < reached.size() && reached[slot]; };
  for (const Slot slot : flow_of(code_, code_.instructions[pc]).to)
    if (slot < reached.size()) reached[slot] = true;
  // Registers do not go back to being untouched: the order of instructions is not looked at, and the answer errs on the side of a use.
  for (bool grows = true; grows;) {
    grows = false;
    for (const Instruction& i : code_.instructions) {
      const Flow flow = flow_of(code_, i);
      if (!flow.computes || !std::any_of(flow.from.begin(), flow.from.end(), is_reached)) continue;
      for (const Slot slot : flow.to)
        if (slot < reached.size() && !reached[slot]) reached[slot] = grows = true;
    }
  }
  for (const Instruction& i : code_.instructions) {
    const Flow flow = flow_of(code_, i);
    const bool decides = i.guard != no_slot && is_reached(i.guard);
    if (decides || (!flow.computes && std::any_of(flow.from.begin(), flow.from.end(), is_reached)))
      uses.push_back({!decides && i.guard != no_slot && is_of_the_place(i.guard, deepest) ? i.guard : no_slot, i.guard_inverted});
  }
  return uses;
}

}  // namespace dodona::ptx
