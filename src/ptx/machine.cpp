#include "ptx/machine.h"

#include <algorithm>
#include <bit>

#include "dodona/error.h"
#include "ptx/special_registers.h"

namespace dodona::ptx {
namespace {

/// Instructions of a warp before the others have their turn: short enough that who spins does not spin for long.
constexpr int turn = 4096;
/// Instructions of lanes that are behind before those ahead of them have their turn, should they spin for something that these do.
constexpr std::uint64_t patience = 1 << 16;

constexpr std::uint32_t barrier_count = barrier_of_clusters + 1;

const char* name_of(AccessKind kind) {
  return kind == AccessKind::atomic ? "atomic" : writes(kind) ? "store" : "load";
}

std::string hex(std::uint64_t x) {
  char text[20];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(x));
  return text;
}

Dim3 place_in(const Dim3& size, std::uint64_t linear) {
  return {static_cast<std::uint32_t>(linear % size.x), static_cast<std::uint32_t>(linear / size.x % size.y),
          static_cast<std::uint32_t>(linear / (std::uint64_t{size.x} * size.y))};
}

std::string shown(const Dim3& d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}

}  // namespace

Machine::Machine(const LaunchState& launch) : launch_(launch), tiles_(launch.isa) {
  const std::size_t warps = (threads() + warp_lanes - 1) / warp_lanes;
  file_.resize(warps * launch.code->rows * row_bytes + 64);
  warps_.resize(warps);
  auto base = reinterpret_cast<std::uintptr_t>(file_.data());
  std::byte* const aligned = file_.data() + (64 - base % 64) % 64;
  for (std::size_t w = 0; w < warps; ++w) {
    warps_[w].registers = aligned + w * launch.code->rows * row_bytes;
    warps_[w].index = static_cast<std::uint32_t>(w);
    warps_[w].local.resize(launch.kernel->local_bytes * warp_lanes);
  }
  shared_.resize(launch.shared_bytes);
  page_writes_.resize(launch.shared_bytes / shared_page + 1);
  watching_ = launch.check_races || launch.check_uninitialised;
  if (launch.check_uninitialised) shared_written_.resize(launch.shared_bytes);
}

void Machine::fill_registers(Warp& w) {
  registers = w.registers;
  warp = &w;
  std::memset(w.registers, 0, launch_.code->rows * row_bytes);
  for (const Constant& c : launch_.code->constants) {
    for (int lane = 0; lane < warp_lanes; ++lane) {
      if (c.wide) {
        wide(c.slot)[lane] = c.value;
      } else {
        narrow(c.slot)[lane] = static_cast<std::uint32_t>(c.value);
      }
    }
  }
  for (const SpecialRegister& s : launch_.code->specials) fill_special(*this, s);
}

void Machine::begin_block(std::uint64_t linear) {
  linear_ = linear;
  block_ = place_in(launch_.grid, linear);
  std::fill(shared_.begin(), shared_.end(), std::byte{0});
  std::fill(page_writes_.begin(), page_writes_.end(), ++writes_);
  std::fill(shared_written_.begin(), shared_written_.end(), std::uint8_t{0});
  if (launch_.check_races) {
    shared_touched_.assign(launch_.shared_bytes, {});
    global_touched_.clear();
    clocks_.clear();
  }
  barriers_.assign(barrier_count, {});
  const std::uint32_t count = threads();
  for (Warp& w : warps_) {
    const std::uint32_t first = w.index * warp_lanes, lanes = std::min<std::uint32_t>(count - first, warp_lanes);
    w.live = w.begun = lanes == warp_lanes ? all_lanes : (1u << lanes) - 1;
    w.groups.assign(1, {launch_.kernel->entry, w.live});
    w.current = 0;
    w.executed = 0;
    w.synced = 0;
    w.fenced = 0;
    w.wgmma_fenced = false;
    w.accumulators.clear();
    w.copies_open = 1;
    w.copies_done = 0;
    w.products_open = 1;
    w.in_flight.clear();
    if (launch_.check_races) {
      w.clock.assign(warps_.size(), 0);
      w.clock[w.index] = 1;
    }
    std::fill(w.local.begin(), w.local.end(), std::byte{0});
    fill_registers(w);
  }
}

