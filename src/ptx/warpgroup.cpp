// wgmma: four warps multiply matrices of shared memory; each does its sixteen
// rows when it comes to the instruction.
#include <algorithm>
#include <array>
#include <vector>

#include "ptx/assembler.h"
#include "ptx/fragments.h"
#include "ptx/half_sums.h"
#include "ptx/lanes.h"
#include "ptx/products.h"
#include "ptx/warpgroup.h"

namespace dodona::ptx {
namespace {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

/// Bytes of K that an instruction takes, of every type; of a matrix that a sparse one is multiplied with twice as many.
constexpr int k_bytes = 32, most_k_bytes = 2 * k_bytes;
constexpr int own_rows = 16, most_columns = 256;

struct Shape {
  MatrixType a, b;
  int columns;
  bool a_in_registers, a_transposed, b_transposed, half_sums, whole_sums, saturates, sparse;
};
constexpr Shape unpack(u64 f) {
  return {static_cast<MatrixType>(f & 15),
          static_cast<MatrixType>(f >> 4 & 15),
          static_cast<int>(f >> 8 & 511),
          (f >> 17 & 1) != 0,
          (f >> 18 & 1) != 0,
          (f >> 19 & 1) != 0,
          (f >> 20 & 1) != 0,
          (f >> 21 & 1) != 0,
          (f >> 22 & 1) != 0,
          (f >> 23 & 1) != 0};
}
constexpr u64 pack(const Shape& s) {
  return static_cast<u64>(s.a) | static_cast<u64>(s.b) << 4 | static_cast<u64>(s.columns) << 8 | static_cast<u64>(s.a_in_registers) << 17 |
         static_cast<u64>(s.a_transposed) << 18 | static_cast<u64>(s.b_transposed) << 19 | static_cast<u64>(s.half_sums) << 20 |
         static_cast<u64>(s.whole_sums) << 21 | static_cast<u64>(s.saturates) << 22 | static_cast<u64>(s.sparse) << 23;
}

/// A matrix descriptor: where rows of sixteen bytes lie.
struct Descriptor {
  u64 begin, leading, stride;  ///< bytes
  u64 row;                     ///< bytes of a swizzled row: 16, 32, 64 or 128
  u64 mask;                    ///< of the row's number that moves pieces
};
Descriptor read_descriptor(u64 d) {
  constexpr u64 rows[4] = {16, 128, 64, 32}, masks[4] = {0, 7, 3, 1};
  const u64 mode = d >> 62;
  return {(d & 0x3FFF) << 4, (d >> 16 & 0x3FFF) << 4, (d >> 32 & 0x3FFF) << 4, rows[mode], masks[mode]};
}
u64 swizzled(const Descriptor& d, u64 address) {
  return address ^ ((address >> 7 & d.mask) << 4);
}

/// Where a piece of a line lies: sixteen bytes along K, or, transposed, of eight lines at one place of K.
u64 piece_of(const Descriptor& d, u64 line, u64 piece) {
  // Without a swizzle the second piece lies a leading stride away; with one it is the row's next.
  const u64 along = d.row == 16 ? piece * d.leading : piece * 16;
  return swizzled(d, d.begin + line / 8 * d.stride + line % 8 * d.row + along) & 0x3FFFF;
}
u64 transposed_piece_of(const Descriptor& d, u64 line, u64 k) {
  const u64 together = d.row / 2;
  return swizzled(d, d.begin + line / together * d.leading + k / 8 * d.stride + k % 8 * d.row + line % together * 2) & 0x3FFFF;
}

/// Lines [first, first + count) of a matrix whose K is contiguous, packed.
void read_k_major(Machine& m, const Descriptor& d, u64 first, u64 count, u64 pieces, u8* to, const Instruction& i) {
  for (u64 line = first; line < first + count; ++line)
    for (u64 piece = 0; piece < pieces; ++piece) {
      const u64 at = piece_of(d, line, piece);
      const std::byte* const from = m.quick(Space::shared, at, 16, AccessKind::load, 0, i);
      if (m.watching()) m.check_proxy(at, 16, 0, i);
      if (from == nullptr) {
        std::memset(to, 0, 16);
      } else {
        std::memcpy(to, from, 16);
      }
      to += 16;
    }
}
/// The same of a matrix whose lines lie side by side, of 16-bit numbers: pieces
/// of eight lines at one place of K.
void read_transposed(Machine& m, const Descriptor& d, u64 first, u64 count, u64 pieces, u8* to, const Instruction& i) {
  for (u64 k = 0; k < 8 * pieces; ++k)
    for (u64 line = first; line < first + count; line += 8) {
      const u64 at = transposed_piece_of(d, line, k);
      const std::byte* const from = m.quick(Space::shared, at, 16, AccessKind::load, 0, i);
      if (m.watching()) m.check_proxy(at, 16, 0, i);
      for (u64 l = 0; l < 8; ++l) {
        u8* const place = to + (line - first + l) * 16 * pieces + 2 * k;
        if (from == nullptr) {
          std::memset(place, 0, 2);
        } else {
          std::memcpy(place, from + 2 * l, 2);
        }
      }
    }
}
void read_lines(Machine& m, u64 descriptor, bool transposed, u64 first, u64 count, u8* to, const Instruction& i, int bytes = k_bytes) {
  const Descriptor d = read_descriptor(descriptor);
  (transposed ? read_transposed : read_k_major)(m, d, first, count, static_cast<u64>(bytes / 16), to, i);
}

/// A matrix of shared memory. Where nobody has written to its pages since it was read, and nothing is watched, it is not read again.
class SharedSource : public OperandSource {
 public:
  SharedSource(Machine& m, const Instruction& i, u64 descriptor, bool transposed, u64 first, u64 count)
      : machine_(m), instruction_(i), descriptor_(descriptor), transposed_(transposed), first_(first), count_(count) {}

