// ldmatrix, stmatrix, movmatrix and mma.sync: matrices whose pieces lie in the
// registers of a warp.
#include <array>

#include "ptx/assembler.h"
#include "ptx/fragments.h"
#include "ptx/half_sums.h"
#include "ptx/lanes.h"
#include "ptx/products.h"

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

/// Registers of a list, as what works on them takes them.
template <std::size_t most>
class Registers {
 public:
  Registers(Machine& m, const Slot* slots, std::size_t count) : count_(count) {
    for (std::size_t r = 0; r < count; ++r) rows_[r] = m.narrow(slots[r]);
  }
  u32* const* data() { return rows_.data(); }
  std::span<const u32* const> span() { return {rows_.data(), count_}; }

 private:
  std::array<u32*, most> rows_;
  std::size_t count_;
};

/// An instruction's list: sums, the factors, what is added to; and what may follow.
struct MmaCall {
  MmaCall(Machine& m, const Instruction& i)
      : shape(unpack(i.flags)),
        d(m.list(i)),
        a(d + (shape.half_sums ? 2 : 4)),
        b(a + shape.a_registers),
        c(b + shape.b_registers),
        isa(m.launch().isa),
        words(static_cast<std::size_t>(shape.k * bytes_of(shape.a) / 4)),
        left(m, a, static_cast<std::size_t>(shape.a_registers)),
        right(m, b, static_cast<std::size_t>(shape.b_registers)) {}

  const Slot* behind() const { return c + (shape.half_sums ? 2 : 4); }

  MmaShape shape;
  const Slot *d, *a, *b, *c;
  Isa isa;
  std::size_t words;  ///< of four bytes, of a whole row
  Registers<4> left, right;
};

/// add(sums) where sums, of c and then d, are of 32 bits: transposed, [8][16].
template <class Sum, class Add>
void add_to_sums(Machine& m, const MmaCall& call, const Add& add) {
  alignas(64) std::array<Sum, 8 * 16> sums;
  Registers<4> from(m, call.c, 4), to(m, call.d, 4);
  dispatch<SpreadSums>(call.isa, from.data(), std::size_t{4}, sums.data());
  add(sums.data());
  dispatch<GatherSums>(call.isa, sums.data(), std::size_t{4}, to.data());
}
/// As add_to_sums, of sums of f16.
template <class Add>
void add_to_half_sums(Machine& m, const MmaCall& call, const Add& add) {
  std::array<float, 8 * 16> sums;
  spread_halves(m, call.c, sums.data());
  add(sums.data());
  gather_halves(m, sums.data(), call.d);
}

void multiply(Machine& m, const Instruction& i) {
  m.meet();
  MmaCall call(m, i);
  const MmaShape& shape = call.shape;
  if (!shape.half_sums && !shape.whole_sums && shape.a != MatrixType::tf32) {
    const FragmentSource left(call.isa, call.left.span(), 16), right(call.isa, call.right.span(), 8);
    return add_to_sums<float>(m, call, [&](float* sums) {
      m.tiles().add(Unit::mma_sync, {shape.a, left, call.a[0]}, {shape.b, right, call.b[0]}, 8, shape.k, sums);
    });
  }
  std::array<u32, 16 * 8> left;
  std::array<u32, 8 * 8> right;
  lay_out_fragment(call.left.data(), call.left.span().size(), 16, left.data(), call.words);
  lay_out_fragment(call.right.data(), call.right.span().size(), 8, right.data(), call.words);
  if (shape.half_sums)
    return add_to_half_sums(m, call,
                            [&](float* sums) { add_half_products(shape.a, left.data(), shape.b, right.data(), 8, shape.k, sums); });
  if (shape.whole_sums)
    return add_to_sums<std::int32_t>(m, call, [&](std::int32_t* sums) {
      add_whole_products(shape.a, left.data(), shape.b, right.data(), 8, shape.k, sums, shape.saturates);
    });
  add_to_sums<float>(m, call, [&](float* sums) { add_tf32_products(left.data(), right.data(), 8, shape.k, sums); });
}

