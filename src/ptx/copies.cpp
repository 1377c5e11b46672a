// cp.async and cp.async.bulk. A copy is done when it is issued: a kernel that waits for its copies sees nothing else.
#include <algorithm>
#include <array>

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

/// cp.async.bulk between shared and global memory: 16 bytes at a time, which is what sizes are multiples of.
void copy_bulk(Machine& m, const Instruction& i) {
  const Asynchronous copying(m, 2);
  for_lanes(m.mask, [&](int lane) {
    const bool to_shared = (i.flags & 1) != 0;
    const u64 to_address = m.wide(i.slots[0])[lane], from_address = m.wide(i.slots[1])[lane];
    const u32 bytes = m.narrow(i.slots[2])[lane];
    for (u32 b = 0; b < bytes; b += 16) {
      const std::byte* const from = m.at(to_shared ? Space::global : Space::shared, from_address + b, 16, AccessKind::load, lane, i);
      std::byte* const to = m.at(to_shared ? Space::shared : Space::global, to_address + b, 16, AccessKind::store, lane, i);
      if (from != nullptr && to != nullptr) std::memcpy(to, from, 16);
    }
    if (to_shared) complete_bytes(m, m.wide(i.slots[3])[lane], bytes, lane, i);
  });
}

/// cp.async.bulk.tensor: a box of the tensor, in the order of the map; what lies outside is filled.
void copy_tensor(Machine& m, const Instruction& i) {
  const Asynchronous copying(m, 2);
  const Slot* const coordinates = m.list(i);
  for_lanes(m.mask, [&](int lane) {
    const bool to_shared = (i.flags & 1) != 0;
    const TensorBox box = tensor_map_at(m, m.wide(i.slots[1])[lane], lane, i);
    if (box.rank != static_cast<int>(i.list_count))
      m.fail("the tensor map has " + std::to_string(box.rank) + " dimensions, the copy " + std::to_string(i.list_count), i);
    const u64 base = m.wide(i.slots[0])[lane] & 0xFFFFFFFFu;
    if (base % 128 != 0)
      m.finding("misaligned", "shared", "shared+" + std::to_string(base) + ", a bulk copy of tensors takes 128 bytes", lane, i);
    std::array<std::int64_t, 5> at{};
    for (int d = 0; d < box.rank; ++d) at[static_cast<std::size_t>(d)] = static_cast<std::int32_t>(m.narrow(coordinates[d])[lane]);
    std::array<u32, 5> inside{};
    const u64 elements = box.elements();
    for (u64 e = 0; e < elements; ++e) {
      u64 rest = e, address = box.address;
      bool exists = true;
      for (int d = 0; d < box.rank; ++d) {
        const auto k = static_cast<std::size_t>(d);
        inside[k] = static_cast<u32>(rest % box.box[k]);
        rest /= box.box[k];
        const std::int64_t place = at[k] + static_cast<std::int64_t>(inside[k]) * box.element_strides[k];
        exists = exists && place >= 0 && static_cast<u64>(place) < box.shape[k];
        address += static_cast<u64>(place) * (d == 0 ? static_cast<u64>(box.element_bytes) : box.strides[k]);
      }
      const u64 shared = base + box.swizzled(base, e * static_cast<u64>(box.element_bytes));
      const auto size = static_cast<std::size_t>(box.element_bytes);
      if (to_shared) {
        std::byte* const to = m.quick(Space::shared, shared, size, AccessKind::store, lane, i);
        const std::byte* const from = exists ? m.quick(Space::global, address, size, AccessKind::load, lane, i) : nullptr;
        if (to == nullptr) continue;
        if (from != nullptr) {
          std::memcpy(to, from, size);
        } else {
          box.fill(to);
        }
      } else {
        const std::byte* const from = m.quick(Space::shared, shared, size, AccessKind::load, lane, i);
        std::byte* const to = exists ? m.quick(Space::global, address, size, AccessKind::store, lane, i) : nullptr;
        if (from != nullptr && to != nullptr) std::memcpy(to, from, size);
      }
    }
    if (to_shared) complete_bytes(m, m.wide(i.slots[2])[lane], static_cast<u32>(elements * static_cast<u64>(box.element_bytes)), lane, i);
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
  if (op.has("reduce") || op.has("multicast::cluster") || op.has("im2col")) throw NotThere{};
  // Destination before source.
  std::vector<std::string_view> spaces;
  for (const std::string_view part : op.parts)
    if (part == "global" || part.starts_with("shared")) spaces.push_back(part);
  if (spaces.size() != 2 || s.operands.size() < 2) throw NotThere{};
  const bool to_shared = spaces[0] != "global";
  if (op.has("tensor")) {
    const Operand& tensor = s.operands[to_shared ? 1 : 0];
    const Operand& shared = s.operands[to_shared ? 0 : 1];
    if (tensor.kind != OperandKind::address || tensor.parts.size() != 2) throw NotThere{"expected a tensor map and coordinates"};
    Operand map = tensor;
    map.parts.resize(1);
    const Slot map_slot = plain_address(a, map), shared_slot = plain_address(a, shared);
    const Slot barrier = to_shared ? plain_address(a, s.operands.at(2)) : no_slot;
    std::vector<Slot> coordinates;
    for (const Operand& o : tensor.parts[1].parts) coordinates.push_back(a.source(o, 4));
    Instruction& i = a.emit(copy_tensor, {shared_slot, map_slot, barrier});
    i.flags = to_shared ? 1 : 0;
    a.list(i, coordinates);
    if (!to_shared) a.uses_memory_of_others();
    return true;
  }
  const Slot to = plain_address(a, s.operands[0]), from = plain_address(a, s.operands[1]), bytes = a.source(s.operands.at(2), 4);
  const Slot barrier = to_shared ? plain_address(a, s.operands.at(3)) : no_slot;
  a.emit(copy_bulk, {to, from, bytes, barrier}).flags = to_shared ? 1 : 0;
  return true;
}

}  // namespace

bool assemble_copies(Assembler& a, const Statement& s, const Opcode& op) {
  if (op.name() == "tensormap") throw NotThere{};
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