  bool refresh(KnownCodes& known) const override {
    const u64 place = descriptor_ * 2 + transposed_;
    if (!machine_.watching() && known.place == place && machine_.last_write(known.first_page, known.last_page) < known.stamp) return true;
    std::array<u8, most_columns * k_bytes> now;
    read_lines(machine_, descriptor_, transposed_, first_, count_, now.data(), instruction_);
    known.place = place;
    known.stamp = machine_.write_stamp();
    place_pages(known);
    const std::size_t bytes = count_ * k_bytes;
    if (known.codes.size() == bytes && std::memcmp(known.codes.data(), now.data(), bytes) == 0) return true;
    const auto* const begin = reinterpret_cast<const std::byte*>(now.data());
    known.codes.assign(begin, begin + bytes);
    return false;
  }
  void lay_out(const KnownCodes& known, std::byte* lines, std::size_t bytes) const override {
    for (std::size_t n = 0; n < count_; ++n) std::memcpy(lines + n * bytes, known.codes.data() + n * k_bytes, k_bytes);
  }

 private:
  /// Pages between the first and the last byte that a line can have: a swizzle moves pieces within 128 bytes.
  void place_pages(KnownCodes& known) const {
    const Descriptor d = read_descriptor(descriptor_);
    u64 lowest = ~u64{0}, highest = 0;
    const auto take = [&](u64 at) {
      lowest = std::min(lowest, at & ~u64{127});
      highest = std::max(highest, at | 127);
    };
    for (u64 line = first_; line < first_ + count_; line += 8) {
      for (const u64 end : {line, line + 7})
        for (u64 piece = 0; piece < 2 && !transposed_; ++piece) take(piece_of(d, end, piece));
      for (u64 k = 0; k < 16 && transposed_; ++k) take(transposed_piece_of(d, line, k));
    }
    known.first_page = static_cast<u32>(lowest / shared_page);
    known.last_page = static_cast<u32>(highest / shared_page);
  }