void Machine::run_block(std::uint64_t linear) {
  begin_block(linear);
  for (;;) {
    bool all_left = true, some_ran = false;
    for (Warp& w : warps_) {
      if (w.groups.empty()) continue;
      all_left = false;
      some_ran = run_warp(w) || some_ran;
    }
    if (all_left) return settle_races();
    const bool settled = settle_barriers();
    if (!some_ran && !settled) break_deadlock();
  }
}

/// False when all of its lanes wait.
bool Machine::run_warp(Warp& w) {
  regroup(w);
  if (w.groups.empty() || w.groups[w.current].state != GroupState::runs) return false;
  warp = &w;
  registers = w.registers;
  w.yields = false;
  const Instruction* const code = launch_.code->instructions.data();
  std::uint64_t lane_count = 0, warp_count = 0;
  int left = turn;
  for (; left > 0 && !w.yields; --left) {
    Group& g = w.groups[w.current];
    const Instruction& i = code[g.pc];
    mask = g.mask;
    if (i.guard != no_slot) mask &= i.guard_inverted ? ~predicate(i.guard) : predicate(i.guard);
    if (i.meeting != Meeting::none && mask != 0 && w.groups.size() > 1 && wait_for_meeting(i)) {
      regroup(w);
      if (w.groups[w.current].state != GroupState::runs) break;
      continue;
    }
    // `.aligned` is for whole warps: a guard is the same for all lanes.
    if (i.guard != no_slot && i.meeting == Meeting::whole && mask != 0 && mask != g.mask)
      finding("diverged", "", "", std::countr_zero(mask), i);
    if (g.waited) {
      // Those that it has waited for have left instead.
      if (i.meeting != Meeting::none && mask == g.mask && g.mask == w.live && w.live != w.begun)
        finding("diverged", "", "", std::countr_zero(mask), i);
      g.waited = false;
    }
    ++g.pc;
    if (i.first) {
      ++warp_count;
      lane_count += static_cast<std::uint64_t>(std::popcount(mask));
    }
    ++executed_;
    if (++w.executed > launch_.limit) {
      warp_instructions += warp_count;
      lane_instructions += lane_count;
      fail("this warp has done " + std::to_string(launch_.limit) + " instructions, the limit: it seems to go round here for ever", i);
    }
    if (mask == 0) {
      if (w.groups.size() > 1) regroup(w);
      continue;
    }
    if (!w.in_flight.empty()) check_in_flight(i);
    if (observer != nullptr) observer->before(*this, i);
    i.run(*this, i);
    if (w.groups.empty()) break;
    if (w.groups.size() > 1) regroup(w);
    if (w.groups[w.current].state != GroupState::runs) break;
  }
  warp_instructions += warp_count;
  lane_instructions += lane_count;
  return true;
}

/// Joins lanes that are at the same place, and lets those run that are behind all others: they may come to where the others are.
void Machine::regroup(Warp& w) {
  if (w.groups.size() < 2) {
    w.current = 0;
    if (!w.groups.empty() && w.groups[0].state == GroupState::at_meeting) w.groups[0].state = GroupState::runs;
    return;
  }
  for (std::size_t a = 0; a < w.groups.size(); ++a)
    for (std::size_t b = a + 1; b < w.groups.size();) {
      Group &one = w.groups[a], &other = w.groups[b];
      if (one.pc == other.pc && one.state != GroupState::at_barrier && other.state != GroupState::at_barrier) {
        one.mask |= other.mask;
        one.waited = false;
        one.state = GroupState::runs;  // who waits looks again
        w.groups.erase(w.groups.begin() + static_cast<std::ptrdiff_t>(b));
      } else {
        ++b;
      }
    }
  std::size_t best = w.groups.size();
  const bool others_first = w.executed / patience % 2 == 1;
  for (std::size_t g = 0; g < w.groups.size(); ++g) {
    if (w.groups[g].state != GroupState::runs) continue;
    if (best == w.groups.size() || (w.groups[g].pc < w.groups[best].pc) != others_first) best = g;
  }
  w.current = best == w.groups.size() ? 0 : best;
}

