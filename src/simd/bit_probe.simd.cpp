#include "simd/bit_probe.h"

#include "simd/convert.h"
#include "simd/dot_i8.h"
#include "simd/f32x16.h"
#include "simd/math.h"
#include "simd/pack.h"

namespace dodona::DODONA_TIER {
namespace {

/// The arrays of one call, and where in them the next sixteen elements are.
struct Cursor {
  const void *a, *b, *c;
  void* out;
  std::int64_t n, i;

  bool more() const { return i < n; }
  bool full() const { return n - i >= 16; }

  static const float* floats(const void* p) { return static_cast<const float*>(p); }
  static const std::int32_t* ints(const void* p) { return static_cast<const std::int32_t*>(p); }
  DODONA_INLINE f32x16 load(const void* p) const {
    return full() ? f32x16::load(floats(p) + i) : f32x16::load_partial(floats(p) + i, n - i);
  }
  DODONA_INLINE i32x16 load_ints(const void* p) const {
    return full() ? i32x16::load(ints(p) + i) : i32x16::load_partial(ints(p) + i, n - i);
  }
  DODONA_INLINE void store(f32x16 x) const {
    float* p = static_cast<float*>(out) + i;
    full() ? x.store(p) : x.store_partial(p, n - i);
  }
  DODONA_INLINE void store(i32x16 x) const {
    std::int32_t* p = static_cast<std::int32_t*>(out) + i;
    full() ? x.store(p) : x.store_partial(p, n - i);
  }
  DODONA_INLINE void store(mask16 m) const { store(select(m, i32x16::splat(1), i32x16::zero())); }
};

template <class F>
void each(Cursor k, F f) {
  for (; k.more(); k.i += 16) f(k);
}
template <class F>
void unary(Cursor k, F f) {
  for (; k.more(); k.i += 16) k.store(f(k.load(k.a)));
}
template <class F>
void binary(Cursor k, F f) {
  for (; k.more(); k.i += 16) k.store(f(k.load(k.a), k.load(k.b)));
}
template <class F>
void ternary(Cursor k, F f) {
  for (; k.more(); k.i += 16) k.store(f(k.load(k.a), k.load(k.b), k.load(k.c)));
}
template <class F>
void integer_unary(Cursor k, F f) {
  for (; k.more(); k.i += 16) k.store(f(k.load_ints(k.a)));
}
template <class F>
void integer_binary(Cursor k, F f) {
  for (; k.more(); k.i += 16) k.store(f(k.load_ints(k.a), k.load_ints(k.b)));
}
/// One float for every sixteen.
template <class F>
void reduction(Cursor k, F f) {
  float* out = static_cast<float*>(k.out);
  for (; k.more(); k.i += 16) out[k.i / 16] = f(k.load(k.a));
}
/// Codes of `bits` bits, read by a full and a partial load.
template <int bits, class Full, class Partial>
void widening(Cursor k, Full full, Partial partial) {
  for (; k.more(); k.i += 16) {
    const char* p = static_cast<const char*>(k.a) + k.i * bits / 8;
    k.store(k.full() ? full(p) : partial(p, k.n - k.i));
  }
}
template <int bits, class Full, class Partial>
void narrowing(Cursor k, Full full, Partial partial) {
  for (; k.more(); k.i += 16) {
    char* p = static_cast<char*>(k.out) + k.i * bits / 8;
    k.full() ? full(k.load(k.a), p) : partial(k.load(k.a), p, k.n - k.i);
  }
}

void dot(Cursor k) {
  f32x16 sum = f32x16::zero();
  for (; k.more(); k.i += 16) sum = fma(k.load(k.a), k.load(k.b), sum);
  *static_cast<float*>(k.out) = reduce_add(sum);
}

template <class F>
void pairs(Cursor k, F f) {
  for (; k.n - k.i >= 32; k.i += 32) {
    const float* p = Cursor::floats(k.a) + k.i;
    const f32x16_pair r = f(f32x16::load(p), f32x16::load(p + 16));
    r.first.store(static_cast<float*>(k.out) + k.i);
    r.second.store(static_cast<float*>(k.out) + k.i + 16);
  }
}

void transpositions(Cursor k) {
  for (; k.n - k.i >= 256; k.i += 256) {
    i32x16 rows[16];
    for (int r = 0; r < 16; ++r) rows[r] = i32x16::load(Cursor::ints(k.a) + k.i + 16 * r);
    transpose(rows);
    for (int r = 0; r < 16; ++r) rows[r].store(static_cast<std::int32_t*>(k.out) + k.i + 16 * r);
  }
}

void reductions_of_sixteen(Cursor k) {
  for (; k.n - k.i >= 256; k.i += 256) {
    f32x16 rows[16];
    for (int r = 0; r < 16; ++r) rows[r] = f32x16::load(Cursor::floats(k.a) + k.i + 16 * r);
    reduce_add(rows).store(static_cast<float*>(k.out) + k.i / 16);
  }
}

using V = f32x16;
using I = i32x16;

void probe(ProbeOp op, Cursor k) {
  switch (op) {
    case ProbeOp::add: return binary(k, [](V a, V b) { return a + b; });
    case ProbeOp::sub: return binary(k, [](V a, V b) { return a - b; });
    case ProbeOp::mul: return binary(k, [](V a, V b) { return a * b; });
    case ProbeOp::div: return binary(k, [](V a, V b) { return a / b; });
    case ProbeOp::fma: return ternary(k, [](V a, V b, V c) { return fma(a, b, c); });
    case ProbeOp::fnma: return ternary(k, [](V a, V b, V c) { return fnma(a, b, c); });
    case ProbeOp::fms: return ternary(k, [](V a, V b, V c) { return fms(a, b, c); });
    case ProbeOp::min: return binary(k, [](V a, V b) { return min(a, b); });
    case ProbeOp::max: return binary(k, [](V a, V b) { return max(a, b); });
    case ProbeOp::sqrt: return unary(k, [](V a) { return sqrt(a); });
    case ProbeOp::floor: return unary(k, [](V a) { return floor(a); });
    case ProbeOp::round_even: return unary(k, [](V a) { return round_even(a); });
    case ProbeOp::abs: return unary(k, [](V a) { return abs(a); });
    case ProbeOp::negate: return unary(k, [](V a) { return -a; });
    case ProbeOp::copysign: return binary(k, [](V a, V b) { return copysign(a, b); });
    case ProbeOp::bit_and: return binary(k, [](V a, V b) { return bit_and(a, b); });
    case ProbeOp::bit_or: return binary(k, [](V a, V b) { return bit_or(a, b); });
    case ProbeOp::bit_xor: return binary(k, [](V a, V b) { return bit_xor(a, b); });
    case ProbeOp::canonical_nan: return unary(k, [](V a) { return canonical_nan(a); });
    case ProbeOp::less: return binary(k, [](V a, V b) { return a < b; });
    case ProbeOp::less_equal: return binary(k, [](V a, V b) { return a <= b; });
    case ProbeOp::greater: return binary(k, [](V a, V b) { return a > b; });
    case ProbeOp::greater_equal: return binary(k, [](V a, V b) { return a >= b; });
    case ProbeOp::equal: return binary(k, [](V a, V b) { return a == b; });
    case ProbeOp::not_equal: return binary(k, [](V a, V b) { return a != b; });
    case ProbeOp::select: return ternary(k, [](V a, V b, V c) { return select(a < b, c, b); });
    case ProbeOp::integer_add: return integer_binary(k, [](I a, I b) { return a + b; });
    case ProbeOp::integer_sub: return integer_binary(k, [](I a, I b) { return a - b; });
    case ProbeOp::integer_mul: return integer_binary(k, [](I a, I b) { return a * b; });
    case ProbeOp::integer_and: return integer_binary(k, [](I a, I b) { return a & b; });
    case ProbeOp::integer_or: return integer_binary(k, [](I a, I b) { return a | b; });
    case ProbeOp::integer_xor: return integer_binary(k, [](I a, I b) { return a ^ b; });
    case ProbeOp::integer_min: return integer_binary(k, [](I a, I b) { return min(a, b); });
    case ProbeOp::integer_max: return integer_binary(k, [](I a, I b) { return max(a, b); });
    case ProbeOp::integer_less: return integer_binary(k, [](I a, I b) { return a < b; });
    case ProbeOp::integer_greater: return integer_binary(k, [](I a, I b) { return a > b; });
    case ProbeOp::integer_equal: return integer_binary(k, [](I a, I b) { return a == b; });
    case ProbeOp::bytes_by_place: return integer_unary(k, [](I a) { return bytes_by_place(a); });
    case ProbeOp::shift_left: return integer_unary(k, [](I a) { return shl<5>(a); });
    case ProbeOp::shift_right: return integer_unary(k, [](I a) { return shr<5>(a); });
    case ProbeOp::shift_right_signed: return integer_unary(k, [](I a) { return sra<5>(a); });
    case ProbeOp::add_8: return integer_binary(k, [](I a, I b) { return add_8(a, b); });
    case ProbeOp::mul_16: return integer_binary(k, [](I a, I b) { return mul_16(a, b); });
    case ProbeOp::max_16: return integer_binary(k, [](I a, I b) { return max_16(a, b); });
    case ProbeOp::shift_right_signed_16: return integer_unary(k, [](I a) { return sra_16<5>(a); });
    case ProbeOp::in_turn_16: return integer_binary(k, [](I a, I b) { return in_turn_16(a, b); });
    case ProbeOp::signed_bytes: return integer_binary(k, [](I a, I b) { return signed_bytes(a, b); });
    case ProbeOp::unsigned_bytes: return integer_binary(k, [](I a, I b) { return unsigned_bytes(a, b); });
    case ProbeOp::lane_index: return integer_unary(k, [](I a) { return a + lane_index(); });
    case ProbeOp::mask_bits:
      return each(k, [](const Cursor& at) {
        const mask16 negative = at.load_ints(at.a) < I::zero();
        at.store(mask16::from_bits(negative.bits()));
      });
    case ProbeOp::to_f32: return integer_unary(k, [](I a) { return to_f32(a); });
    case ProbeOp::to_i32: return unary(k, [](V a) { return to_i32(a); });
    case ProbeOp::to_i32_trunc: return unary(k, [](V a) { return to_i32_trunc(a); });
    case ProbeOp::reduce_add: return reduction(k, [](V a) { return reduce_add(a); });
    case ProbeOp::reduce_min: return reduction(k, [](V a) { return reduce_min(a); });
    case ProbeOp::reduce_max: return reduction(k, [](V a) { return reduce_max(a); });
    case ProbeOp::dot: return dot(k);
    case ProbeOp::deinterleave: return pairs(k, [](V a, V b) { return deinterleave(a, b); });
    case ProbeOp::interleave: return pairs(k, [](V a, V b) { return interleave(a, b); });
    case ProbeOp::transpose: return transpositions(k);
    case ProbeOp::reduce_add_each: return reductions_of_sixteen(k);
    case ProbeOp::load_bf16: return widening<16>(k, load_bf16, load_bf16_partial);
    case ProbeOp::load_f16: return widening<16>(k, load_f16, load_f16_partial);
    case ProbeOp::load_e4m3: return widening<8>(k, load_e4m3, load_e4m3_partial);
    case ProbeOp::load_e4m3_over_256: return widening<8>(k, load_e4m3_over_256, load_e4m3_over_256_partial);
    case ProbeOp::load_e5m2: return widening<8>(k, load_e5m2, load_e5m2_partial);
    case ProbeOp::load_e2m1: return widening<4>(k, load_e2m1, load_e2m1_partial);
    case ProbeOp::load_u8: return widening<8>(k, load_u8, load_u8_partial);
    case ProbeOp::load_i8: return widening<8>(k, load_i8, load_i8_partial);
    case ProbeOp::store_bf16: return narrowing<16>(k, store_bf16, store_bf16_partial);
    case ProbeOp::store_f16: return narrowing<16>(k, store_f16, store_f16_partial);
    case ProbeOp::store_e4m3: return narrowing<8>(k, store_e4m3, store_e4m3_partial);
    case ProbeOp::store_e5m2: return narrowing<8>(k, store_e5m2, store_e5m2_partial);
    case ProbeOp::store_e2m1: return narrowing<4>(k, store_e2m1, store_e2m1_partial);
    case ProbeOp::store_low_8:
      return narrowing<8>(
          k, [](V x, void* p) { store_low_8(as_i32(x), p); }, [](V x, void* p, std::int64_t n) { store_low_8_partial(as_i32(x), p, n); });
    case ProbeOp::round_to_bf16: return unary(k, [](V a) { return round_to_bf16(a); });
    case ProbeOp::round_to_f16: return unary(k, [](V a) { return round_to_f16(a); });
    case ProbeOp::dpbusd:
      return each(k, [](const Cursor& at) { at.store(dpbusd(at.load_ints(at.c), at.load_ints(at.a), at.load_ints(at.b))); });
    case ProbeOp::dpbusd_small:
      return each(k, [](const Cursor& at) {
        const I cut = at.load_ints(at.a) & I::splat(0x1F1F1F1F);
        at.store(dpbusd_small(at.load_ints(at.c), cut, at.load_ints(at.b)));
      });
    case ProbeOp::exp: return unary(k, [](V a) { return exp(a); });
    case ProbeOp::exp2: return unary(k, [](V a) { return exp2(a); });
    case ProbeOp::log: return unary(k, [](V a) { return log(a); });
    case ProbeOp::log2: return unary(k, [](V a) { return log2(a); });
    case ProbeOp::sigmoid: return unary(k, [](V a) { return sigmoid(a); });
    case ProbeOp::tanh: return unary(k, [](V a) { return tanh(a); });
    case ProbeOp::erf: return unary(k, [](V a) { return erf(a); });
    case ProbeOp::rsqrt: return unary(k, [](V a) { return rsqrt(a); });
    case ProbeOp::count: return;
  }
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona {

template <class Tier>
void BitProbe::run(ProbeOp op, const void* a, const void* b, const void* c, void* out, std::int64_t n) {
  DODONA_TIER::probe(op, {a, b, c, out, n, 0});
}
template void BitProbe::run<tier::DODONA_TIER>(ProbeOp, const void*, const void*, const void*, void*, std::int64_t);

}  // namespace dodona