  Machine& machine_;
  const Instruction& instruction_;
  u64 descriptor_;
  bool transposed_;
  u64 first_, count_;
};

/// Registers that were written since wgmma used them need a wgmma.fence.
void check_fence(Machine& m, const Slot* d, std::size_t count, const Instruction& i) {
  Warp& w = *m.warp;
  if (!w.wgmma_fenced) {
    m.finding("wgmma_fence", "", "", 0, i);
    w.wgmma_fenced = true;
  }
  const auto left = w.accumulators.find(d[0]);
  if (left == w.accumulators.end()) return;
  for (std::size_t r = 0; r < count && left->second.size() == count * warp_lanes; ++r)
    if (std::memcmp(left->second.data() + r * warp_lanes, m.row(d[r]), row_bytes) != 0) {
      m.finding("wgmma_fence", "", "", 0, i);
      return;
    }
}

/// What came of a wgmma is watched until it has been waited for.
void keep_watch(Machine& m, const Slot* d, std::size_t registers) {
  std::vector<u32>& kept = m.warp->accumulators[d[0]];
  kept.resize(registers * warp_lanes);
  for (std::size_t r = 0; r < registers; ++r) m.warp->in_flight[d[r]] = m.warp->products_open;
  for (std::size_t r = 0; r < registers; ++r) std::memcpy(kept.data() + r * warp_lanes, m.row(d[r]), row_bytes);
}

/// wgmma.mma_async.sp: the list ends with the metadata's register, as mma.sp has it of sixteen rows. Columns by eights.
void multiply_sparse(Machine& m, const Instruction& i) {
  const Shape s = unpack(i.flags);
  const auto registers = static_cast<std::size_t>(s.half_sums ? s.columns / 4 : s.columns / 2);
  const Slot* const d = m.list(i);
  if (m.mask != m.warp->live || m.mask != all_lanes) m.fail("wgmma takes whole warps", i);
  if (m.watching()) check_fence(m, d, registers, i);
  const bool adds = i.slots[3] == no_slot ? i.immediate != 0 : (m.predicate(i.slots[3]) & 1) != 0;
  const Isa isa = m.launch().isa;
  std::array<u8, own_rows * k_bytes> left;
  std::array<u8, most_columns * most_k_bytes> right;
  if (s.a_in_registers) {
    std::array<const u32*, 4> a{};
    for (std::size_t r = 0; r < a.size(); ++r) a[r] = m.narrow(d[registers + r]);
    lay_out_fragment(a.data(), a.size(), own_rows, left.data(), k_bytes / 4);
  } else {
    read_lines(m, m.wide(i.slots[1])[0], s.a_transposed, u64{m.warp->index % 4} * own_rows, own_rows, left.data(), i);
  }
  read_lines(m, m.wide(i.slots[2])[0], s.b_transposed, 0, static_cast<u64>(s.columns), right.data(), i, most_k_bytes);
  const int k = most_k_bytes / bytes_of(s.a);
  const SparsePlaces places = sparse_places(s.a, k, m.narrow(d[i.list_count - 1]), i.target);
  for (std::size_t n = 0; n < static_cast<std::size_t>(s.columns / 8); ++n) {
    const u8* const columns = right.data() + n * 8 * most_k_bytes;
    std::array<u32*, 4> block{};
    for (std::size_t r = 0; r < block.size() && !s.half_sums; ++r) block[r] = m.narrow(d[4 * n + r]);
    if (s.whole_sums) {
      std::array<std::int32_t, 8 * own_rows> sums{};
      if (adds) dispatch<SpreadSums>(isa, block.data(), block.size(), sums.data());
      add_sparse_whole_products(s.a, left.data(), s.b, columns, places, k, sums.data(), s.saturates);
      dispatch<GatherSums>(isa, sums.data(), block.size(), block.data());
      continue;
    }
    std::array<float, 8 * own_rows> sums{};
    if (s.half_sums) {
      if (adds) spread_halves(m, d + 2 * n, sums.data());
      add_sparse_products(Unit::wgmma, s.a, left.data(), s.b, columns, places, k, true, sums.data());
      gather_halves(m, sums.data(), d + 2 * n);
    } else {
      if (adds) dispatch<SpreadSums>(isa, block.data(), block.size(), sums.data());
      add_sparse_products(Unit::wgmma, s.a, left.data(), s.b, columns, places, k, false, sums.data());
      dispatch<GatherSums>(isa, sums.data(), block.size(), block.data());
    }
  }
  if (m.watching()) keep_watch(m, d, registers);
}

void multiply(Machine& m, const Instruction& i) {
  const Shape s = unpack(i.flags);
  const int registers = s.half_sums ? s.columns / 4 : s.columns / 2;
  const Slot* const d = m.list(i);
  if (m.mask != m.warp->live || m.mask != all_lanes) m.fail("wgmma takes whole warps", i);
  if (m.watching()) check_fence(m, d, static_cast<std::size_t>(registers), i);

  const Isa isa = m.launch().isa;
  const bool adds = i.slots[3] == no_slot ? i.immediate != 0 : (m.predicate(i.slots[3]) & 1) != 0;
  const int k = k_bytes / bytes_of(s.a);
  std::array<const u32*, 4> a_registers{};
  for (std::size_t r = 0; r < 4 && s.a_in_registers; ++r) a_registers[r] = m.narrow(d[static_cast<std::size_t>(registers) + r]);
  std::array<u32*, most_columns / 2> sums_registers;
  for (std::size_t r = 0; r < static_cast<std::size_t>(registers); ++r) sums_registers[r] = m.narrow(d[r]);
  const auto numbers = static_cast<std::size_t>(s.columns / 2);
  const u64 a_descriptor = s.a_in_registers ? 0 : m.wide(i.slots[1])[0], b_descriptor = m.wide(i.slots[2])[0],
            first = u64{m.warp->index % 4} * own_rows;
  const FragmentSource left_registers(isa, a_registers, own_rows);
  const SharedSource left_shared(m, i, a_descriptor, s.a_transposed, first, own_rows),
      right_shared(m, i, b_descriptor, s.b_transposed, 0, static_cast<u64>(s.columns));

  if (!s.whole_sums && !s.half_sums && s.a != MatrixType::tf32) {
    alignas(64) std::array<float, most_columns * own_rows> sums;
    if (adds) {
      dispatch<SpreadSums>(isa, sums_registers.data(), numbers, sums.data());
    } else {
      std::fill_n(sums.begin(), s.columns * own_rows, 0.0f);
    }
    const OperandSource& left = s.a_in_registers ? static_cast<const OperandSource&>(left_registers) : left_shared;
    const u64 a_key = s.a_in_registers ? d[registers] : a_descriptor * 4 + m.warp->index % 4;
    m.tiles().add(Unit::wgmma, {s.a, left, a_key}, {s.b, right_shared, b_descriptor}, s.columns, k, sums.data());
    dispatch<GatherSums>(isa, sums.data(), numbers, sums_registers.data());
  } else {
    std::array<u8, own_rows * k_bytes> left;
    std::array<u8, most_columns * k_bytes> right;
    if (s.a_in_registers) {
      lay_out_fragment(a_registers.data(), a_registers.size(), own_rows, left.data(), k_bytes / 4);
    } else {
      read_lines(m, a_descriptor, s.a_transposed, first, own_rows, left.data(), i);
    }
    read_lines(m, b_descriptor, s.b_transposed, 0, static_cast<u64>(s.columns), right.data(), i);
    if (s.whole_sums) {
      std::array<std::int32_t, most_columns * own_rows> sums{};
      if (adds) dispatch<SpreadSums>(isa, sums_registers.data(), numbers, sums.data());
      add_whole_products(s.a, left.data(), s.b, right.data(), s.columns, k, sums.data(), s.saturates);
      dispatch<GatherSums>(isa, sums.data(), numbers, sums_registers.data());
    } else if (s.half_sums) {
      std::array<float, most_columns * own_rows> sums{};
      for (int n = 0; n < s.columns / 8 && adds; ++n) spread_halves(m, d + 2 * n, sums.data() + n * 8 * own_rows);
      add_half_products(s.a, left.data(), s.b, right.data(), s.columns, k, sums.data());
      for (int n = 0; n < s.columns / 8; ++n) gather_halves(m, sums.data() + n * 8 * own_rows, d + 2 * n);
    } else {
      std::array<float, most_columns * own_rows> sums{};
      if (adds) dispatch<SpreadSums>(isa, sums_registers.data(), numbers, sums.data());
      add_tf32_products(left.data(), right.data(), s.columns, k, sums.data());
      dispatch<GatherSums>(isa, sums.data(), numbers, sums_registers.data());
    }
  }
  if (m.watching()) keep_watch(m, d, static_cast<std::size_t>(registers));
}

void fence(Machine& m, const Instruction&) {
  m.warp->wgmma_fenced = true;
  m.warp->accumulators.clear();
}
void end_group(Machine& m, const Instruction&) {
  ++m.warp->products_open;
}
void wait_for_groups(Machine& m, const Instruction& i) {
  std::erase_if(m.warp->in_flight, [&](const auto& flying) { return flying.second + i.immediate < m.warp->products_open; });
}

std::vector<u64> line_of(u64 descriptor, bool transposed, int line, int bytes) {
  const Descriptor d = read_descriptor(descriptor);
  const auto l = static_cast<u64>(line);
  std::vector<u64> addresses;
  for (u64 at = 0; at < k_bytes; at += static_cast<u64>(bytes))
    addresses.push_back(transposed ? transposed_piece_of(d, l / 8 * 8, at / 2) + l % 8 * 2 : piece_of(d, l, at / 16) + at % 16);
  return addresses;
}

}  // namespace

bool describe(Machine& m, const Instruction& i, WarpgroupProduct& product) {
  if (i.run != multiply) return false;
  const Shape s = unpack(i.flags);
  product.columns = s.columns;
  product.bytes = bytes_of(s.a);
  product.half_sums = s.half_sums;
  product.a_in_registers = s.a_in_registers;
  product.sums = m.list(i);
  product.a = product.sums + (s.half_sums ? s.columns / 4 : s.columns / 2);
  product.adds = i.slots[3] == no_slot ? i.immediate != 0 : (m.predicate(i.slots[3]) & 1) != 0;
  return true;
}
std::vector<u64> WarpgroupProduct::a_line(Machine& m, const Instruction& i, int line) const {
  return line_of(m.wide(i.slots[1])[0], unpack(i.flags).a_transposed, static_cast<int>(m.warp->index % 4) * own_rows + line, bytes);
}
std::vector<u64> WarpgroupProduct::b_line(Machine& m, const Instruction& i, int line) const {
  return line_of(m.wide(i.slots[2])[0], unpack(i.flags).b_transposed, line, bytes);
}

bool assemble_warpgroup(Assembler& a, const Statement& s, const Opcode& op) {
  if (op.has("fence")) {
    Instruction& i = a.emit(fence);
    i.meeting = Meeting::whole;
    i.family = InstructionFamily::warpgroup;
    return true;
  }
  if (op.has("commit_group") || op.has("wait_group")) {
    Instruction& i = a.emit(op.has("wait_group") ? wait_for_groups : end_group);
    i.meeting = Meeting::whole;
    i.family = InstructionFamily::warpgroup;
    if (op.has("wait_group") && !s.operands.empty()) i.immediate = s.operands[0].value;
    return true;
  }
  const bool sparse = op.has("sp");
  // A sparse one has its metadata and a selector behind the matrices.
  const std::size_t behind = sparse ? 5 : 3;
  if (!op.has("mma_async") || s.operands.size() <= behind) throw NotThere{};
  std::string_view size;
  for (const std::string_view part : op.parts)
    if (part.starts_with("m64n")) size = part;
  if (size.empty()) throw NotThere{};
  Shape shape{};
  shape.columns = std::stoi(std::string(size.substr(4)));
  shape.a = matrix_type(op.behind(1));
  shape.b = matrix_type(op.behind(0));
  shape.half_sums = op.behind(2) == "f16";
  shape.whole_sums = op.behind(2) == "s32";
  shape.saturates = op.has("satfinite");
  shape.sparse = sparse;
  if (shape.a == MatrixType::none || shape.b == MatrixType::none || bytes_of(shape.a) != bytes_of(shape.b)) throw NotThere{};
  if (!shape.half_sums && !shape.whole_sums && op.behind(2) != "f32") throw NotThere{};
  if (shape.half_sums && shape.a != MatrixType::f16) throw NotThere{};
  if (shape.columns % 8 != 0 || shape.columns < 8 || shape.columns > 256) throw NotThere{"its size is none"};

  const std::size_t registers = static_cast<std::size_t>(shape.half_sums ? shape.columns / 4 : shape.columns / 2);
  if (s.operands[0].parts.size() != registers) throw NotThere{"the number of registers is another"};
  shape.a_in_registers = s.operands[1].kind == OperandKind::vector;
  // {d}, a, b, scale-d, then for floats the signs of a and b, then for 16 bits
  // whether they are transposed.
  const auto number = [&](std::size_t k, u64 otherwise) {
    if (k >= s.operands.size()) return otherwise;
    if (s.operands[k].kind != OperandKind::integer) throw NotThere{"expected a number"};
    return s.operands[k].value;
  };
  if (!shape.whole_sums && (number(behind + 1, 1) != 1 || number(behind + 2, 1) != 1)) throw NotThere{"negated factors are not there"};
  if (bytes_of(shape.a) == 2) {
    shape.a_transposed = !shape.a_in_registers && number(behind + 3, 0) != 0;
    shape.b_transposed = number(behind + (shape.a_in_registers ? 3 : 4), 0) != 0;
  }
  std::vector<Slot> slots;
  for (const Operand& o : s.operands[0].parts) slots.push_back(a.destination(o, 4));
  Slot left = no_slot;
  if (shape.a_in_registers) {
    if (s.operands[1].parts.size() != 4) throw NotThere{"the number of registers is another"};
    for (const Operand& o : s.operands[1].parts) slots.push_back(a.source(o, 4));
  } else {
    left = a.source(s.operands[1], 8);
  }
  const Slot right = a.source(s.operands[2], 8);
  if (sparse) {
    const u64 selectors = bytes_of(shape.a) == 1 ? 1 : 2;
    if (s.operands[4].kind != OperandKind::integer || s.operands[4].value >= selectors)
      throw NotThere{"the sparsity selector is none: expected a number below " + std::to_string(selectors)};
    slots.push_back(a.source(s.operands[3], 4));
  }
  const Operand& scale = s.operands[behind];
  const bool fixed = scale.kind == OperandKind::integer;
  const Slot adds = fixed ? no_slot : a.source(scale, 0);
  Instruction& i = a.emit(sparse ? multiply_sparse : multiply, {no_slot, left, right, adds});
  i.flags = pack(shape);
  i.family = InstructionFamily::warpgroup;
  i.immediate = fixed ? scale.value : 0;
  if (sparse) {
    i.target = static_cast<u32>(s.operands[4].value);
    i.registers = static_cast<std::uint8_t>(registers);
  }
  i.meeting = Meeting::whole;
  a.list(i, slots);
  return true;
}

}  // namespace dodona::ptx