/// Whether the current group has to wait for lanes that are elsewhere.
bool Machine::wait_for_meeting(const Instruction& i) {
  Group& g = group();
  std::uint32_t wanted = warp->live;
  if (i.meeting == Meeting::warp) {
    wanted = 0;
    const std::uint32_t* const named = narrow(i.slots[5]);
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) wanted |= named[std::countr_zero(rest)];
    wanted &= warp->live;
  }
  if ((wanted & ~g.mask) == 0) return false;
  g.state = GroupState::at_meeting;
  g.waited = true;
  return true;
}

/// Accumulators of wgmma before wgmma.wait_group: nobody but wgmma may touch them.
void Machine::check_in_flight(const Instruction& i) {
  if (i.family == InstructionFamily::warpgroup || i.family == InstructionFamily::branch) return;
  if (i.family == InstructionFamily::move) {  // the assembler makes one register of both
    if (const auto moved = warp->in_flight.find(i.slots[1]); moved != warp->in_flight.end()) warp->in_flight[i.slots[0]] = moved->second;
    return;
  }
  const auto check = [&](Slot slot) {
    if (warp->in_flight.count(slot) == 0) return;
    finding("wgmma_fence", "", "", std::countr_zero(mask), i);
    warp->in_flight.clear();
  };
  for (const Slot slot : i.slots) check(slot);
  for (std::uint32_t k = 0; k < i.list_count; ++k) check(list(i)[k]);
}

void Machine::branch(std::uint32_t target) {
  Group& g = group();
  if (mask == g.mask) {
    g.pc = target;
    return;
  }
  g.mask &= ~mask;
  warp->groups.push_back({target, mask});
}

void Machine::jump(const std::uint32_t* targets) {
  std::uint32_t rest = mask;
  group().mask &= ~mask;
  const bool empty = group().mask == 0;
  while (rest != 0) {
    const std::uint32_t target = targets[std::countr_zero(rest)];
    std::uint32_t together = 0;
    for (std::uint32_t r = rest; r != 0; r &= r - 1)
      if (targets[std::countr_zero(r)] == target) together |= r & (0 - r);
    rest &= ~together;
    warp->groups.push_back({target, together});
  }
  if (empty) warp->groups.erase(warp->groups.begin() + static_cast<std::ptrdiff_t>(warp->current));
  if (warp->current >= warp->groups.size()) warp->current = 0;
  regroup(*warp);
}

void Machine::leave() {
  warp->live &= ~mask;
  group().mask &= ~mask;
  if (group().mask == 0) {
    warp->groups.erase(warp->groups.begin() + static_cast<std::ptrdiff_t>(warp->current));
    warp->current = 0;
  }
  warp->yields = true;
}

// ---- barriers

std::uint32_t Machine::live_threads() const {
  std::uint32_t count = 0;
  for (const Warp& w : warps_) count += static_cast<std::uint32_t>(std::popcount(w.live));
  return count;
}

void Machine::arrive(std::uint32_t barrier, std::uint32_t expected, bool waits, const Instruction& i) {
  if (barrier >= barrier_count) fail("there is no barrier " + std::to_string(barrier) + ", there are 16", i);
  BlockBarrier& b = barriers_[barrier];
  b.arrived += static_cast<std::uint32_t>(std::popcount(mask));
  b.expected = expected;
  if (launch_.check_races) {
    join(b.clock, warp->clock);
    ++warp->clock[warp->index];
  }
  if (waits) {
    Group& g = group();
    if (mask == g.mask) {
      g.state = GroupState::at_barrier;
      g.barrier = barrier;
    } else {
      g.mask &= ~mask;
      warp->groups.push_back({g.pc, mask, GroupState::at_barrier, barrier});
    }
  }
  settle_barriers();
}

void Machine::offer(std::uint32_t barrier, std::uint32_t lanes) {
  if (barrier < barrier_count) barriers_[barrier].truths += static_cast<std::uint32_t>(std::popcount(lanes));
}
Machine::Offered Machine::offered(std::uint32_t barrier) const {
  return {barriers_[barrier].last_truths, barriers_[barrier].last_threads};
}

