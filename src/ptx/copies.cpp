// cp.async and cp.async.bulk. A copy is done when it is issued: a kernel that waits for its copies sees nothing else.
#include <algorithm>
#include <array>
#include <bit>

#include "ptx/atomics.h"
#include "ptx/copies.h"
#include "ptx/lanes.h"
#include "ptx/mbarrier.h"
#include "ptx/memory_access.h"
#include "ptx/tensor_map.h"

namespace dodona::ptx {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

void nothing(Machine&, const Instruction&) {}

/// What is touched meanwhile is touched by a copy.
class Asynchronous {
 public:
  Asynchronous(Machine& m, int kind) : machine_(m) { machine_.set_asynchronous(kind); }
  Asynchronous(const Asynchronous&) = delete;
  Asynchronous& operator=(const Asynchronous&) = delete;
  ~Asynchronous() { machine_.set_asynchronous(0); }

 private:
  Machine& machine_;
};

/// cp.async: `width` bytes, of which as many as slots[2] says are read; the rest is zero.
void copy(Machine& m, const Instruction& i) {
  const Asynchronous copying(m, 1);
  for_lanes(m.mask, [&](int lane) {
    const u64 to_address = m.wide(i.slots[0])[lane] + i.immediate, from_address = m.wide(i.slots[1])[lane] + i.flags;
    const std::size_t size = i.width;
    std::size_t count = size;
    if (i.slots[2] != no_slot) count = std::min<std::size_t>(m.narrow(i.slots[2])[lane], size);
    if (i.slots[3] != no_slot && (m.predicate(i.slots[3]) >> lane & 1) != 0) count = 0;
    const std::byte* from = nullptr;
    if (count == size) {
      from = m.quick(Space::global, from_address, size, AccessKind::load, lane, i);
    } else if (count > 0) {
      from = m.at(Space::global, from_address, count, AccessKind::load, lane, i);
    }
    std::array<std::byte, 16> copied{};
    if (from != nullptr) std::memcpy(copied.data(), from, count);
    m.set_stored(copied.data());
    std::byte* const to = m.quick(Space::shared, to_address, size, AccessKind::store, lane, i);
    m.set_stored(nullptr);
    if (to != nullptr) std::memcpy(to, copied.data(), size);
  });
}
void end_group(Machine& m, const Instruction&) {
  ++m.warp->copies_open;
}
void wait_for_groups(Machine& m, const Instruction& i) {
  if (i.flags != 0) ++m.warp->copies_open;  // all: the open one too
  const u32 open = m.warp->copies_open, left = static_cast<u32>(std::min<u64>(i.immediate, open));
  m.warp->copies_done = std::max(m.warp->copies_done, open - left);
}
void arrive_when_copied(Machine& m, const Instruction& i) {
  m.warp->copies_done = ++m.warp->copies_open;
  // Without .noinc the barrier counts the arrival beforehand: the sum is the same.
  if (i.flags == 0) return;
  for_lanes(m.mask, [&](int lane) { arrive(m, m.wide(i.slots[0])[lane] + i.immediate, 1, lane, i); });
}

/// flags of bulk copies.
constexpr u64 to_shared = 1, of_tensors = 2, reduces = 4, from_shared = 8;
constexpr std::string_view bulk_operations[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};

/// cp.async.bulk between shared and global memory: 16 bytes at a time, which is what sizes are multiples of.
void for_bytes(Machine& m, const Instruction& i, int lane, const std::function<void(const CopiedBytes&)>& body) {
  const u64 to = m.wide(i.slots[0])[lane], from = m.wide(i.slots[1])[lane];
  const u64 to_window = (i.flags & to_shared) != 0 ? shared_window : 0, from_window = (i.flags & from_shared) != 0 ? shared_window : 0;
  const u32 bytes = m.narrow(i.slots[2])[lane];
  const auto placed = [](u64 window, u64 address) { return window != 0 ? window + (address & 0xFFFFFFFFu) : address; };
  for (u32 b = 0; b < bytes; b += 16) body({placed(to_window, to + b), placed(from_window, from + b), 16, true});
}

/// cp.async.bulk.tensor: a box of the tensor, in the order of the map.
void for_box(Machine& m, const Instruction& i, int lane, const TensorBox& box, const std::function<void(const CopiedBytes&)>& body) {
  const Slot* const coordinates = m.list(i);
  const u64 base = m.wide(i.slots[0])[lane] & 0xFFFFFFFFu;
  std::array<std::int64_t, 5> at{};
  for (int d = 0; d < box.rank; ++d) at[static_cast<std::size_t>(d)] = static_cast<std::int32_t>(m.narrow(coordinates[d])[lane]);
  const u64 elements = box.elements();
  for (u64 e = 0; e < elements; ++e) {
    u64 rest = e, address = box.address;
    bool exists = true;
    for (int d = 0; d < box.rank; ++d) {
      const auto k = static_cast<std::size_t>(d);
      const u64 inside = rest % box.box[k];
      rest /= box.box[k];
      const std::int64_t place = at[k] + static_cast<std::int64_t>(inside) * box.element_strides[k];
      exists = exists && place >= 0 && static_cast<u64>(place) < box.shape[k];
      address += static_cast<u64>(place) * (d == 0 ? static_cast<u64>(box.element_bytes) : box.strides[k]);
    }
    const u64 shared = shared_window + base + box.swizzled(base, e * static_cast<u64>(box.element_bytes));
    if ((i.flags & to_shared) != 0) {
      body({shared, address, box.element_bytes, exists});
    } else {
      body({address, shared, box.element_bytes, exists});
    }
  }
}

/// What is there already takes in what comes: one number after the other.
void combine(Change change, std::size_t width, const std::byte* from, std::byte* to, std::size_t bytes) {
  for (std::size_t b = 0; b < bytes; b += width) {
    const u64 made = change(load_bytes(to + b, width), load_bytes(from + b, width), 0);
    std::memcpy(to + b, &made, width);
  }
}

void copy_bulk(Machine& m, const Instruction& i) {
  const Asynchronous copying(m, 2);
  const bool in = (i.flags & to_shared) != 0, tensors = (i.flags & of_tensors) != 0;
  const Space source = (i.flags & from_shared) != 0 ? Space::shared : Space::global;
  const AccessKind stores = (i.flags & reduces) != 0 ? AccessKind::atomic : AccessKind::store;
  for_lanes(m.mask, [&](int lane) {
    TensorBox box;
    if (tensors) {
      box = tensor_map_at(m, m.wide(i.slots[1])[lane], lane, i);
      if (box.rank != static_cast<int>(i.list_count))
        m.fail("the tensor map has " + std::to_string(box.rank) + " dimensions, the copy " + std::to_string(i.list_count), i);
      const u64 base = m.wide(i.slots[0])[lane] & 0xFFFFFFFFu;
      if (base % 128 != 0)
        m.finding("misaligned", "shared", "shared+" + std::to_string(base) + ", a bulk copy of tensors takes 128 bytes", lane, i);
    }
    auto change = reinterpret_cast<Change>(i.immediate);
    std::size_t width = i.width;
    if (tensors && (i.flags & reduces) != 0) {  // the map knows the type
      const std::string_view name = bulk_operations[i.immediate];
      change = find_bulk_change(name, box.type_name(), box.element_bytes);
      width = box.element_bytes;
      if (change == nullptr) m.fail("a tensor map of " + std::string(box.type_name()) + " takes no " + std::string(name), i);
    }
    if (!tensors)
      if (const u64 odd = (m.wide(i.slots[0])[lane] | m.wide(i.slots[1])[lane] | m.narrow(i.slots[2])[lane]) % 16; odd != 0)
        m.finding("misaligned", "shared", "a bulk copy of " + std::to_string(m.narrow(i.slots[2])[lane]) + " bytes: it takes sixteens",
                  lane, i);
    u32 moved = 0;
    const auto move = [&](const CopiedBytes& c) {
      moved += c.bytes;
      if (source == Space::shared && m.watching()) m.check_proxy(c.from & 0xFFFFFFFFu, c.bytes, lane, i);
      const std::byte* const from = c.exists || !in ? m.quick(source, c.from, c.bytes, AccessKind::load, lane, i) : nullptr;
      std::byte* const to = c.exists || in ? m.quick(in ? Space::shared : Space::global, c.to, c.bytes, stores, lane, i) : nullptr;
      if (to == nullptr) return;
      if (from == nullptr) {
        if (in && tensors) box.fill(to);
      } else if ((i.flags & reduces) != 0) {
        combine(change, width, from, to, c.bytes);
      } else {
        std::memcpy(to, from, c.bytes);
      }
    };
    if (tensors) {
      for_box(m, i, lane, box, move);
    } else {
      for_bytes(m, i, lane, move);
    }
    if (i.slots[3] != no_slot) complete_bytes(m, m.wide(i.slots[3])[lane], moved, lane, i);
  });
}

Slot plain_address(Assembler& a, const Operand& o) {
  std::uint64_t offset = 0;
  const Slot base = a.address(o, offset);
  if (offset == 0) return base;
  const Slot sum = a.scratch(true), by = a.constant(offset, true);
  a.emit(find_integer("add.u64")->run, {sum, base, by});
  return sum;
}

bool assemble_bulk(Assembler& a, const Statement& s, const Opcode& op) {
  if (op.has("commit_group") || op.has("wait_group") || op.has("prefetch")) {
    a.emit(nothing);
    return true;
  }
  if (op.has("im2col")) throw NotThere{};
  // Destination before source.
  std::vector<std::string_view> spaces;
  for (const std::string_view part : op.parts)
    if (part == "global" || part.starts_with("shared")) spaces.push_back(part);
  if (spaces.size() != 2 || s.operands.size() < 2) throw NotThere{};
  const bool in = spaces[0] != "global";
  const bool out_of_shared = spaces[1] != "global";
  u64 flags = (in ? to_shared : 0) | (out_of_shared ? from_shared : 0), change = 0;
  std::size_t width = 0;
  if (op.name() == "cp" && op.has("reduce")) {
    // cp.reduce.async.bulk.dst.src.completion.redOp.type; of tensors the type is the map's.
    const auto* const name = std::find_if(std::begin(bulk_operations), std::end(bulk_operations), [&](auto n) { return op.has(n); });
    if (name == std::end(bulk_operations) || !out_of_shared) throw NotThere{};
    width = bytes_of(op.type());
    change = op.has("tensor") ? static_cast<u64>(name - bulk_operations) : reinterpret_cast<u64>(find_bulk_change(*name, op.type(), width));
    if (!op.has("tensor") && change == 0) throw NotThere{};
    flags |= reduces;
    if (!in) a.uses_memory_of_others();
  }
  // A copy to several blocks of a cluster goes to this one: there are no others, whatever the mask says.
  if (op.has("tensor")) {
    const Operand& tensor = s.operands[in ? 1 : 0];
    const Operand& shared = s.operands[in ? 0 : 1];
    if (tensor.kind != OperandKind::address || tensor.parts.size() != 2) throw NotThere{"expected a tensor map and coordinates"};
    Operand map = tensor;
    map.parts.resize(1);
    const Slot map_slot = plain_address(a, map), shared_slot = plain_address(a, shared);
    const Slot barrier = in ? plain_address(a, s.operands.at(2)) : no_slot;
    std::vector<Slot> coordinates;
    for (const Operand& o : tensor.parts[1].parts) coordinates.push_back(a.source(o, 4));
    Instruction& i = a.emit(copy_bulk, {shared_slot, map_slot, no_slot, barrier});
    i.flags = flags | of_tensors;
    i.immediate = change;
    i.family = InstructionFamily::bulk;
    a.list(i, coordinates);
    if (!in) a.uses_memory_of_others();
    return true;
  }
  const Slot to = plain_address(a, s.operands[0]), from = plain_address(a, s.operands[1]), bytes = a.source(s.operands.at(2), 4);
  const Slot barrier = in ? plain_address(a, s.operands.at(3)) : no_slot;
  Instruction& i = a.emit(copy_bulk, {to, from, bytes, barrier});
  i.flags = flags;
  i.immediate = change;
  i.width = static_cast<std::uint8_t>(width);
  i.family = InstructionFamily::bulk;
  return true;
}

/// tensormap.replace.tile.FIELD...[map]{, ordinal}, value.
void replace_in_map(Machine& m, const Instruction& i) {
  for_lanes(m.mask, [&](int lane) {
    const u64 address = m.wide(i.slots[0])[lane] + i.immediate;
    const auto space = static_cast<Space>(i.sources);
    const std::byte* const from = m.at(space, address, sizeof(TensorBox), AccessKind::load, lane, i);
    if (from == nullptr) return;
    TensorBox box;
    std::memcpy(static_cast<void*>(&box), from, sizeof box);
    const u64 value = i.registers == 8 ? m.wide(i.slots[1])[lane] : m.narrow(i.slots[1])[lane];
    replace_field(m, box, static_cast<MapField>(i.width), i.flags, value, i);
    std::byte* const to = m.at(space, address, sizeof box, AccessKind::store, lane, i);
    if (to != nullptr) std::memcpy(to, &box, sizeof box);
  });
}
/// tensormap.cp_fenceproxy: a map from shared to global memory, by a whole warp.
void copy_map(Machine& m, const Instruction& i) {
  const int lane = std::countr_zero(m.mask);
  const std::byte* const from = m.at(Space::shared, m.wide(i.slots[1])[lane] + i.flags, sizeof(TensorBox), AccessKind::load, lane, i);
  std::byte* const to = m.at(Space::global, m.wide(i.slots[0])[lane] + i.immediate, sizeof(TensorBox), AccessKind::store, lane, i);
  if (from != nullptr && to != nullptr) std::memcpy(to, from, sizeof(TensorBox));
  m.meet();
}
bool assemble_map(Assembler& a, const Statement& s, const Opcode& op) {
  std::uint64_t offset = 0, from_offset = 0;
  if (op.has("cp_fenceproxy")) {
    if (s.operands.size() != 3) throw NotThere{"the number of operands is another"};
    const Slot to = a.address(s.operands[0], offset), from = a.address(s.operands[1], from_offset);
    Instruction& i = a.emit(copy_map, {to, from});
    i.immediate = offset;
    i.flags = from_offset;
    i.meeting = Meeting::whole;
    a.uses_memory_of_others();
    return true;
  }
  MapField field{};
  if (!op.has("replace") || op.parts.size() < 4 || !find_map_field(op.parts[3], field)) throw NotThere{};
  const bool ordinal = s.operands.size() == 3;
  if (!ordinal && s.operands.size() != 2) throw NotThere{"the number of operands is another"};
  if (ordinal && s.operands[1].kind != OperandKind::integer) throw NotThere{"expected the number of a dimension"};
  const int bytes = op.type() == "b64" ? 8 : 4;
  const Slot at = a.address(s.operands[0], offset), value = a.source(s.operands.back(), bytes);
  const Space space = space_of(op);
  Instruction& i = a.emit(replace_in_map, {at, value});
  i.immediate = offset;
  i.flags = ordinal ? s.operands[1].value : 0;
  i.registers = static_cast<std::uint8_t>(bytes);
  i.width = static_cast<std::uint8_t>(field);
  i.sources = static_cast<std::uint8_t>(space);
  if (space != Space::shared) a.uses_memory_of_others();
  return true;
}

}  // namespace