/// mma.sp: the list ends with the metadata's register. Half of a row of a is there.
void multiply_sparse(Machine& m, const Instruction& i) {
  m.meet();
  MmaCall call(m, i);
  const MmaShape& shape = call.shape;
  const SparsePlaces places = sparse_places(shape.a, shape.k, m.narrow(*call.behind()), static_cast<u32>(i.immediate));
  std::array<u32, 16 * 8> left;
  std::array<u32, 8 * 16> right;
  lay_out_fragment(call.left.data(), call.left.span().size(), 16, left.data(), call.words / 2);
  lay_out_fragment(call.right.data(), call.right.span().size(), 8, right.data(), call.words);
  if (shape.whole_sums)
    return add_to_sums<std::int32_t>(m, call, [&](std::int32_t* sums) {
      add_sparse_whole_products(shape.a, left.data(), shape.b, right.data(), places, shape.k, sums, shape.saturates);
    });
  const auto add = [&](float* sums) {
    add_sparse_products(Unit::mma_sync, shape.a, left.data(), shape.b, right.data(), places, shape.k, shape.half_sums, sums);
  };
  shape.half_sums ? add_to_half_sums(m, call, add) : add_to_sums<float>(m, call, add);
}

bool assemble_mma(Assembler& a, const Statement& s, const Opcode& op) {
  // mma.sync.aligned.m16n8kK.row.col{.satfinite}.d.a.b.c
  if (!op.has("sync") || !op.has("row") || !op.has("col") || op.has("block_scale")) throw NotThere{};
  const bool sparse = op.has("sp") || op.has("sp::ordered_metadata");
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
  // Half of a sparse row is there.
  const int bytes = k * bytes_of(mma.a) / (sparse ? 2 : 1);
  const bool whole = mma.a == MatrixType::s8 || mma.a == MatrixType::u8;
  if ((bytes != 16 && bytes != 32) || bytes_of(mma.a) != bytes_of(mma.b) || whole != mma.whole_sums) throw NotThere{};
  mma.a_registers = bytes / 8;
  mma.b_registers = bytes / 16 * (sparse ? 2 : 1);
  // Of 8-bit floats only the wide form is.
  if (sparse && bytes == 16 && bytes_of(mma.a) == 1 && !whole) throw NotThere{};
  if (s.operands.size() != (sparse ? 6U : 4U)) throw NotThere{"the number of operands is another"};
  const std::array<std::size_t, 4> counts{mma.half_sums ? 2U : 4U, static_cast<std::size_t>(mma.a_registers),
                                          static_cast<std::size_t>(mma.b_registers), mma.half_sums ? 2U : 4U};
  std::vector<Slot> slots;
  for (std::size_t o = 0; o < 4; ++o) {
    const std::vector<Operand> parts =
        s.operands[o].kind == OperandKind::vector ? s.operands[o].parts : std::vector<Operand>{s.operands[o]};
    if (parts.size() != counts[o]) throw NotThere{"the number of registers is another"};
    for (const Operand& part : parts) slots.push_back(o == 0 ? a.destination(part, 4) : a.source(part, 4));
  }
  if (sparse) {
    slots.push_back(a.source(s.operands[4], 4));
    const std::uint64_t selectors = bytes_of(mma.a) == 1 ? (bytes == 16 ? 2 : 1) : bytes == 16 ? 4 : 2;
    if (s.operands[5].kind != OperandKind::integer || s.operands[5].value >= selectors)
      throw NotThere{"the sparsity selector is none: expected a number below " + std::to_string(selectors)};
  }
  Instruction& i = a.emit(sparse ? multiply_sparse : multiply);
  i.flags = pack(mma);
  if (sparse) i.immediate = s.operands[5].value;
  if (sparse) i.registers = static_cast<std::uint8_t>(counts[0]);
  if (!sparse) i.family = InstructionFamily::product;
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
  slots.reserve(parts.size());
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