/// Opens barriers whose threads are all there; those that have left are not waited for.
bool Machine::settle_barriers() {
  bool some = false;
  for (std::uint32_t index = 0; index < barrier_count; ++index) {
    BlockBarrier& b = barriers_[index];
    if (b.arrived == 0) continue;
    const std::uint32_t expected = b.expected == 0 ? live_threads() : b.expected;
    if (b.arrived < expected) continue;
    for (Warp& w : warps_) {
      bool waited = false;
      for (Group& g : w.groups)
        if (g.state == GroupState::at_barrier && g.barrier == index) {
          g.state = GroupState::runs;
          waited = true;
        }
      if (waited) {
        ++w.synced;
        if (launch_.check_races) {
          join(w.clock, b.clock);
          ++w.clock[w.index];
        }
      }
    }
    const std::uint32_t truths = b.truths, arrived = b.arrived;
    b = {};
    b.last_truths = truths;
    b.last_threads = arrived;
    some = true;
  }
  return some;
}

/// Nobody can go on. Lanes that wait for others of their warp go on without them; threads at barriers do likewise: what a GPU does then is
/// open, and the finding says so.
void Machine::break_deadlock() {
  for (Warp& w : warps_)
    for (std::size_t g = 0; g < w.groups.size(); ++g)
      if (w.groups[g].state == GroupState::at_meeting) {
        const Instruction& i = launch_.code->instructions[w.groups[g].pc];
        warp = &w;
        registers = w.registers;
        finding("diverged", "", "", std::countr_zero(w.groups[g].mask), i);
        w.current = g;
        // It runs alone, as if those that it waits for had left.
        mask = w.groups[g].mask;
        w.groups[g].state = GroupState::runs;
        ++w.groups[g].pc;
        if (i.guard != no_slot) mask &= i.guard_inverted ? ~predicate(i.guard) : predicate(i.guard);
        if (mask != 0) i.run(*this, i);
        return;
      }
  for (std::uint32_t index = 0; index < barrier_count; ++index) {
    if (barriers_[index].arrived == 0) continue;
    for (Warp& w : warps_)
      for (Group& g : w.groups)
        if (g.state == GroupState::at_barrier && g.barrier == index) {
          warp = &w;
          registers = w.registers;
          finding("diverged", "", "", std::countr_zero(g.mask), launch_.code->instructions[g.pc - 1]);
          g.state = GroupState::runs;
        }
    barriers_[index] = {};
    return;
  }
  const Group& g = warps_.front().groups.empty() ? warps_.back().groups.front() : warps_.front().groups.front();
  fail("nobody can go on", launch_.code->instructions[g.pc]);
}

// ---- what is told

Place Machine::place_of(int lane, const Instruction& i) const {
  Place p;
  p.line = i.line;
  if (i.statement >= 0) {
    p.instruction = launch_.program->texts[static_cast<std::size_t>(i.statement)].text;
    p.source = launch_.program->texts[static_cast<std::size_t>(i.statement)].source;
  }
  p.block = block_;
  p.lane = lane;
  p.warp = static_cast<int>(warp->index);
  p.thread = place_in(launch_.block, std::uint64_t{warp->index} * warp_lanes + static_cast<std::uint64_t>(lane));
  return p;
}

Place Machine::place_of(const Touch& touch) const {
  const Instruction& i = launch_.code->instructions[touch.pc];
  Place p;
  p.line = i.line;
  p.instruction = launch_.program->texts[static_cast<std::size_t>(i.statement)].text;
  p.source = launch_.program->texts[static_cast<std::size_t>(i.statement)].source;
  p.block = block_;
  p.lane = touch.thread % warp_lanes;
  p.warp = touch.thread / warp_lanes;
  p.thread = place_in(launch_.block, touch.thread);
  return p;
}

Finding Machine::told(const char* kind, const char* space, const std::string& address, int lane, const Instruction& i,
                      const Touch* other) const {
  Finding f;
  f.kind = kind;
  f.space = space;
  f.place = place_of(lane, i);
  f.address = address;
  if (other != nullptr) f.other = place_of(*other);
  return f;
}

