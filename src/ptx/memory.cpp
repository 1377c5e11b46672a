// Loads and stores.
#include <array>

#include "ptx/lanes.h"
#include "ptx/mbarrier.h"
#include "ptx/memory_access.h"

namespace dodona::ptx {
namespace {

/// Flags of the instruction.
constexpr std::uint64_t is_signed = 1, is_strong = 2, is_acquire = 4;

std::uint64_t extended(std::uint64_t value, const Instruction& i) {
  if ((i.flags & is_signed) != 0) {
    const int unused = 64 - 8 * i.width;
    value = static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused);
  }
  return i.registers == 8 ? value : value & ((std::uint64_t{1} << 8 * i.registers) - 1);
}

template <Space space>
void load(Machine& m, const Instruction& i) {
  const Slot* const to = m.list(i);
  const std::size_t width = i.width, bytes = width * i.list_count;
  const AccessKind kind = (i.flags & is_strong) != 0 ? AccessKind::strong_load : AccessKind::load;
  for_lanes(m.mask, [&](int lane) {
    const std::uint64_t address = m.wide(i.slots[0])[lane] + i.immediate;
    const std::byte* const from = m.quick(space, address, bytes, kind, lane, i);
    for (std::size_t k = 0; k < i.list_count; ++k) {
      const std::uint64_t value = from == nullptr ? 0 : extended(load_bytes(from + k * width, width), i);
      if (i.registers == 8) {
        m.wide(to[k])[lane] = value;
      } else {
        m.narrow(to[k])[lane] = static_cast<std::uint32_t>(value);
      }
    }
    if ((i.flags & is_acquire) != 0) m.acquire(address);
  });
}

template <Space space>
void store(Machine& m, const Instruction& i) {
  const Slot* const from = m.list(i);
  const std::size_t width = i.width, bytes = width * i.list_count;
  const AccessKind kind = (i.flags & is_strong) != 0 ? AccessKind::strong_store : AccessKind::store;
  for_lanes(m.mask, [&](int lane) {
    const std::uint64_t address = m.wide(i.slots[0])[lane] + i.immediate;
    if ((i.flags & is_acquire) != 0) m.release(address);
    std::array<std::byte, 64> stored;
    for (std::size_t k = 0; k < i.list_count; ++k) {
      const std::uint64_t value = i.registers == 8 ? m.wide(from[k])[lane] : m.narrow(from[k])[lane];
      std::memcpy(stored.data() + k * width, &value, width);
    }
    m.set_stored(stored.data());
    std::byte* const to = m.quick(space, address, bytes, kind, lane, i);
    m.set_stored(nullptr);
    if (to != nullptr) std::memcpy(to, stored.data(), bytes);
  });
}

struct BySpace {
  Space space;
  Handler load, store;
};
constexpr BySpace handlers[] = {{Space::none, load<Space::none>, store<Space::none>},
                                {Space::global, load<Space::global>, store<Space::global>},
                                {Space::shared, load<Space::shared>, store<Space::shared>},
                                {Space::local, load<Space::local>, store<Space::local>},
                                {Space::constant, load<Space::constant>, store<Space::constant>},
                                {Space::parameter, load<Space::parameter>, store<Space::parameter>}};

/// st.async: each thread's bytes have come when they are stored.
void complete(Machine& m, const Instruction& i) {
  for_lanes(m.mask,
            [&](int lane) { complete_bytes(m, m.wide(i.slots[0])[lane] + i.immediate, static_cast<std::uint32_t>(i.flags), lane, i); });
}

}  // namespace

void assemble_completion(Assembler& a, const Operand& barrier, std::size_t bytes) {
  std::uint64_t offset = 0;
  const Slot at = a.address(barrier, offset);
  Instruction& i = a.emit(complete, {at});
  i.immediate = offset;
  i.flags = bytes;
  i.first = false;
}

bool assemble_memory(Assembler& a, const Statement& s, const Opcode& op) {
  const bool loads = op.name() != "st";
  // 128 bits are two numbers of 64 that lie together.
  const bool quad = bytes_of(op.type()) == 16;
  const std::size_t width = quad ? 8 : bytes_of(op.type());
  if (width == 0 || width > 8) throw NotThere{"its type is not there"};
  const bool completes = !loads && op.has("async");
  if (s.operands.size() < (completes ? 3U : 2U)) throw NotThere{"the number of operands is another"};
  const Operand &numbers = s.operands[loads ? 0 : 1], &place = s.operands[loads ? 1 : 0];
  const std::vector<Operand> parts = numbers.kind == OperandKind::vector ? numbers.parts : std::vector<Operand>{numbers};
  std::size_t expected = 1;
  for (const std::string_view part : {"v2", "v4", "v8"})
    if (op.has(part)) expected = static_cast<std::size_t>(part[1] - '0');
  if (parts.size() != expected) throw NotThere{"the number of registers is another"};

  std::uint64_t offset = 0;
  const Slot base = a.address(place, offset);
  std::vector<Slot> slots;
  int registers = 0;
  for (const Operand& part : parts) {
    int bytes = a.register_bytes(part);
    if (bytes == 0 || (bytes > 0 && static_cast<std::size_t>(bytes) < (quad ? 16 : width))) throw NotThere{"a register is too small"};
    if (bytes < 0) bytes = static_cast<int>(width);  // a constant, or nowhere
    registers = std::max(registers, bytes);
  }
  for (const Operand& part : parts) slots.push_back(loads ? a.destination(part, registers) : a.source(part, registers));
  if (quad) {
    if (slots.size() != 1) throw NotThere{"vectors of 128 bits are not there"};
    slots.push_back(slots[0] + 2);
    registers = 8;
  }
  const Space space = space_of(op);
  for (const BySpace& h : handlers) {
    if (h.space != space) continue;
    Instruction& i = a.emit(loads ? h.load : h.store, {base});
    i.family = loads ? InstructionFamily::load : InstructionFamily::store;
    i.immediate = offset;
    i.width = static_cast<std::uint8_t>(width);
    i.registers = static_cast<std::uint8_t>(registers);
    if (op.type()[0] == 's') i.flags |= is_signed;
    if (op.has("volatile") || op.has("relaxed") || op.has("acquire") || op.has("release")) i.flags |= is_strong;
    if (op.has("volatile") || op.has("acquire") || op.has("release")) i.flags |= is_acquire;
    if ((i.flags & is_strong) != 0 && space != Space::shared) a.uses_memory_of_others();
    i.sources = static_cast<std::uint8_t>(space);
    a.list(i, slots);
  }
  if (completes) assemble_completion(a, s.operands[2], width * slots.size());
  return true;
}

}  // namespace dodona::ptx
