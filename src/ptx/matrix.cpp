// ldmatrix, stmatrix, movmatrix and mma.sync: matrices whose pieces lie in the
// registers of a warp.
#include <array>

#include "ptx/assembler.h"
#include "ptx/lanes.h"
#include "ptx/products.h"
#include "quant/half.h"

namespace dodona::ptx {
namespace {

using u16 = std::uint16_t;
using u32 = std::uint32_t;

/// Pieces of eight rows of sixteen bytes: lanes 8j to 8j + 7 have the addresses
/// of matrix j.
void load_matrices(Machine& m, const Instruction& i) {
  m.meet();
  const Slot* const to = m.list(i);
  std::array<std::array<u16, 8>, 8> matrix{};
  for (u32 j = 0; j < i.list_count; ++j) {
    for (int r = 0; r < 8; ++r) {
      const int lane = static_cast<int>(8 * j) + r;
      const std::byte* const from = m.quick(Space::shared, m.wide(i.slots[0])[lane] + i.immediate, 16, AccessKind::load, lane, i);
      auto& row = matrix[static_cast<std::size_t>(r)];
      if (from == nullptr) {
        row = {};
      } else {
        std::memcpy(row.data(), from, 16);
      }
    }
    for (int lane = 0; lane < warp_lanes; ++lane) {
      const auto g = static_cast<std::size_t>(lane / 4), c = static_cast<std::size_t>(2 * (lane % 4));
      const u32 low = i.flags != 0 ? matrix[c][g] : matrix[g][c], high = i.flags != 0 ? matrix[c + 1][g] : matrix[g][c + 1];
      m.narrow(to[j])[lane] = high << 16 | low;
    }
  }
}
void store_matrices(Machine& m, const Instruction& i) {
  m.meet();
  const Slot* const from = m.list(i);
  std::array<std::array<u16, 8>, 8> matrix{};
  for (u32 j = 0; j < i.list_count; ++j) {
    for (int lane = 0; lane < warp_lanes; ++lane) {
      const auto g = static_cast<std::size_t>(lane / 4), c = static_cast<std::size_t>(2 * (lane % 4));
      const u32 pair = m.narrow(from[j])[lane];
      (i.flags != 0 ? matrix[c][g] : matrix[g][c]) = static_cast<u16>(pair);
      (i.flags != 0 ? matrix[c + 1][g] : matrix[g][c + 1]) = static_cast<u16>(pair >> 16);
    }
    for (int r = 0; r < 8; ++r) {
      const int lane = static_cast<int>(8 * j) + r;
      m.set_stored(matrix[static_cast<std::size_t>(r)].data());
      std::byte* const to = m.quick(Space::shared, m.wide(i.slots[0])[lane] + i.immediate, 16, AccessKind::store, lane, i);
      m.set_stored(nullptr);
      if (to != nullptr) std::memcpy(to, matrix[static_cast<std::size_t>(r)].data(), 16);
    }
  }
}
void transpose(Machine& m, const Instruction& i) {
  m.meet();
  std::array<std::array<u16, 8>, 8> matrix{};
  for (int lane = 0; lane < warp_lanes; ++lane) {
    const auto g = static_cast<std::size_t>(lane / 4), c = static_cast<std::size_t>(2 * (lane % 4));
    matrix[g][c] = static_cast<u16>(m.narrow(i.slots[1])[lane]);
    matrix[g][c + 1] = static_cast<u16>(m.narrow(i.slots[1])[lane] >> 16);
  }
  for (int lane = 0; lane < warp_lanes; ++lane) {
    const auto g = static_cast<std::size_t>(lane / 4), c = static_cast<std::size_t>(2 * (lane % 4));
    m.narrow(i.slots[0])[lane] = u32{matrix[c + 1][g]} << 16 | matrix[c][g];
  }
}

/// Of mma.sync: a register holds 4 / size neighbours of a row; the next
/// registers are 8 rows down, then a quarter of K on.
struct MmaShape {
  MatrixType a, b;
  int a_registers, b_registers, k;
  bool half_sums, whole_sums, saturates;
};
constexpr MmaShape unpack(std::uint64_t flags) {
  return {static_cast<MatrixType>(flags & 15),
          static_cast<MatrixType>(flags >> 4 & 15),
          static_cast<int>(flags >> 8 & 15),
          static_cast<int>(flags >> 12 & 15),
          static_cast<int>(flags >> 16 & 255),
          (flags >> 24 & 1) != 0,
          (flags >> 25 & 1) != 0,
          (flags >> 26 & 1) != 0};
}
constexpr std::uint64_t pack(const MmaShape& s) {
  return static_cast<std::uint64_t>(s.a) | static_cast<std::uint64_t>(s.b) << 4 | static_cast<std::uint64_t>(s.a_registers) << 8 |
         static_cast<std::uint64_t>(s.b_registers) << 12 | static_cast<std::uint64_t>(s.k) << 16 |
         static_cast<std::uint64_t>(s.half_sums) << 24 | static_cast<std::uint64_t>(s.whole_sums) << 25 |
         static_cast<std::uint64_t>(s.saturates) << 26;
}

void multiply(Machine& m, const Instruction& i) {
  m.meet();
  const MmaShape shape = unpack(i.flags);
  const Slot* slots = m.list(i);
  const int sums_registers = shape.half_sums ? 2 : 4;
  const Slot *const d = slots, *const a = d + sums_registers, *const b = a + shape.a_registers, *const c = b + shape.b_registers;
  // Words of four bytes: rows of `words`.
  const auto words = static_cast<std::size_t>(shape.k * bytes_of(shape.a) / 4);
  std::array<u32, 16 * 8> left;
  std::array<u32, 8 * 8> right;
  for (std::size_t r = 0; r < static_cast<std::size_t>(shape.a_registers); ++r)
    spread_words(m.narrow(a[r]), left.data() + 8 * (r & 1) * words + 4 * (r >> 1), words);
  for (std::size_t r = 0; r < static_cast<std::size_t>(shape.b_registers); ++r) spread_words(m.narrow(b[r]), right.data() + 4 * r, words);
  // Sums, transposed: [8][16].
  if (shape.whole_sums) {
    std::array<std::int32_t, 8 * 16> whole;
    for (int r = 0; r < 4; ++r) spread_sums(m.narrow(c[r]), whole.data() + sum_offset(r));
    add_whole_products(shape.a, left.data(), shape.b, right.data(), 8, shape.k, whole.data(), shape.saturates);
    for (int r = 0; r < 4; ++r) gather_sums(whole.data() + sum_offset(r), m.narrow(d[r]));
    return;
  }
  std::array<float, 8 * 16> sums;
  if (!shape.half_sums) {
    for (int r = 0; r < 4; ++r) spread_sums(m.narrow(c[r]), sums.data() + sum_offset(r));
    m.tiles().add(Unit::mma_sync, {shape.a, left.data(), a[0]}, {shape.b, right.data(), b[0]}, 8, shape.k, sums.data());
    for (int r = 0; r < 4; ++r) gather_sums(sums.data() + sum_offset(r), m.narrow(d[r]));
    return;
  }
  for (int r = 0; r < 4; ++r)
    for (int lane = 0; lane < warp_lanes; ++lane) {
      const u32 pair = m.narrow(c[r >> 1])[lane];
      sums[sum_offset(r) + fragment_sum(lane)] = quant::f16_to_f32(static_cast<u16>(r & 1 ? pair >> 16 : pair));
    }
  add_half_products(shape.a, left.data(), shape.b, right.data(), 8, shape.k, sums.data());
  for (int r = 0; r < 4; ++r)
    for (int lane = 0; lane < warp_lanes; ++lane) {
      u32& pair = m.narrow(d[r >> 1])[lane];
      const u32 code = quant::f32_to_f16(sums[sum_offset(r) + fragment_sum(lane)]);
      pair = r & 1 ? (pair & 0xFFFFu) | code << 16 : code;
    }
}

bool assemble_mma(Assembler& a, const Statement& s, const Opcode& op) {
  // mma.sync.aligned.m16n8kK.row.col{.satfinite}.d.a.b.c
  if (!op.has("sync") || !op.has("row") || !op.has("col") || op.has("sp") || op.has("block_scale")) throw NotThere{};
  std::string_view shape;
  for (const std::string_view part : op.parts)
    if (part.starts_with("m16n8k")) shape = part;
  if (shape.empty()) throw NotThere{};
  const int k = std::stoi(std::string(shape.substr(6)));
  MmaShape mma{};
  mma.a = matrix_type(op.behind(2));
  mma.b = matrix_type(op.behind(1));
  mma.k = k;
  mma.half_sums = op.behind(3) == "f16";
  mma.whole_sums = op.behind(3) == "s32";
  mma.saturates = op.has("satfinite");
  if (mma.a == MatrixType::none || mma.b == MatrixType::none || op.behind(3) != op.behind(0)) throw NotThere{};
  if (!mma.half_sums && !mma.whole_sums && op.behind(3) != "f32") throw NotThere{};
  if (mma.half_sums && mma.a != MatrixType::f16) throw NotThere{};
  const int bytes = k * bytes_of(mma.a);
  const bool whole = mma.a == MatrixType::s8 || mma.a == MatrixType::u8;
  if ((bytes != 16 && bytes != 32) || bytes_of(mma.a) != bytes_of(mma.b) || whole != mma.whole_sums) throw NotThere{};
  mma.a_registers = bytes / 8;
  mma.b_registers = bytes / 16;
  if (s.operands.size() != 4) throw NotThere{"the number of operands is another"};
  const std::array<std::size_t, 4> counts{mma.half_sums ? 2U : 4U, static_cast<std::size_t>(mma.a_registers),
                                          static_cast<std::size_t>(mma.b_registers), mma.half_sums ? 2U : 4U};
  std::vector<Slot> slots;
  for (std::size_t o = 0; o < 4; ++o) {
    const std::vector<Operand> parts =
        s.operands[o].kind == OperandKind::vector ? s.operands[o].parts : std::vector<Operand>{s.operands[o]};
    if (parts.size() != counts[o]) throw NotThere{"the number of registers is another"};
    for (const Operand& part : parts) slots.push_back(o == 0 ? a.destination(part, 4) : a.source(part, 4));
  }
  Instruction& i = a.emit(multiply);
  i.flags = pack(mma);
  i.family = InstructionFamily::product;
  i.meeting = Meeting::whole;
  a.list(i, slots);
  return true;
}

}  // namespace

bool assemble_matrix(Assembler& a, const Statement& s, const Opcode& op) {
  if (op.name() == "mma") return assemble_mma(a, s, op);
  if (op.name() == "movmatrix") {
    const Slot from = a.source(s.operands.at(1), 4), to = a.destination(s.operands.at(0), 4);
    a.emit(transpose, {to, from}).meeting = Meeting::whole;
    return true;
  }
  const bool loads = op.name() == "ldmatrix";
  if (!op.has("m8n8") || op.type() != "b16" || s.operands.size() != 2) throw NotThere{};
  std::uint64_t offset = 0;
  const Slot base = a.address(s.operands[loads ? 1 : 0], offset);
  const Operand& numbers = s.operands[loads ? 0 : 1];
  const std::vector<Operand> parts = numbers.kind == OperandKind::vector ? numbers.parts : std::vector<Operand>{numbers};
  if (parts.size() != (op.has("x4") ? 4U : op.has("x2") ? 2U : 1U)) throw NotThere{"the number of registers is another"};
  std::vector<Slot> slots;
  for (const Operand& part : parts) slots.push_back(loads ? a.destination(part, 4) : a.source(part, 4));
  Instruction& i = a.emit(loads ? load_matrices : store_matrices, {base});
  i.immediate = offset;
  i.flags = op.has("trans") ? 1 : 0;
  if (loads) i.family = InstructionFamily::matrices;
  i.meeting = Meeting::whole;
  a.list(i, slots);
  return true;
}

}  // namespace dodona::ptx