/// One of each kind and pair of statements is kept, with how often it was seen: the last block's.
void Machine::keep(Finding finding, const FindingKey& key, std::uint64_t times) {
  const auto found = findings.find(key);
  if (found == findings.end()) {
    if (findings.size() >= launch_.findings) return;
    finding.count = times;
    findings[key] = {std::move(finding), linear_};
    return;
  }
  const std::uint64_t count = found->second.finding.count + times;
  if (found->second.block > linear_) found->second = {std::move(finding), linear_};
  found->second.finding.count = count;
}

void Machine::finding(const char* kind, const char* space, const std::string& address, int lane, const Instruction& i, const Touch* other) {
  const FindingKey key{kind, i.statement, other == nullptr ? -1 : launch_.code->instructions[other->pc].statement};
  const auto found = findings.find(key);
  if (found != findings.end() && found->second.block <= linear_) {
    ++found->second.finding.count;
    return;
  }
  keep(told(kind, space, address, lane, i, other), key, 1);
}

template <class Where>
void Machine::race_of_readers(const Readers& readers, const char* space, Where where, int lane, const Instruction& i, const Touch& other) {
  const std::vector<Instruction>& code = launch_.code->instructions;
  if (code[readers.pc].family != InstructionFamily::load) return finding("race", space, where(), lane, i, &other);
  RaceOfReaders& race = races_of_readers_[{static_cast<std::uint32_t>(&i - code.data()), other.pc, readers}];
  if (race.times++ > 0) return;
  race.key = {"race", i.statement, code[other.pc].statement};
  race.finding = told("race", space, where(), lane, i, &other);
}

void Machine::settle_races() {
  if (races_of_readers_.empty()) return;
  if (!dead_reads_) dead_reads_.emplace(*launch_.code);
  const auto dead = [&](std::uint32_t pc, std::uint32_t thread) {
    registers = warps_[thread / warp_lanes].registers;
    return dead_reads_->dead(pc, [&](Slot slot) { return (predicate(slot) >> thread % warp_lanes & 1u) != 0; });
  };
  for (auto& [what, race] : races_of_readers_) {
    const Readers& readers = std::get<Readers>(what);
    bool harmless = true;
    if (readers.all_but_this) {
      for (std::uint32_t t = 0; t < threads() && harmless; ++t) harmless = t == readers.thread || dead(readers.pc, t);
    } else {
      harmless = dead(readers.pc, readers.thread);
    }
    if (!harmless) keep(std::move(race.finding), race.key, race.times);
  }
  races_of_readers_.clear();
}

void Machine::fail(const std::string& what, const Instruction& i) const {
  std::string place = "line " + std::to_string(i.line);
  if (i.statement >= 0) {
    const StatementText& text = launch_.program->texts[static_cast<std::size_t>(i.statement)];
    if (!text.source.empty()) place += " (" + text.source + ")";
    place += ": " + text.text;
  }
  throw Error(ErrorCode::bad_value, launch_.kernel->shown.name, launch_.program->name,
              place + ": " + what + " (block " + shown(block_) + ", warp " + std::to_string(warp->index) + ")");
}

std::string Machine::name_of(std::uint64_t address) const {
  const std::uint64_t index = address >> 36;
  if (index >= 1 && index <= launch_.buffers.size())
    return "args[" + std::to_string(index - 1) + "]+" + hex(address - device_address(index - 1));
  return hex(address);
}

// ---- memory

std::byte* Machine::outside(const char* space, std::uint64_t address, std::size_t bytes, AccessKind kind, int lane, const Instruction& i) {
  std::string where = std::string(space) == "global" ? name_of(address) : std::string(space) + "+" + hex(address);
  where += ", " + std::to_string(bytes) + " bytes, " + dodona::ptx::name_of(kind);
  finding("out_of_bounds", space, where, lane, i);
  return nullptr;
}

