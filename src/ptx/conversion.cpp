// cvt: between whole numbers and floats of every size, and the packed small floats.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ptx/lanes.h"
#include "ptx/memory_access.h"
#include "ptx/rounding.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/e5m2.h"
#include "quant/half.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ptx {
namespace {

namespace hopper = quant::hopper;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s64 = std::int64_t;

/// Flags of the instruction: a rounding, and what follows it.
enum : u64 {
  to_nearest = 0,
  toward_zero = 1,
  downward = 2,
  upward = 3,
  away = 4,
  rounding_mask = 7,
  whole = 8,
  flushes = 16,
  saturates = 32,
  relu = 64,
  satfinite = 128
};

struct Type {
  std::string_view name;
  int bits;
  bool is_float, is_signed;
};
constexpr Type types[] = {{"u8", 8, false, false},   {"s8", 8, false, true},    {"u16", 16, false, false}, {"s16", 16, false, true},
                          {"u32", 32, false, false}, {"s32", 32, false, true},  {"u64", 64, false, false}, {"s64", 64, false, true},
                          {"f16", 16, true, true},   {"bf16", 16, true, true},  {"f32", 32, true, true},   {"f64", 64, true, true},
                          {"tf32", 32, true, true},  {"b16", 16, false, false}, {"b32", 32, false, false}};
const Type* find_type(std::string_view name) {
  for (const Type& t : types)
    if (t.name == name) return &t;
  return nullptr;
}
std::size_t index_of(const Type& t) {
  return static_cast<std::size_t>(&t - types);
}
constexpr std::size_t f16_index = 8, bf16_index = 9, f32_index = 10, f64_index = 11, tf32_index = 12;

double to_whole(double x, u64 rounding) {
  switch (rounding & rounding_mask) {
    case toward_zero: return std::trunc(x);
    case downward: return std::floor(x);
    case upward: return std::ceil(x);
    default: return std::nearbyint(x);
  }
}

double value_of(u64 code, std::size_t type) {
  switch (type) {
    case f16_index: return quant::f16_to_f32(static_cast<u16>(code));
    case bf16_index: return quant::bf16_to_f32(static_cast<u16>(code));
    case f64_index: return std::bit_cast<double>(code);
    default: return std::bit_cast<float>(static_cast<u32>(code));
  }
}

/// A number as a code of 16 bits: to nearest, then a step back where the rounding asks for it.
template <u16 (*nearest)(double), float (*value)(u16)>
u16 to_half(double x, u64 rounding) {
  const u16 code = nearest(x);
  if (x != x || (rounding & rounding_mask) == to_nearest || (rounding & rounding_mask) == away) return code;
  const double got = value(code);
  if (got == x || std::isinf(x)) return code;
  const bool too_far = std::fabs(got) > std::fabs(x), negative = std::signbit(x);
  const u64 mode = rounding & rounding_mask;
  const bool toward = mode == toward_zero || (mode == downward && !negative) || (mode == upward && negative);
  if (toward) return too_far ? static_cast<u16>(code - 1) : code;
  return too_far ? code : static_cast<u16>(code + 1);
}
float f16_value(u16 code) {
  return quant::f16_to_f32(code);
}
float bf16_value(u16 code) {
  return quant::bf16_to_f32(code);
}
u16 f16_nearest(double x) {
  return quant::f64_to_f16(x);
}
u16 bf16_nearest(double x) {
  return quant::f64_to_bf16(x);
}

float to_f32(double x, u64 rounding) {
  switch (rounding & rounding_mask) {
    case toward_zero: return rounded<Rounding::zero>({x, 0});
    case downward: return rounded<Rounding::down>({x, 0});
    case upward: return rounded<Rounding::up>({x, 0});
    default: return canonical(static_cast<float>(x));
  }
}
/// 10 fraction bits stay; `away`: ties away from zero.
u32 to_tf32(float x, u64 rounding) {
  const u32 bits = std::bit_cast<u32>(x);
  if ((bits & 0x7FFFFFFFu) >= 0x7F800000u) return x != x ? 0x7FFFFFFFu : bits;
  constexpr u32 dropped = 0x1FFF;
  if ((rounding & rounding_mask) == toward_zero) return bits & ~dropped;
  const u32 half = (rounding & rounding_mask) == away ? 0x1000 : 0xFFF + (bits >> 13 & 1);
  return (bits + half) & ~dropped;
}

double limited(double x, const Instruction& i) {
  if ((i.flags & saturates) != 0) x = x > 0 ? std::min(x, 1.0) : 0.0;
  if ((i.flags & relu) != 0 && x == x) x = x > 0 ? x : 0.0;
  return x;
}

u64 float_code(double x, std::size_t type, const Instruction& i) {
  x = limited(x, i);
  switch (type) {
    case f16_index: {
      const u16 code = to_half<f16_nearest, f16_value>(x, i.flags);
      return (i.flags & satfinite) != 0 && (code & 0x7FFF) == 0x7C00 ? code - 1u : code;
    }
    case bf16_index: {
      const u16 code = to_half<bf16_nearest, bf16_value>(x, i.flags);
      return (i.flags & satfinite) != 0 && (code & 0x7FFF) == 0x7F80 ? code - 1u : code;
    }
    case f64_index: return std::bit_cast<u64>(x);
    case tf32_index: return to_tf32(static_cast<float>(x), i.flags);
    default: {
      const float r = to_f32(x, i.flags);
      return std::bit_cast<u32>((i.flags & flushes) != 0 ? hopper::ftz(r) : r);
    }
  }
}

u64 int_code(double x, const Type& type, u64 flags, bool from_f64) {
  if (x != x) return type.bits == 64 || from_f64 ? u64{1} << (type.bits - 1) : 0;
  const double w = to_whole(x, flags);
  const int bits = type.bits;
  if (type.is_signed) {
    const double limit = std::ldexp(1.0, bits - 1);
    if (w >= limit) return (u64{1} << (bits - 1)) - 1;
    if (w < -limit) return static_cast<u64>(-(s64{1} << (bits - 2)) * 2);
    return static_cast<u64>(static_cast<s64>(w));
  }
  if (w <= 0) return 0;
  if (w >= std::ldexp(1.0, bits)) return bits == 64 ? ~u64{0} : (u64{1} << bits) - 1;
  return static_cast<u64>(w);
}

u64 extended(u64 code, const Type& type) {
  if (type.bits == 64) return code;
  const int unused = 64 - type.bits;
  return type.is_signed && !type.is_float ? static_cast<u64>(static_cast<s64>(code << unused) >> unused) : code << unused >> unused;
}

u64 int_to_int(u64 x, const Type& from, const Type& to, u64 flags) {
  if ((flags & saturates) == 0) return x;
  if (to.is_signed) {
    const s64 high = to.bits == 64 ? std::numeric_limits<s64>::max() : (s64{1} << (to.bits - 1)) - 1;
    if (!from.is_signed) return std::min(x, static_cast<u64>(high));
    return static_cast<u64>(std::clamp(static_cast<s64>(x), -high - 1, high));
  }
  if (from.is_signed && static_cast<s64>(x) < 0) return 0;
  const u64 high = to.bits == 64 ? ~u64{0} : (u64{1} << to.bits) - 1;
  return std::min(x, high);
}
u64 int_to_float(u64 x, const Type& from, std::size_t to, const Instruction& i) {
  const bool negative = from.is_signed && static_cast<s64>(x) < 0;
  const u64 magnitude = negative ? 0 - x : x;
  // Exact in two doubles.
  const double high = static_cast<double>(magnitude >> 32) * 0x1p32, low = static_cast<double>(magnitude & 0xFFFFFFFFu);
  TwoSum exact = two_sum(high, low);
  if (negative) exact = {-exact.sum, -exact.rest};
  if (to == f64_index) return std::bit_cast<u64>(exact.sum);
  return float_code(to_odd(exact), to, i);
}

u64 read(Machine& m, Slot slot, int lane, bool wide) {
  return wide ? m.wide(slot)[lane] : m.narrow(slot)[lane];
}

/// width: index of the type, registers: bytes of the destination; target: index of the source's type.
void convert(Machine& m, const Instruction& i) {
  const Type &to = types[i.width], &from = types[i.target];
  for_lanes(m.mask, [&](int lane) {
    const u64 raw = extended(read(m, i.slots[1], lane, from.bits == 64), from);
    u64 result;
    if (from.is_float) {
      double x = value_of(raw, i.target);
      if ((i.flags & flushes) != 0 && i.target == f32_index) x = hopper::ftz(static_cast<float>(x));
      if (!to.is_float) {
        result = int_code(x, to, i.flags, i.target == f64_index);
      } else if ((i.flags & whole) != 0) {
        result = float_code(to_whole(x, i.flags), i.width, i);
      } else {
        result = float_code(x, i.width, i);
      }
    } else {
      result = to.is_float ? int_to_float(raw, from, i.width, i) : int_to_int(raw, from, to, i.flags);
    }
    result = extended(result, to);
    if (i.registers == 8) {
      m.wide(i.slots[0])[lane] = result;
    } else {
      m.narrow(i.slots[0])[lane] = static_cast<u32>(result) & (i.registers == 2 ? 0xFFFFu : 0xFFFFFFFFu);
    }
  });
}

// ---- what every kernel does, without a detour

float widen_f16(F16 x) {
  return canonical(quant::f16_to_f32(x.code));
}
float widen_bf16(Bf16 x) {
  return quant::bf16_to_f32(x.code);
}
u16 narrow_f16(float x) {
  return quant::f32_to_f16(x);
}
u16 narrow_bf16(float x) {
  return quant::f32_to_bf16(x);
}
u32 narrow_f16x2(float high, float low) {
  return u32{quant::f32_to_f16(high)} << 16 | quant::f32_to_f16(low);
}
u32 narrow_bf16x2(float high, float low) {
  return u32{quant::f32_to_bf16(high)} << 16 | quant::f32_to_bf16(low);
}
float of_s32(std::int32_t x) {
  return static_cast<float>(x);
}
float of_u32(u32 x) {
  return static_cast<float>(x);
}
u64 widen_u32(u32 x) {
  return x;
}
u64 widen_s32(std::int32_t x) {
  return static_cast<u64>(static_cast<s64>(x));
}
u32 cut_u64(u64 x) {
  return static_cast<u32>(x);
}

template <u8 (*f)(double)>
u16 pair_of_f32(float high, float low) {
  return static_cast<u16>(f(high) << 8 | f(low));
}
float not_negative(float x) {
  return x != x ? x : x > 0.0f ? x : 0.0f;
}
template <u8 (*f)(double)>
u16 relu_pair_of_f32(float high, float low) {
  return pair_of_f32<f>(not_negative(high), not_negative(low));
}
template <u8 (*f)(double)>
u16 pair_of_f16(u32 pair) {
  return static_cast<u16>(f(quant::f16_to_f32(static_cast<u16>(pair >> 16))) << 8 | f(quant::f16_to_f32(static_cast<u16>(pair))));
}
template <float (*f)(u8)>
u32 f16_of_pair(u16 pair) {
  return u32{quant::f32_to_f16(f(static_cast<u8>(pair >> 8)))} << 16 | quant::f32_to_f16(f(static_cast<u8>(pair)));
}
u8 to_e4m3(double x) {
  return quant::to_e4m3_satfinite(x);
}
u8 to_e5m2(double x) {
  return quant::to_e5m2_satfinite(x);
}
float of_e4m3(u8 code) {
  return quant::e4m3_to_f32(code);
}
float of_e5m2(u8 code) {
  return quant::e5m2_to_f32(code);
}
/// Two codes of four bits in a byte.
u16 to_e2m1x2(float high, float low) {
  return static_cast<u16>(quant::to_e2m1(high) << 4 | quant::to_e2m1(low));
}
u32 of_e2m1x2(u16 pair) {
  return u32{quant::f32_to_f16(quant::e2m1_to_f32(pair >> 4 & 15u))} << 16 | quant::f32_to_f16(quant::e2m1_to_f32(pair & 15u));
}

constexpr Operation table[] = {
    operation<widen_f16>("cvt.f32.f16"),
    operation<widen_bf16>("cvt.f32.bf16"),
    operation<narrow_f16>("cvt.rn.f16.f32"),
    operation<narrow_bf16>("cvt.rn.bf16.f32"),
    operation<narrow_f16x2>("cvt.rn.f16x2.f32"),
    operation<narrow_bf16x2>("cvt.rn.bf16x2.f32"),
    operation<of_s32>("cvt.rn.f32.s32"),
    operation<of_u32>("cvt.rn.f32.u32"),
    operation<widen_u32>("cvt.u64.u32"),
    operation<widen_s32>("cvt.s64.s32"),
    operation<cut_u64>("cvt.u32.u64"),
    operation<pair_of_f32<to_e4m3>>("cvt.rn.satfinite.e4m3x2.f32"),
    operation<pair_of_f32<to_e5m2>>("cvt.rn.satfinite.e5m2x2.f32"),
    operation<relu_pair_of_f32<to_e4m3>>("cvt.rn.satfinite.relu.e4m3x2.f32"),
    operation<relu_pair_of_f32<to_e5m2>>("cvt.rn.satfinite.relu.e5m2x2.f32"),
    operation<pair_of_f16<to_e4m3>>("cvt.rn.satfinite.e4m3x2.f16x2"),
    operation<pair_of_f16<to_e5m2>>("cvt.rn.satfinite.e5m2x2.f16x2"),
    operation<f16_of_pair<of_e4m3>>("cvt.rn.f16x2.e4m3x2"),
    operation<f16_of_pair<of_e5m2>>("cvt.rn.f16x2.e5m2x2"),
    operation<to_e2m1x2>("cvt.rn.satfinite.e2m1x2.f32"),
    operation<of_e2m1x2>("cvt.rn.f16x2.e2m1x2"),
};

/// Pairs of 16-bit floats with another rounding or with relu.
void convert_pair(Machine& m, const Instruction& i) {
  for_lanes(m.mask, [&](int lane) {
    const auto half = [&](Slot slot) { return static_cast<u32>(float_code(std::bit_cast<float>(m.narrow(slot)[lane]), i.width, i)); };
    m.narrow(i.slots[0])[lane] = half(i.slots[1]) << 16 | half(i.slots[2]);
  });
}

u64 flags_of(const Opcode& op) {
  u64 flags = 0;
  struct Modifier {
    std::string_view name;
    u64 flags;
  };
  constexpr Modifier modifiers[] = {{"rn", to_nearest},
                                    {"rz", toward_zero},
                                    {"rm", downward},
                                    {"rp", upward},
                                    {"rna", away},
                                    {"rni", to_nearest | whole},
                                    {"rzi", toward_zero | whole},
                                    {"rmi", downward | whole},
                                    {"rpi", upward | whole},
                                    {"ftz", flushes},
                                    {"sat", saturates},
                                    {"relu", relu},
                                    {"satfinite", satfinite}};
  for (std::size_t k = 1; k + 2 < op.parts.size(); ++k) {
    const auto found = std::find_if(std::begin(modifiers), std::end(modifiers), [&](const Modifier& m) { return m.name == op.parts[k]; });
    if (found == std::end(modifiers)) throw NotThere{};
    flags |= found->flags;
  }
  return flags;
}

}  // namespace

