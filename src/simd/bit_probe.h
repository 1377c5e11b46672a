// Every operation of this room over arrays, callable on any tier: how tests see that all tiers give the same bits.
#pragma once

#include <cstdint>

#include "simd/tier.h"

namespace dodona {

enum class ProbeOp {
  // f32
  add,
  sub,
  mul,
  div,
  fma,
  fnma,
  fms,
  min,
  max,
  sqrt,
  floor,
  round_even,
  abs,
  negate,
  copysign,
  bit_and,
  bit_or,
  bit_xor,
  canonical_nan,
  less,
  less_equal,
  greater,
  greater_equal,
  equal,
  not_equal,
  select,
  // i32
  integer_add,
  integer_sub,
  integer_mul,
  integer_and,
  integer_or,
  integer_xor,
  integer_min,
  integer_max,
  integer_less,
  integer_greater,
  integer_equal,
  shift_left,
  shift_right,
  shift_right_signed,
  add_8,
  mul_16,
  max_16,
  shift_right_signed_16,
  in_turn_16,
  signed_bytes,
  unsigned_bytes,
  bytes_by_place,
  lane_index,
  mask_bits,
  // between the two
  to_f32,
  to_i32,
  to_i32_trunc,
  // across lanes
  reduce_add,
  reduce_min,
  reduce_max,
  dot,
  deinterleave,
  interleave,
  transpose,
  reduce_add_each,
  // narrow formats
  load_bf16,
  load_f16,
  load_e4m3,
  load_e4m3_over_256,
  load_e5m2,
  load_e2m1,
  load_u8,
  load_i8,
  store_bf16,
  store_f16,
  store_e4m3,
  store_e5m2,
  store_e2m1,
  store_low_8,
  round_to_bf16,
  round_to_f16,
  // byte dot products
  dpbusd,
  dpbusd_small,
  // math.h
  exp,
  exp2,
  log,
  log2,
  sigmoid,
  tanh,
  erf,
  rsqrt,
  count,
};

struct ProbeInfo {
  ProbeOp op;
  const char* name;
  int inputs;     ///< how many of a, b, c are read
  int bits_in;    ///< of an element
  int bits_out;   ///< of an element
  int group;      ///< elements that give one group of results; a last incomplete group counts as zeros after it, or, from 32, is left out
  int results;    ///< of a group
  bool nan_free;  ///< a NaN among the results may have any sign and payload
};

/// In the order of ProbeOp. `dot` is one group, whatever its length.
inline constexpr ProbeInfo probe_table[] = {
    {ProbeOp::add, "add", 2, 32, 32, 1, 1, true},
    {ProbeOp::sub, "sub", 2, 32, 32, 1, 1, true},
    {ProbeOp::mul, "mul", 2, 32, 32, 1, 1, true},
    {ProbeOp::div, "div", 2, 32, 32, 1, 1, true},
    {ProbeOp::fma, "fma", 3, 32, 32, 1, 1, true},
    {ProbeOp::fnma, "fnma", 3, 32, 32, 1, 1, true},
    {ProbeOp::fms, "fms", 3, 32, 32, 1, 1, true},
    {ProbeOp::min, "min", 2, 32, 32, 1, 1, false},
    {ProbeOp::max, "max", 2, 32, 32, 1, 1, false},
    {ProbeOp::sqrt, "sqrt", 1, 32, 32, 1, 1, true},
    {ProbeOp::floor, "floor", 1, 32, 32, 1, 1, true},
    {ProbeOp::round_even, "round_even", 1, 32, 32, 1, 1, true},
    {ProbeOp::abs, "abs", 1, 32, 32, 1, 1, false},
    {ProbeOp::negate, "negate", 1, 32, 32, 1, 1, false},
    {ProbeOp::copysign, "copysign", 2, 32, 32, 1, 1, false},
    {ProbeOp::bit_and, "bit_and", 2, 32, 32, 1, 1, false},
    {ProbeOp::bit_or, "bit_or", 2, 32, 32, 1, 1, false},
    {ProbeOp::bit_xor, "bit_xor", 2, 32, 32, 1, 1, false},
    {ProbeOp::canonical_nan, "canonical_nan", 1, 32, 32, 1, 1, false},
    {ProbeOp::less, "less", 2, 32, 32, 1, 1, false},
    {ProbeOp::less_equal, "less_equal", 2, 32, 32, 1, 1, false},
    {ProbeOp::greater, "greater", 2, 32, 32, 1, 1, false},
    {ProbeOp::greater_equal, "greater_equal", 2, 32, 32, 1, 1, false},
    {ProbeOp::equal, "equal", 2, 32, 32, 1, 1, false},
    {ProbeOp::not_equal, "not_equal", 2, 32, 32, 1, 1, false},
    {ProbeOp::select, "select", 3, 32, 32, 1, 1, false},
    {ProbeOp::integer_add, "integer_add", 2, 32, 32, 1, 1, false},
    {ProbeOp::integer_sub, "integer_sub", 2, 32, 32, 1, 1, false},
    {ProbeOp::integer_mul, "integer_mul", 2, 32, 32, 1, 1, false},
    {ProbeOp::integer_and, "integer_and", 2, 32, 32, 1, 1, false},
    {ProbeOp::integer_or, "integer_or", 2, 32, 32, 1, 1, false},
    {ProbeOp::integer_xor, "integer_xor", 2, 32, 32, 1, 1, false},
    {ProbeOp::integer_min, "integer_min", 2, 32, 32, 1, 1, false},
    {ProbeOp::integer_max, "integer_max", 2, 32, 32, 1, 1, false},
    {ProbeOp::integer_less, "integer_less", 2, 32, 32, 1, 1, false},
    {ProbeOp::integer_greater, "integer_greater", 2, 32, 32, 1, 1, false},
    {ProbeOp::integer_equal, "integer_equal", 2, 32, 32, 1, 1, false},
    {ProbeOp::shift_left, "shift_left", 1, 32, 32, 1, 1, false},
    {ProbeOp::shift_right, "shift_right", 1, 32, 32, 1, 1, false},
    {ProbeOp::shift_right_signed, "shift_right_signed", 1, 32, 32, 1, 1, false},
    {ProbeOp::add_8, "add_8", 2, 32, 32, 1, 1, false},
    {ProbeOp::mul_16, "mul_16", 2, 32, 32, 1, 1, false},
    {ProbeOp::max_16, "max_16", 2, 32, 32, 1, 1, false},
    {ProbeOp::shift_right_signed_16, "shift_right_signed_16", 1, 32, 32, 1, 1, false},
    {ProbeOp::in_turn_16, "in_turn_16", 2, 32, 32, 1, 1, false},
    {ProbeOp::signed_bytes, "signed_bytes", 2, 32, 32, 16, 16, false},
    {ProbeOp::unsigned_bytes, "unsigned_bytes", 2, 32, 32, 16, 16, false},
    {ProbeOp::bytes_by_place, "bytes_by_place", 1, 32, 32, 16, 16, false},
    {ProbeOp::lane_index, "lane_index", 1, 32, 32, 1, 1, false},
    {ProbeOp::mask_bits, "mask_bits", 1, 32, 32, 1, 1, false},
    {ProbeOp::to_f32, "to_f32", 1, 32, 32, 1, 1, false},
    {ProbeOp::to_i32, "to_i32", 1, 32, 32, 1, 1, false},
    {ProbeOp::to_i32_trunc, "to_i32_trunc", 1, 32, 32, 1, 1, false},
    {ProbeOp::reduce_add, "reduce_add", 1, 32, 32, 16, 1, true},
    {ProbeOp::reduce_min, "reduce_min", 1, 32, 32, 16, 1, false},
    {ProbeOp::reduce_max, "reduce_max", 1, 32, 32, 16, 1, false},
    {ProbeOp::dot, "dot", 2, 32, 32, 0, 1, true},
    {ProbeOp::deinterleave, "deinterleave", 1, 32, 32, 32, 32, false},
    {ProbeOp::interleave, "interleave", 1, 32, 32, 32, 32, false},
    {ProbeOp::transpose, "transpose", 1, 32, 32, 256, 256, false},
    {ProbeOp::reduce_add_each, "reduce_add_each", 1, 32, 32, 256, 16, true},
    {ProbeOp::load_bf16, "load_bf16", 1, 16, 32, 1, 1, false},
    {ProbeOp::load_f16, "load_f16", 1, 16, 32, 1, 1, false},
    {ProbeOp::load_e4m3, "load_e4m3", 1, 8, 32, 1, 1, false},
    {ProbeOp::load_e4m3_over_256, "load_e4m3_over_256", 1, 8, 32, 1, 1, false},
    {ProbeOp::load_e5m2, "load_e5m2", 1, 8, 32, 1, 1, false},
    {ProbeOp::load_e2m1, "load_e2m1", 1, 4, 32, 1, 1, false},
    {ProbeOp::load_u8, "load_u8", 1, 8, 32, 1, 1, false},
    {ProbeOp::load_i8, "load_i8", 1, 8, 32, 1, 1, false},
    {ProbeOp::store_bf16, "store_bf16", 1, 32, 16, 1, 1, false},
    {ProbeOp::store_f16, "store_f16", 1, 32, 16, 1, 1, false},
    {ProbeOp::store_e4m3, "store_e4m3", 1, 32, 8, 1, 1, false},
    {ProbeOp::store_e5m2, "store_e5m2", 1, 32, 8, 1, 1, false},
    {ProbeOp::store_e2m1, "store_e2m1", 1, 32, 4, 1, 1, false},
    {ProbeOp::store_low_8, "store_low_8", 1, 32, 8, 1, 1, false},
    {ProbeOp::round_to_bf16, "round_to_bf16", 1, 32, 32, 1, 1, false},
    {ProbeOp::round_to_f16, "round_to_f16", 1, 32, 32, 1, 1, false},
    {ProbeOp::dpbusd, "dpbusd", 3, 32, 32, 1, 1, false},
    {ProbeOp::dpbusd_small, "dpbusd_small", 3, 32, 32, 1, 1, false},
    {ProbeOp::exp, "exp", 1, 32, 32, 1, 1, true},
    {ProbeOp::exp2, "exp2", 1, 32, 32, 1, 1, true},
    {ProbeOp::log, "log", 1, 32, 32, 1, 1, true},
    {ProbeOp::log2, "log2", 1, 32, 32, 1, 1, true},
    {ProbeOp::sigmoid, "sigmoid", 1, 32, 32, 1, 1, true},
    {ProbeOp::tanh, "tanh", 1, 32, 32, 1, 1, true},
    {ProbeOp::erf, "erf", 1, 32, 32, 1, 1, true},
    {ProbeOp::rsqrt, "rsqrt", 1, 32, 32, 1, 1, true},
};

/// Applies `op` to n elements. Full vectors use the plain loads and stores, the rest the partial ones.
/// Comparisons give 1 or 0; `select` is a < b ? c : b; shifts are by 5; `lane_index` adds the lane's index to a; `mask_bits` is 1 where a
/// is negative, by way of mask16::bits; `dot` sums a * b by one f32x16 of fused multiply-adds; deinterleave and interleave take and give
/// sixteen and sixteen; dpbusd takes bytes a, b and sums c; dpbusd_small first cuts the bytes of a to 5 bits.
struct BitProbe {
  template <class Tier>
  static void run(ProbeOp op, const void* a, const void* b, const void* c, void* out, std::int64_t n);
};

}  // namespace dodona