std::byte* Machine::at(Space space, std::uint64_t address, std::size_t bytes, AccessKind kind, int lane, const Instruction& i) {
  if (space == Space::none) {
    switch (address >> 32) {
      case 1: space = Space::shared; break;
      case 2: space = Space::local; break;
      case 4: space = Space::parameter; break;
      default: space = Space::global;
    }
  }
  const std::size_t aligned_to = std::min<std::size_t>(std::bit_floor(bytes), 16);
  switch (space) {
    case Space::shared: {
      const std::uint64_t offset = address & 0xFFFFFFFFu;
      if (offset + bytes > launch_.shared_bytes) return outside("shared", offset, bytes, kind, lane, i);
      if (offset % aligned_to != 0) finding("misaligned", "shared", "shared+" + hex(offset), lane, i);
      if (writes(kind)) note_write(offset, bytes);
      if (launch_.check_uninitialised) {
        if (reads(kind))
          for (std::size_t b = 0; b < bytes; ++b)
            if (shared_written_[offset + b] == 0) {
              finding("uninitialised", "shared", "shared+" + hex(offset + b), lane, i);
              break;
            }
        if (writes(kind)) std::memset(shared_written_.data() + offset, 1, bytes);
      }
      if (launch_.check_races) watch(shared_touched_.data() + offset, shared_.data() + offset, bytes, kind, "shared", offset, lane, i);
      return shared_.data() + offset;
    }
    case Space::local: {
      const std::uint64_t offset = address & 0xFFFFFFFFu;
      if (offset + bytes > launch_.kernel->local_bytes) return outside("local", offset, bytes, kind, lane, i);
      if (offset % aligned_to != 0) finding("misaligned", "local", "local+" + hex(offset), lane, i);
      return warp->local.data() + static_cast<std::size_t>(lane) * launch_.kernel->local_bytes + offset;
    }
    case Space::parameter: {
      if (address >> 32 == 2) return at(Space::local, address, bytes, kind, lane, i);
      const std::uint64_t offset = address & 0xFFFFFFFFu;
      if (offset + bytes > launch_.parameters.size() || writes(kind)) return outside("parameter", offset, bytes, kind, lane, i);
      return const_cast<std::byte*>(launch_.parameters.data()) + offset;
    }
    case Space::constant:
      if (address >> 32 == 0) address += module_window;  // from a register of 32 bits
      break;
    default: break;
  }
  const std::uint64_t index = address >> 36;
  if (index >= 1 && index <= launch_.buffers.size()) {
    const Buffer& b = launch_.buffers[index - 1];
    const std::uint64_t offset = address - device_address(index - 1);
    if (offset + bytes > b.bytes) return outside("global", address, bytes, kind, lane, i);
    if (offset % aligned_to != 0) finding("misaligned", "global", name_of(address), lane, i);
    if (writes(kind) && b.read_only) {
      finding("read_only", "global", name_of(address), lane, i);
      return nullptr;
    }
    if (b.written != nullptr) {
      if (reads(kind))
        for (std::size_t n = 0; n < bytes; ++n)
          if (b.written[offset + n] == 0) {
            finding("uninitialised", "global", name_of(address + n), lane, i);
            break;
          }
      if (writes(kind)) std::memset(b.written + offset, 1, bytes);
    }
    if (launch_.check_races) watch(touched_global(address, bytes), b.data + offset, bytes, kind, "global", address, lane, i);
    return b.data + offset;
  }
  if (address >> 32 == 3) {
    const std::uint64_t offset = address & 0xFFFFFFFFu;
    if (offset + bytes > launch_.variables.size()) return outside("constant", offset, bytes, kind, lane, i);
    if (offset % aligned_to != 0) finding("misaligned", "constant", "constant+" + hex(offset), lane, i);
    return const_cast<std::byte*>(launch_.variables.data()) + offset;
  }
  return outside("global", address, bytes, kind, lane, i);
}

// ---- races

void Machine::join(Clock& into, const Clock& from) const {
  if (into.size() < from.size()) into.resize(from.size());
  for (std::size_t w = 0; w < from.size(); ++w) into[w] = std::max(into[w], from[w]);
}

void Machine::release(std::uint64_t place) {
  if (!launch_.check_races) return;
  join(clocks_[place], warp->clock);
  ++warp->clock[warp->index];
}