bool assemble_conversion(Assembler& a, const Statement& s, const Opcode& op) {
  if (op.has("pack")) throw NotThere{};
  if (const Operation* const direct = find_in(table, op.whole)) {
    if (s.operands.size() != static_cast<std::size_t>(direct->sources) + 1) throw NotThere{"the number of operands is another"};
    // Registers may be wider than the type: then the long way.
    bool fits = true;
    for (std::size_t k = 0; k < s.operands.size(); ++k) {
      const int bytes = a.register_bytes(s.operands[k]);
      fits = fits && (bytes < 0 || (bytes == 8) == (direct->bytes[k] == 8));
    }
    if (fits) {
      std::array<Slot, 6> slots{};
      for (std::size_t k = 1; k < s.operands.size(); ++k) slots[k] = a.source(s.operands[k], direct->bytes[k]);
      slots[0] = a.destination(s.operands[0], direct->bytes[0]);
      Instruction& i = a.emit(direct->run);
      i.slots = slots;
      i.family = InstructionFamily::plain;
      i.sources = static_cast<std::uint8_t>(direct->sources);
      return true;
    }
  }
  if (op.parts.size() < 3) throw NotThere{};
  const std::string_view to_name = op.behind(1);
  const u64 flags = flags_of(op);
  if ((to_name == "f16x2" || to_name == "bf16x2") && op.type() == "f32" && s.operands.size() == 3) {
    const Slot high = a.source(s.operands[1], 4), low = a.source(s.operands[2], 4), slot = a.destination(s.operands[0], 4);
    Instruction& i = a.emit(convert_pair, {slot, high, low});
    i.family = InstructionFamily::plain;
    i.sources = 2;
    i.flags = flags;
    i.width = static_cast<std::uint8_t>(to_name == "f16x2" ? f16_index : bf16_index);
    return true;
  }
  const Type *const to = find_type(to_name), *const from = find_type(op.type());
  if (to == nullptr || from == nullptr || s.operands.size() != 2) throw NotThere{};
  const int to_register = a.register_bytes(s.operands[0]), from_register = a.register_bytes(s.operands[1]);
  if (to_register == 0 || from_register == 0 || to_register * 8 < to->bits || (from_register > 0 && from_register * 8 < from->bits))
    throw NotThere{"a register is too small"};
  Slot source = a.source(s.operands[1], from_register < 0 ? from->bits / 8 : from_register);
  if (from_register == 8 && from->bits < 64) {
    const Slot narrow = a.scratch(false);
    a.emit(lanes<cut_u64>, {narrow, source});
    source = narrow;
  }
  const Slot slot = a.destination(s.operands[0], to_register);
  Instruction& i = a.emit(convert, {slot, source});
  i.family = InstructionFamily::plain;
  i.sources = 1;
  i.flags = flags;
  i.width = static_cast<std::uint8_t>(index_of(*to));
  i.target = static_cast<std::uint32_t>(index_of(*from));
  i.registers = static_cast<std::uint8_t>(to_register == 1 ? 2 : to_register);
  return true;
}

}  // namespace dodona::ptx