void for_copied(Machine& m, const Instruction& i, int lane, const std::function<void(const CopiedBytes&)>& body) {
  if ((i.flags & of_tensors) != 0) {
    for_box(m, i, lane, tensor_map_at(m, m.wide(i.slots[1])[lane], lane, i), body);
  } else {
    for_bytes(m, i, lane, body);
  }
}

bool assemble_copies(Assembler& a, const Statement& s, const Opcode& op) {
  if (op.name() == "tensormap") return assemble_map(a, s, op);
  if (!op.has("async")) return false;
  if (op.has("bulk")) return assemble_bulk(a, s, op);
  if (op.has("commit_group")) {
    a.emit(end_group);
    return true;
  }
  if (op.has("wait_group") || op.has("wait_all")) {
    Instruction& i = a.emit(wait_for_groups);
    i.flags = op.has("wait_all") ? 1 : 0;
    if (op.has("wait_group")) i.immediate = s.operands.at(0).value;
    return true;
  }
  std::uint64_t to_offset = 0, from_offset = 0;
  if (op.has("mbarrier")) {
    const Slot at = a.address(s.operands.at(0), to_offset);
    Instruction& i = a.emit(arrive_when_copied, {at});
    i.immediate = to_offset;
    i.flags = op.has("noinc") ? 1 : 0;
    return true;
  }
  if (s.operands.size() < 3 || s.operands[2].kind != OperandKind::integer) throw NotThere{"expected a size"};
  const u64 size = s.operands[2].value;
  if (size != 4 && size != 8 && size != 16) throw NotThere{"its size is none"};
  const Slot to = a.address(s.operands[0], to_offset), from = a.address(s.operands[1], from_offset);
  Slot count = no_slot, ignored = no_slot;
  if (s.operands.size() > 3) {
    const int bytes = a.register_bytes(s.operands[3]);
    if (bytes == 0) {
      ignored = a.source(s.operands[3], 0);
    } else if (bytes != 8) {
      count = a.source(s.operands[3], 4);
    }
  }
  Instruction& i = a.emit(copy, {to, from, count, ignored});
  i.immediate = to_offset;
  i.flags = from_offset;
  i.width = static_cast<std::uint8_t>(size);
  i.family = InstructionFamily::copy;
  return true;
}

}  // namespace dodona::ptx