void Machine::acquire(std::uint64_t place) {
  if (!launch_.check_races) return;
  const auto found = clocks_.find(place);
  if (found != clocks_.end()) join(warp->clock, found->second);
}

/// Whether what the other did came before what the current warp does.
bool Machine::saw(const Touch& touch) const {
  if (touch.thread == 0xFFFF) return true;
  const std::uint32_t other = touch.thread / warp_lanes;
  return other != warp->index ? warp->clock[other] >= touch.time : warp->synced > touch.synced;
}

/// Memory of the grid is watched in pages: threads of a block touch few of them.
TouchedByte* Machine::touched_global(std::uint64_t address, std::size_t bytes) {
  constexpr std::uint64_t page = 4096;
  std::vector<TouchedByte>& touched = global_touched_[address / page];
  if (touched.empty()) touched.resize(page + 256);  // an access may reach over the end; aligned ones do not
  (void)bytes;
  return touched.data() + address % page;
}

void Machine::check_proxy(std::uint64_t offset, std::size_t bytes, int lane, const Instruction& i) {
  if (!launch_.check_races || offset + bytes > launch_.shared_bytes) return;
  for (std::size_t b = offset; b < offset + bytes; ++b) {
    const Touch& t = shared_touched_[b].write;
    if (t.thread == 0xFFFF || t.asynchronous != 0) continue;
    if (warps_[t.thread / warp_lanes].fenced >= t.when || warp->fenced >= t.when) continue;
    finding("proxy_fence", "shared", "shared+" + hex(b), lane, i, &t);
    return;
  }
}

void Machine::watch(TouchedByte* touched, const std::byte* memory, std::size_t count, AccessKind kind, const char* space,
                    std::uint64_t address, int lane, const Instruction& i) {
  const auto thread = static_cast<std::uint16_t>(warp->index * warp_lanes + static_cast<std::uint32_t>(lane));
  const Touch now{static_cast<std::uint32_t>(&i - launch_.code->instructions.data()),
                  warp->clock[warp->index],
                  warp->synced,
                  executed_,
                  thread,
                  kind == AccessKind::load || kind == AccessKind::store ? std::uint8_t{0} : std::uint8_t{1},
                  asynchronous_,
                  warp->copies_open};
  const auto where = [&](std::size_t b) {
    return std::string(space) == "global" ? name_of(address + b) : std::string(space) + "+" + hex(address + b);
  };
  for (std::size_t b = 0; b < count; ++b) {
    TouchedByte& t = touched[b];
    if (t.write.thread != 0xFFFF && t.write.asynchronous == 1 && asynchronous_ != 1 &&
        t.write.group >= warps_[t.write.thread / warp_lanes].copies_done) {
      finding("race", space, where(b) + ", a copy that nobody has waited for", lane, i, &t.write);
      t.write.thread = 0xFFFF;
    }
    const bool both_atomic = t.write.atomic != 0 && now.atomic != 0;
    // Layouts that are replicated over threads store the same from several.
    const bool same = writes(kind) && storing_ != nullptr && t.write.pc == now.pc && memory[b] == storing_[b];
    if (t.write.thread != thread && !both_atomic && !same && !saw(t.write)) {
      if (writes(kind)) {
        finding("race", space, where(b), lane, i, &t.write);
        t.write.thread = 0xFFFF;  // told once
      } else {
        race_of_readers(
            {now.pc, thread, false}, space, [&] { return where(b); }, lane, i, t.write);
      }
    }
    if (!writes(kind)) {
      // Of several readers since the last write one of another warp is kept rather than one of the writer's.
      if (t.read.thread == 0xFFFF || t.read.thread == thread || saw(t.read) || t.read.thread / warp_lanes == t.write.thread / warp_lanes)
        t.read = now;
      continue;
    }
    if (t.read.thread != thread && !(t.read.atomic != 0 && now.atomic != 0) && !saw(t.read)) {
      race_of_readers(
          {t.read.pc, thread, true}, space, [&] { return where(b); }, lane, i, t.read);
      t.read.thread = 0xFFFF;
    }
    t.write = now;
    if (kind != AccessKind::atomic) t.read.thread = 0xFFFF;
  }
}

}  // namespace dodona::ptx
